//! A recording of `fermata serve` as a load: the same requests at the same moments, on another
//! pool.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Span, Time};
use fermata_dispatch::{Event, ModelSpec};
use fermata_files::InputError;
use fermata_recording::{Entry, Header, ReadError, Reader};
use fermata_server::spare::spare_of;
use fermata_sim::{Arrivals, End, Load, Scenario, Sizes};

use super::file::SimFile;
use crate::input::GPUS_MAX;

/// What is asked instead of what was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes<'a> {
    /// Which pool; the one with the most requests, if none is named.
    pub(super) pool: Option<&'a str>,
    /// Another objective for all models.
    pub(super) slo: Option<Span>,
    /// Another number of executors.
    pub(super) gpus: Option<usize>,
}

/// What was recorded of one pool.
struct Pool {
    header: Header,
    /// Who was there in the end, of which class.
    executors: BTreeMap<ExecutorId, ClassId>,
    /// By id; an id that was used again, after a reload, goes on as the same model.
    models: BTreeMap<ModelId, Model>,
}

struct Model {
    name: String,
    spec: Arc<ModelSpec>,
    arrivals: Vec<Time>,
    /// How long each of them had.
    slos: Vec<Span>,
    /// What each of them ran like.
    kinds: Vec<KindId>,
}

impl Model {
    /// Takes what is known later of classes on which nothing was known before. What was corrected
    /// while serving is not taken: that is how fast the machine was then.
    fn learn(&mut self, spec: &ModelSpec) {
        let known = Arc::make_mut(&mut self.spec);
        known.profiles.resize(known.profiles.len().max(spec.profiles.len()), None);
        for (known, new) in known.profiles.iter_mut().zip(&spec.profiles) {
            *known = known.take().or_else(|| new.clone());
        }
    }

    /// How long its requests run, where that depends on the input. What each took was not recorded:
    /// as long as its kind does on average.
    fn sizes(&self) -> Option<Arc<Sizes>> {
        let spread = self.spec.profiles.iter().flatten().next()?.spread()?;
        let alone = |&kind: &KindId| (Span(spread.mean(kind) as u64), kind);
        let (requests, growth) = (self.kinds.iter().map(alone).collect(), *spread.growth());
        Some(Arc::new(Sizes { requests, growth }))
    }
}

/// Reads a recording as a scenario.
pub(super) fn read(file: &Path, changes: Changes<'_>) -> Result<SimFile, InputError> {
    let open =
        File::open(file).map_err(|source| InputError::Read { file: file.to_owned(), source })?;
    let pools =
        read_pools(BufReader::new(open)).map_err(|error| refuse(file, error.to_string()))?;
    scenario_of(&pools, changes).map_err(|reason| refuse(file, reason))
}

fn scenario_of(pools: &[Pool], changes: Changes<'_>) -> Result<SimFile, String> {
    let pool = choose(pools, changes.pool)?;
    let name = &pool.header.name;
    let models: Vec<&Model> =
        pool.models.values().filter(|model| !model.arrivals.is_empty()).collect();
    let Some(first) = models.iter().filter_map(|model| model.arrivals.first()).min().copied()
    else {
        return Err(format!("pool '{name}' was asked for nothing"));
    };
    let mut executors: Vec<ClassId> = pool.executors.values().copied().collect();
    if let Some(gpus) = changes.gpus {
        // More of them are like the last.
        let last = executors.last().copied().unwrap_or(ClassId(0));
        executors.resize(gpus, last);
    }
    if !(1..=GPUS_MAX).contains(&executors.len()) {
        let count = executors.len();
        return Err(format!("pool '{name}' had {count} executors in the end: give --gpus"));
    }
    let load = |model: &&Model| {
        let slo = changes.slo.unwrap_or(model.spec.slo);
        let spec = ModelSpec { slo, ..(*model.spec).clone() };
        // Time begins with the first request, not with the start of the server.
        let times = model.arrivals.iter().map(|&time| Time::START + (time - first));
        // Each request keeps the deadline it had, unless another objective is asked for.
        let slos = changes.slo.is_none().then(|| model.slos.clone().into());
        let arrivals = Arrivals::Recorded(times.collect(), slos);
        Load { sizes: model.sizes(), ..Load::new(Arc::new(spec), arrivals) }
    };
    let requests = models.iter().map(|model| model.arrivals.len() as u64).sum();
    let scenario = Scenario {
        loads: models.iter().map(load).collect(),
        executors,
        network: pool.header.network,
        end: End::Requests(requests),
        seed: 1,
        noise: 0.0,
        faults: Vec::new(),
    };
    let names = models.iter().map(|model| model.name.clone()).collect();
    Ok(SimFile { scenario, names, spare: spare_of(pool.header.policy) })
}

