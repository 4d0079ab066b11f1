//! A recording of `fermata serve` as a load: the same requests at the same moments, on another pool.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use fermata_core::{ClassId, ModelId, Span, Time};
use fermata_dispatch::{Event, ModelSpec, Network};
use fermata_server::recording::{Entry, Header, ReadError, Reader};
use fermata_sim::{Arrivals, End, Load, Scenario};

use super::file::SimFile;
use crate::input::InputError;

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
    executors: usize,
    /// By id; an id that was used again, after a reload, goes on as the same model.
    models: BTreeMap<ModelId, Model>,
}

struct Model {
    name: String,
    spec: Arc<ModelSpec>,
    arrivals: Vec<Time>,
}

/// Reads a recording as a scenario.
pub(super) fn read(file: &Path, changes: Changes<'_>) -> Result<SimFile, InputError> {
    let pools = read_pools(file)?;
    let pool = choose(file, &pools, changes.pool)?;
    let models: Vec<&Model> =
        pool.models.values().filter(|model| !model.arrivals.is_empty()).collect();
    let Some(first) = models.iter().filter_map(|model| model.arrivals.first()).min().copied()
    else {
        return Err(refuse(file, format!("pool '{}' was asked for nothing", pool.header.name)));
    };
    let load = |model: &&Model| {
        let slo = changes.slo.unwrap_or(model.spec.slo);
        let spec = ModelSpec { slo, profiles: model.spec.profiles.clone() };
        // Time begins with the first request, not with the start of the server.
        let times = model.arrivals.iter().map(|&time| Time::START + (time - first));
        Load { spec: Arc::new(spec), arrivals: Arrivals::Recorded(times.collect()) }
    };
    let requests = models.iter().map(|model| model.arrivals.len() as u64).sum();
    let scenario = Scenario {
        loads: models.iter().map(load).collect(),
        executors: vec![ClassId(0); changes.gpus.unwrap_or(pool.executors)],
        network: Network::default(),
        end: End::Requests(requests),
        seed: 1,
        noise: 0.0,
        faults: Vec::new(),
    };
    let names = models.iter().map(|model| model.name.clone()).collect();
    Ok(SimFile { scenario, names })
}

fn read_pools(file: &Path) -> Result<Vec<Pool>, InputError> {
    let wrong = |error: ReadError| refuse(file, error.to_string());
    let open =
        File::open(file).map_err(|source| InputError::Read { file: file.to_owned(), source })?;
    let mut pools: Vec<Pool> = Vec::new();
    for entry in Reader::new(BufReader::new(open)).map_err(wrong)? {
        match entry.map_err(wrong)? {
            Entry::Action(_) => {}
            Entry::Pool(header) => {
                pools.push(Pool { header, executors: 0, models: BTreeMap::new() });
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
                let arrivals = Vec::new();
                let known = self.models.entry(model).or_insert(Model {
                    name: name.clone(),
                    spec: spec.clone(),
                    arrivals,
                });
                (known.name, known.spec) = (name, spec);
            }
            Event::Arrive { model, .. } => {
                if let Some(model) = self.models.get_mut(&model) {
                    model.arrivals.push(time);
                }
            }
            Event::Join { .. } => self.executors += 1,
            Event::Leave { .. } | Event::Fail { .. } => self.executors -= 1,
            _ => {}
        }
    }

    fn requests(&self) -> usize {
        self.models.values().map(|model| model.arrivals.len()).sum()
    }
}

fn choose<'a>(file: &Path, pools: &'a [Pool], name: Option<&str>) -> Result<&'a Pool, InputError> {
    let chosen = match name {
        Some(name) => pools.iter().find(|pool| pool.header.name == name),
        None => pools.iter().max_by_key(|pool| pool.requests()),
    };
    chosen.ok_or_else(|| {
        let there: Vec<&str> = pools.iter().map(|pool| pool.header.name.as_str()).collect();
        let reason =
            format!("has no pool '{}': it has {}", name.unwrap_or_default(), there.join(", "));
        refuse(file, reason)
    })
}

fn refuse(file: &Path, reason: String) -> InputError {
    InputError::Argument { name: "--recording", reason: format!("{}: {reason}", file.display()) }
}
