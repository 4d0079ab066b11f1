//! One day of the Azure Functions trace: the planner decides the number of GPUs every half minute,
//! and at once when the load changes a lot.

use fermata_chart::{Axis, Lines, Panel, Series, Shape, grouped};
use fermata_core::{ClassId, Span, Time};
use fermata_dispatch::{Network, Policy};
use fermata_plan::{Demand, Method, Problem, Session, solve, staggered_load};
use fermata_sim::{
    Arrivals, Control, End, Load, Scenario, Seen, fewest_near, passes, simulate_controlled, spread,
};
use fermata_workload::{Counts, FunctionCounts, Gaps, Process};

use super::Bench;
use crate::document::{Section, Table, figure};
use crate::trials::symphony::{Meter, Model, zoo_a100};

/// How many requests a second, on average over the day.
const RATE: f64 = 10_000.0;
const MINUTE: Span = Span(60_000_000_000);
const EPOCH: Span = Span(30_000_000_000);
/// Rates are counted this often (as Nexus' beacons are).
const BEACON: Span = Span(1_000_000_000);
/// A plan is made at once if the last beacons ask for more than this many times the GPUs that there
/// are, or for less.
const GROWN: f64 = 1.05;
const SHRUNK: f64 = 0.85;
const RECENT: usize = 2;
const GPUS_MAX: usize = 2_000;
const GPUS_FIRST: usize = 40;
/// Gaps between arrivals are drawn once, so many for each model, and then begin again.
const TABLE: usize = 1 << 18;

/// The day under the planner, and the fewest GPUs of each epoch.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let counts = bench.args.trace.counts()?;
    let day = Day::new(&counts, if bench.suite.quick { 120 } else { 1440 });
    // How few GPUs are enough is the question.
    let policy = Policy::RELEASE;
    let epochs: Vec<usize> = (0..day.epochs()).collect();
    bench.progress.expect(epochs.len() + 1);

    let scenario = day.scenario(bench.suite.seed);
    let mut planner = Planner::new(&day);
    let mut dispatcher = policy.dispatcher(scenario.network);
    let stats = simulate_controlled(&scenario, &mut dispatcher, &mut (), &mut planner);
    bench.progress.finish_one();
    let fewest = spread(&epochs, bench.suite.threads(), |&epoch| {
        let fewest = day.fewest(epoch, policy);
        bench.progress.finish_one();
        fewest as f64
    });

    let used = planner.by_epoch(epochs.len());
    let bound: Vec<f64> = epochs.iter().map(|&epoch| day.nexus_bound(epoch)).collect();
    let total = stats.total();
    let (offered, bad) = (total.offered, 1.0 - total.in_time as f64 / total.offered as f64);
    let (mean_used, mean_fewest, mean_bound) = (mean(&used), mean(&fewest), mean(&bound));
    let above = |base: f64| format!("{:+.1} %", 100.0 * (mean_used / base - 1.0));
    let mut section = Section::default();
    section.say(day.introduction());
    let mut table = Table::new(["what", "measured", "asked", "paper (Nexus)"]);
    let row = |table: &mut Table, cells: [&str; 4]| table.add(cells);
    row(&mut table, ["requests", &grouped(offered as f64, 0), "", ""]);
    row(&mut table, ["bad rate", &format!("{:.3} %", 100.0 * bad), "1.0 %", "1.3 %"]);
    let worst =
        |of: fn(&fermata_sim::ModelStats) -> f64| stats.models.iter().map(of).fold(0.0, f64::max);
    let bad_of = |model: &fermata_sim::ModelStats| model.bad() as f64 / model.offered.max(1) as f64;
    row(
        &mut table,
        ["bad rate of the worst model", &format!("{:.3} %", 100.0 * worst(bad_of)), "", ""],
    );
    row(&mut table, ["GPUs, on average", &format!("{mean_used:.2}"), "", ""]);
    row(
        &mut table,
        ["fewest GPUs of each epoch, confirmed, on average", &format!("{mean_fewest:.2}"), "", ""],
    );
    row(&mut table, ["above the fewest", &above(mean_fewest), "10 %", ""]);
    row(&mut table, ["Nexus' bound, on average", &format!("{mean_bound:.2}"), "", ""]);
    row(&mut table, ["above Nexus' bound", &above(mean_bound), "", "32 %"]);
    row(&mut table, ["plans made at an epoch's end", &planner.regular.to_string(), "", ""]);
    row(&mut table, ["plans made at once", &planner.urgent.to_string(), "", ""]);
    section.say(table.markdown());
    section.say(format!(
        "The fewest GPUs of an epoch keep 99 % of every model in time when its rates are known \
         beforehand and stay; the planner \
         knows only what came before. Nexus' bound: every model in the largest batches with `2 \
         l(b)` within its SLO, back to back. \
         Rates are counted every {:.0} s; a plan follows at once if the last {RECENT} s ask for \
         more than {GROWN} times the GPUs \
         or less than {SHRUNK} times. GPUs join when they are asked for: they are taken to be \
         warm.",
        BEACON.as_secs()
    ));
    section.show("day", "GPUs over the day", picture(&used, &fewest, &bound));
    Ok(section)
}