fn read_pools(source: impl BufRead) -> Result<Vec<Pool>, ReadError> {
    let mut pools: Vec<Pool> = Vec::new();
    for entry in Reader::new(source)? {
        match entry? {
            Entry::Action(_) => {}
            Entry::Pool(header) => {
                pools.push(Pool { header, executors: BTreeMap::new(), models: BTreeMap::new() })
            }
            Entry::Event { pool, time, event, name } => pools[pool].note(time, event, name),
        }
    }
    Ok(pools)
}

impl Pool {
    fn note(&mut self, time: Time, event: Event, name: Option<String>) {
        match event {
            Event::AddModel { model, spec, .. } => {
                let name = name.unwrap_or_default();
                let known = self.models.entry(model).or_insert_with(|| Model {
                    name: name.clone(),
                    spec: spec.clone(),
                    arrivals: Vec::new(),
                    slos: Vec::new(),
                    kinds: Vec::new(),
                });
                (known.name, known.spec) = (name, spec);
            }
            Event::Arrive { model, deadline, kind, .. } => {
                if let Some(model) = self.models.get_mut(&model) {
                    model.arrivals.push(time);
                    model.slos.push(deadline - time);
                    model.kinds.push(kind);
                }
            }
            Event::Profile { model, spec } => {
                if let Some(model) = self.models.get_mut(&model) {
                    model.learn(&spec);
                }
            }
            Event::Join { executor, class } => _ = self.executors.insert(executor, class),
            Event::Leave { executor } | Event::Fail { executor } => {
                self.executors.remove(&executor);
            }
            _ => {}
        }
    }

    fn requests(&self) -> usize {
        self.models.values().map(|model| model.arrivals.len()).sum()
    }
}

fn choose<'a>(pools: &'a [Pool], name: Option<&str>) -> Result<&'a Pool, String> {
    let chosen = match name {
        Some(name) => pools.iter().find(|pool| pool.header.name == name),
        None => pools.iter().max_by_key(|pool| pool.requests()),
    };
    chosen.ok_or_else(|| {
        let there: Vec<&str> = pools.iter().map(|pool| pool.header.name.as_str()).collect();
        match name {
            Some(name) => format!("has no pool '{name}': it has {}", there.join(", ")),
            None => "has no pool".to_owned(),
        }
    })
}

fn refuse(file: &Path, reason: String) -> InputError {
    InputError::Argument { name: "--recording", reason: format!("{}: {reason}", file.display()) }
}

#[cfg(test)]
mod tests {
    use fermata_dispatch::{Policy, Spare};
    use fermata_sim::run;

    use super::*;

    const GOOD: &str = "\
fermata recording 1
pool 0 cpu eager
0 10 join x0 c0
0 10 join x1 c0
0 20 add m0 25000000 6000000,7000000 net
0 30 arrive m0 r0 25000030
> run x0 m0 30 6000000 r0
0 40 leave x1
0 50 arrive m0 r1 25000050
0 6000030 done x0
> run x0 m0 6000030 6000000 r1
0 6000040 fail x0
";

    fn scenario(text: &str, changes: Changes<'_>) -> Result<Scenario, String> {
        let pools = read_pools(text.as_bytes()).map_err(|error| error.to_string())?;
        scenario_of(&pools, changes).map(|file| file.scenario)
    }