/// Calls of functions, made requests of models.
struct Day {
    models: Vec<Model>,
    /// Requests a minute: by model, then by minute.
    by_minute: Vec<FunctionCounts>,
    /// Requests of a call.
    factor: f64,
}

impl Day {
    /// All functions of the trace, the busiest first, are dealt out to the models of the A100 zoo
    /// in turns.
    fn new(counts: &Counts, minutes: usize) -> Self {
        let models = zoo_a100();
        let mut functions: Vec<&FunctionCounts> = counts.functions.iter().collect();
        functions.sort_by_key(|function| std::cmp::Reverse(function.total()));
        let recorded = functions.iter().map(|function| function.by_minute.len()).min().unwrap_or(0);
        let sum = |model: usize, minute: usize| -> u32 {
            functions
                .iter()
                .skip(model)
                .step_by(models.len())
                .map(|each| each.by_minute[minute])
                .sum()
        };
        let calls: u64 = functions.iter().map(|function| function.total()).sum();
        let factor = RATE * 60.0 * recorded as f64 / calls as f64;
        let by_minute = models.iter().enumerate().map(|(at, model)| FunctionCounts {
            name: model.name.clone(),
            by_minute: (0..minutes.min(recorded)).map(|minute| sum(at, minute)).collect(),
        });
        Self { by_minute: by_minute.collect(), models, factor }
    }

    fn minutes(&self) -> usize {
        self.by_minute[0].by_minute.len()
    }

    fn epochs(&self) -> usize {
        self.minutes() * (MINUTE.0 / EPOCH.0) as usize
    }

    /// Requests a second of each model in an epoch.
    fn rates(&self, epoch: usize) -> Vec<f64> {
        let minute = epoch / (MINUTE.0 / EPOCH.0) as usize;
        let rate = |counts: &FunctionCounts| f64::from(counts.by_minute[minute]) / 60.0;
        self.by_minute.iter().map(|counts| rate(counts) * self.factor).collect()
    }

    /// The whole day.
    fn scenario(&self, seed: u64) -> Scenario {
        let loads = self.models.iter().zip(&self.by_minute).enumerate();
        let loads = loads.map(|(number, (model, counts))| {
            let gaps = Gaps::new(Process::Poisson, seed, number as u64).table(TABLE);
            Load::new(model.spec(), Arrivals::Table(gaps, counts.rate(MINUTE, self.factor)))
        });
        Scenario {
            loads: loads.collect(),
            executors: vec![ClassId(0); GPUS_FIRST],
            network: Network::default(),
            end: End::At(Time::START + MINUTE * self.minutes() as u64),
            seed,
            noise: 0.0,
            faults: Vec::new(),
        }
    }

    /// The fewest GPUs that keep 99 % of every model in time at the rates of one epoch.
    fn fewest(&self, epoch: usize, policy: Policy) -> usize {
        let rates = self.rates(epoch);
        let asked = || self.models.iter().zip(&rates).filter(|(_, rate)| **rate > 0.0);
        let load =
            |(model, rate): (&Model, &f64)| Load::steady(model.spec(), Process::Poisson, *rate);
        let scenario = Scenario {
            loads: asked().map(load).collect(),
            executors: Vec::new(),
            network: Network::default(),
            end: End::At(Time::START + EPOCH),
            seed: epoch as u64,
            noise: 0.0,
            faults: Vec::new(),
        };
        let busy: f64 = asked()
            .map(|(model, rate)| {
                staggered_load(&model.profile(), Span::from_ms(model.slo_ms), *rate)
            })
            .sum();
        fewest_near(busy.ceil() as usize, GPUS_MAX, |gpus| {
            passes(&scenario.with_executors(gpus), policy)
        })
        .expect("so many GPUs are enough for the trace")
    }

    /// Nexus' bound: GPUs that run the largest batches that are in time back to back.
    fn nexus_bound(&self, epoch: usize) -> f64 {
        let gpus = |(model, rate): (&Model, f64)| {
            let demand = Demand::new(model.profile(), Span::from_ms(model.slo_ms), rate);
            let session = Session::new(0, &demand, 0).expect("the model runs on the one kind");
            // DenseNet121 has no batch that is in time twice over; a batch of one is the least.
            let peak =
                session.peak().max(1e9 / demand.profiles[0].as_ref().map_or(1e9, |p| p.cost(1)));
            rate / peak
        };
        self.models.iter().zip(self.rates(epoch)).map(gpus).sum()
    }