    #[test]
    fn a_pool_that_everyone_left_needs_a_number() {
        let said = scenario(GOOD, Changes::default()).unwrap_err();
        assert_eq!(said, "pool 'cpu' had 0 executors in the end: give --gpus");
        let two = Changes { gpus: Some(2), ..Changes::default() };
        assert_eq!(scenario(GOOD, two).unwrap().executors.len(), 2);
        let said = scenario("fermata recording 1\n", two).unwrap_err();
        assert_eq!(said, "has no pool");
    }

    #[test]
    fn requests_keep_their_deadlines_unless_another_objective_is_asked_for() {
        // One request takes 6 ms: the second is known to be late when it comes.
        let hurried = GOOD.replace("arrive m0 r1 25000050", "arrive m0 r1 5000050");
        let asked = |slo| {
            let scenario = scenario(&hurried, Changes { pool: None, slo, gpus: Some(2) }).unwrap();
            let stats = run(&scenario, "eager".parse().unwrap()).total();
            (stats.in_time, stats.bad())
        };
        assert_eq!(asked(None), (1, 1));
        assert_eq!(asked(Some(Span::from_ms(7.0))), (2, 0));
    }

    #[test]
    fn shares_of_a_gpu_are_executors_of_different_classes() {
        let text = "\
fermata recording 1
pool 0 gpu fermata 400000 500 0
0 10 join x0 c0
0 20 add m0 25000000+1000 6000000,7000000 net
0 30 arrive m0 r0 25000030
> run x0 m0 430000 6000000 r0
0 40 profile m0 25000000+1000 6000000,7000000/9000000,9500000
0 50 join x1 c1
0 6000030 done x0
";
        let scenario = scenario(text, Changes::default()).unwrap();
        assert_eq!(scenario.executors, [ClassId(0), ClassId(1)]);
        assert_eq!(scenario.network.ctrl, Span(400_000));
        let spec = &scenario.loads[0].spec;
        let on = |class| spec.profile(ClassId(class)).map(|profile| profile.shortest());
        assert_eq!((on(0), on(1), on(2)), (Some(Span(6_000_000)), Some(Span(9_000_000)), None));
        assert_eq!(
            (spec.data, run(&scenario, "fermata".parse().unwrap()).total().in_time),
            (Span(1000), 1)
        );
    }

    #[test]
    fn spare_executors_are_for_what_they_were_recorded_for() {
        let spare = |policy: &str| {
            let text = GOOD.replace("cpu eager", &format!("cpu {policy}"));
            let two = Changes { gpus: Some(2), ..Changes::default() };
            scenario_of(&read_pools(text.as_bytes()).unwrap(), two).unwrap().spare
        };
        assert_eq!(spare("fermata"), Some(Spare::Latency));
        assert_eq!(spare("fermata:release"), Some(Spare::Release));
        assert_eq!(spare("eager"), None);
    }

    #[test]
    fn lines_that_are_lost_doubled_or_swapped_bring_nothing_down() {
        let lines: Vec<&str> = GOOD.lines().collect();
        let mut variants = Vec::new();
        for at in 0..lines.len() {
            let (mut lost, mut doubled) = (lines.clone(), lines.clone());
            lost.remove(at);
            doubled.insert(at, lines[at]);
            variants.extend([lost, doubled]);
            variants.extend((0..at).map(|other| {
                let mut swapped = lines.clone();
                swapped.swap(at, other);
                swapped
            }));
        }
        let policy: Policy = "fermata".parse().unwrap();
        let simulated = variants.iter().filter(|lines| {
            let text = lines.join("\n") + "\n";
            let scenario = scenario(&text, Changes { gpus: Some(1), ..Changes::default() });
            scenario.map(|scenario| run(&scenario, policy)).is_ok()
        });
        let simulated = simulated.count();
        assert!(0 < simulated && simulated < variants.len() / 2, "{simulated}");
    }
}