    fn introduction(&self) -> String {
        format!(
            "All functions of the trace (`data/traces/azure_functions_2019_1000x1440.csv`), the \
             busiest first, are dealt out to the \
             {} models of the A100 zoo in turns; a call is {:.0} requests, so that there are {} a \
             second on average over the day; \
             {} minutes of it are run. Within a minute arrivals are Poisson at a constant rate, \
             and from minute to minute the rate \
             jumps. All models are in one pool of emulated GPUs under the default policy, in \
             virtual time; the planner (method \
             pools) sees the arrivals of the past only.",
            self.models.len(),
            self.factor,
            grouped(RATE, 0),
            self.minutes(),
        )
    }
}

/// Counts arrivals, and plans.
struct Planner {
    problem: Problem,
    next: Time,
    /// Arrivals of each model so far, at each beacon.
    counted: Vec<Vec<u64>>,
    /// Beacons since the last plan.
    since: usize,
    gpus: usize,
    /// GPUs after each beacon.
    decided: Vec<usize>,
    /// Plans at the end of an epoch, and at once.
    regular: usize,
    urgent: usize,
}

impl Planner {
    fn new(day: &Day) -> Self {
        let demand = |model: &Model| Demand::new(model.profile(), Span::from_ms(model.slo_ms), 0.0);
        Self {
            problem: Problem::new(day.models.iter().map(demand).collect()),
            next: Time::START + BEACON,
            counted: vec![vec![0; day.models.len()]],
            since: 0,
            gpus: GPUS_FIRST,
            decided: Vec::new(),
            regular: 0,
            urgent: 0,
        }
    }

    /// GPUs by the arrivals of the last beacons.
    fn plan(&mut self, beacons: usize) -> usize {
        let last = self.counted.len() - 1;
        let first = last.saturating_sub(beacons);
        let seconds = (last - first) as f64 * BEACON.as_secs();
        for (at, demand) in self.problem.demands.iter_mut().enumerate() {
            demand.rate = (self.counted[last][at] - self.counted[first][at]) as f64 / seconds;
        }
        solve(&self.problem, Method::Pools, None).gpus()
    }

    /// GPUs of each epoch, on average.
    fn by_epoch(&self, epochs: usize) -> Vec<f64> {
        let beacons = (EPOCH.0 / BEACON.0) as usize;
        let decided: Vec<f64> = self.decided.iter().map(|&gpus| gpus as f64).collect();
        decided.chunks(beacons).take(epochs).map(mean).collect()
    }
}

impl Control for Planner {
    fn most(&self) -> usize {
        GPUS_MAX
    }

    fn next(&self) -> Time {
        self.next
    }

    fn executors(&mut self, now: Time, seen: &Seen) -> usize {
        self.next = now + BEACON;
        self.counted.push(seen.offered.clone());
        self.since += 1;
        let (recent, gpus) = (self.plan(RECENT), self.gpus as f64);
        let epoch = (EPOCH.0 / BEACON.0) as usize;
        if recent as f64 > GROWN * gpus || (recent as f64) < SHRUNK * gpus {
            (self.gpus, self.since) = (recent, 0);
            self.urgent += 1;
        } else if self.since >= epoch {
            (self.gpus, self.since) = (self.plan(epoch), 0);
            self.regular += 1;
        }
        self.decided.push(self.gpus);
        self.gpus
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Epochs that are one point of the day's picture, and those of its last panel, which has a point
/// for each.
const SMOOTHED: usize = 20;
const CLOSE_UP: std::ops::Range<f64> = 14.0..15.0;

fn picture(used: &[f64], fewest: &[f64], bound: &[f64]) -> String {
    let panel = |title: &str, hours: std::ops::Range<f64>, epochs: usize| -> Box<dyn Panel> {
        let hour = |epoch: usize| epoch as f64 * EPOCH.as_secs() / 3600.0;
        let mut most: f64 = 0.0;
        let mut stairs = |name: &str, values: &[f64]| {
            let points =
                values.chunks(epochs).enumerate().map(|(at, part)| (hour(at * epochs), mean(part)));
            let points: Vec<(f64, f64)> = points.filter(|point| hours.contains(&point.0)).collect();
            most = points.iter().map(|point| point.1).fold(most, f64::max);
            Series { shape: Shape::Stairs, ..Series::line(name, points) }
        };
        let series = vec![
            stairs("planned", used),
            stairs("fewest, confirmed", fewest),
            stairs("Nexus' bound", bound),
        ];
        Box::new(Lines {
            title: title.to_owned(),
            x: Axis::between("hour", hours.start, hours.end),
            y: Axis::between("GPUs", 0.0, most),
            series,
            marks: Vec::new(),
        })
    };
    let day = used.len() as f64 * EPOCH.as_secs() / 3600.0;
    let mut rows = vec![(300.0, vec![panel("The day, means of 10 minutes", 0.0..day, SMOOTHED)])];
    if day > CLOSE_UP.end {
        rows.push((300.0, vec![panel("An hour, epoch by epoch", CLOSE_UP, 1)]));
    }
    figure(
        "A day of Azure Functions",
        "GPUs as planned, the fewest of each epoch, and Nexus' bound",
        rows,
    )
}
