//! Figure 15: a load that changes over the day, on 512 executors.
//!
//! The paper's rates come from videos that are not public; ours are calls a minute of the Azure
//! Functions trace, a function for each model.

use std::collections::BTreeSet;

use fermata_core::{ClassId, Span, Time};
use fermata_dispatch::{Event, Network, Policy};
use fermata_plan::advice::{Observed, needed};
use fermata_sim::{Arrivals, End, Load, Observer, Run, Scenario, Stats, simulate};
use fermata_workload::{Counts, FunctionCounts, Gaps, Process};

use super::model::{Model, zoo_1080ti};
use super::pool::Reach;

/// A changing load.
#[derive(Clone, Debug)]
pub struct Changing {
    /// Its models.
    pub models: Vec<Model>,
    /// What is simulated.
    pub scenario: Scenario,
    /// How long it takes.
    pub length: Span,
    /// How many executors the rates of each recorded minute would keep busy in staggered execution.
    pub demand: Vec<f64>,
}

/// The executors that the highest half hour would keep busy at the best, over those there are:
/// enough to be overloaded for a while.
pub const OFFERED_PEAK: f64 = 1.1;
const WHILE_MINUTES: usize = 30;

const MODELS: usize = 24;
/// A well-behaved function is called in nearly every minute, changes over the day, and is no single
/// spike.
const ACTIVE_MINUTES: f64 = 0.95;
const DEVIATION_MIN: f64 = 0.1;
const PEAK_TO_MEAN_MAX: f64 = 4.0;
/// Calls to this power are popularity: as they are, one model would take half of all executors.
const FLATTENED: f64 = 0.75;

/// The busiest well-behaved functions drive as many models of the 1080Ti zoo; the more calls, the
/// more executor time is asked for, whatever the model. A recorded minute takes `minute`.
pub fn changing_load(counts: &Counts, executors: usize, minute: Span, seed: u64) -> Changing {
    let mut functions: Vec<&FunctionCounts> =
        counts.functions.iter().filter(|function| well_behaved(function)).collect();
    functions.sort_by_key(|function| std::cmp::Reverse(function.total()));
    functions.truncate(MODELS);
    assert!(!functions.is_empty(), "a trace has a function that is called all day");
    let zoo = zoo_1080ti();
    // Evenly over the zoo, which is ordered by how much its models gain by batching.
    let models: Vec<Model> =
        (0..functions.len()).map(|at| zoo[at * zoo.len() / functions.len()].clone()).collect();
    let reaches: Vec<Reach> = models
        .iter()
        .map(|model| Reach::new(model, Network::default()).expect("the zoo can be served"))
        .collect();

    // The demand grows a little slower than the rates, since batches grow with them: halve.
    let minutes = functions.iter().map(|function| function.by_minute.len()).min().unwrap_or(0);
    let demand = |level: f64| -> Vec<f64> {
        let one = |at: usize| -> f64 {
            let each = functions.iter().zip(&models).zip(&reaches);
            each.map(|((function, model), reach)| {
                reach.demand(
                    f64::from(function.by_minute[at]) / 60.0 * factor(function, model, level),
                )
            })
            .sum()
        };
        (0..minutes).map(one).collect()
    };
    let peak = |level: f64| sustained(&demand(level));
    let (mut low, mut high) = (0.0, 10.0 * executors as f64);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if peak(middle) < OFFERED_PEAK * executors as f64 { low = middle } else { high = middle }
    }

    let loads = functions.iter().zip(&models).enumerate().map(|(number, (function, model))| {
        let rate = function.rate(minute, factor(function, model, low));
        let gaps = Gaps::new(Process::Poisson, seed, number as u64).table(TABLE);
        Load::new(model.spec(), Arrivals::Table(gaps, rate))
    });
    let length = minute * minutes as u64;
    let scenario = Scenario {
        loads: loads.collect(),
        executors: vec![ClassId(0); executors],
        network: Network::default(),
        end: End::At(Time::START + length),
        seed,
        noise: 0.0,
        faults: Vec::new(),
    };
    let demand = demand(low);
    Changing { models, scenario, length, demand }
}

const TABLE: usize = 1 << 18;

/// The requests of one call: so many that, in batches of half the SLO, the model's executor time is
/// `level` times its function's flattened popularity.
fn factor(function: &FunctionCounts, model: &Model, level: f64) -> f64 {
    let profile = model.profile();
    let batch = profile.largest_within(Span::from_ms(model.slo_ms / 2.0)).max(1);
    let calls = function.total() as f64 / function.by_minute.len() as f64;
    level * calls.powf(FLATTENED - 1.0) * 1e9 / profile.cost(batch)
}

/// The highest mean of a while.
fn sustained(demand: &[f64]) -> f64 {
    let mean = |window: &[f64]| window.iter().sum::<f64>() / window.len() as f64;
    demand.windows(WHILE_MINUTES.clamp(1, demand.len())).map(mean).fold(0.0, f64::max)
}

fn well_behaved(function: &FunctionCounts) -> bool {
    let minutes = function.by_minute.len() as f64;
    let mean = function.total() as f64 / minutes;
    let square = |&count: &u32| (f64::from(count) - mean).powi(2);
    let deviation = (function.by_minute.iter().map(square).sum::<f64>() / minutes).sqrt();
    let active = function.by_minute.iter().filter(|&&count| count > 0).count() as f64;
    let peak = f64::from(function.by_minute.iter().copied().max().unwrap_or(0));
    active >= ACTIVE_MINUTES * minutes
        && deviation >= DEVIATION_MIN * mean
        && peak <= PEAK_TO_MEAN_MAX * mean
}

impl Changing {
    /// What happens, in so many intervals of equal length.
    pub fn run(&self, policy: Policy, intervals: usize) -> (Vec<Interval>, Stats) {
        let mut watch = Watch {
            length: Span(self.length.0 / intervals as u64),
            intervals: vec![Interval::new(self.models.len()); intervals],
            used: vec![BTreeSet::new(); intervals],
        };
        let mut dispatcher = policy.dispatcher(self.scenario.network);
        let stats = simulate(&self.scenario, &mut dispatcher, &mut watch, None);
        let executors = self.scenario.executors.len() as f64;
        let seconds = watch.length.as_secs();
        for (interval, used) in watch.intervals.iter_mut().zip(&watch.used) {
            interval.used = used.len();
            interval.busy /= seconds * executors;
        }
        (watch.intervals, stats)
    }
}

/// What happened in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Requests that came, by model.
    pub offered: Vec<u64>,
    /// Those of them that were answered in time, whenever that was.
    pub in_time: Vec<u64>,
    /// Executors that ran something.
    pub used: usize,
    /// The share of executor time that was busy.
    pub busy: f64,
}

impl Interval {
    fn new(models: usize) -> Self {
        Self { offered: vec![0; models], in_time: vec![0; models], used: 0, busy: 0.0 }
    }

    /// The share of its requests that were not answered in time.
    pub fn bad_rate(&self) -> f64 {
        let total = |counts: &[u64]| counts.iter().sum::<u64>();
        let (offered, in_time) = (total(&self.offered), total(&self.in_time));
        if offered > 0 { 1.0 - in_time as f64 / offered as f64 } else { 0.0 }
    }

    /// How many of `executors` to add, or to remove if it is negative (Symphony 3.5): `N r / (1 -
    /// r)` more at a bad rate above what is allowed, else fewer by those that are idle.
    pub fn advice(&self, executors: usize) -> f64 {
        // The paper's advice knows of idleness only.
        let (bad, busy) = (self.bad_rate(), self.busy.min(1.0));
        let seen = Observed { executors, bad, busy, filled: f64::INFINITY };
        needed(seen) - executors as f64
    }
}

struct Watch {
    length: Span,
    intervals: Vec<Interval>,
    used: Vec<BTreeSet<u32>>,
}

impl Watch {
    /// What comes after the end belongs to the last interval.
    fn number(&self, time: Time) -> usize {
        ((time.0 / self.length.0) as usize).min(self.intervals.len() - 1)
    }
}

impl Observer for Watch {
    fn event(&mut self, now: Time, event: &Event) {
        if let Event::Arrive { model, .. } = *event {
            let number = self.number(now);
            self.intervals[number].offered[model.index()] += 1;
        }
    }

    fn finished(&mut self, run: &Run) {
        for request in &run.requests {
            if run.finish <= request.deadline {
                let number = self.number(request.arrival);
                self.intervals[number].in_time[run.model.index()] += 1;
            }
        }
        for number in self.number(run.start)..=self.number(run.finish) {
            let from = Time::START + self.length * number as u64;
            let overlap = run.finish.min(from + self.length) - run.start.max(from);
            self.intervals[number].busy += overlap.as_secs();
            self.used[number].insert(run.executor.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> Counts {
        let function = |number: u32| FunctionCounts {
            name: format!("f{number}"),
            by_minute: (0..60).map(|minute| 100 + (7 * minute * (number + 1)) % 90).collect(),
        };
        let spike = FunctionCounts { name: "spike".to_owned(), by_minute: vec![0; 60] };
        Counts { functions: (0..30).map(function).chain([spike]).collect() }
    }

    #[test]
    fn the_peak_is_as_high_as_it_should_be_and_intervals_add_up() {
        let changing = changing_load(&counts(), 32, Span::from_ms(50.0), 1);
        assert_eq!(changing.models.len(), 24);
        let peak = sustained(&changing.demand);
        assert!((peak / 32.0 - OFFERED_PEAK).abs() < 0.01, "{peak}");
        let (intervals, stats) = changing.run("deferred".parse().unwrap(), 10);
        let offered: u64 = intervals.iter().flat_map(|interval| &interval.offered).sum();
        let in_time: u64 = intervals.iter().flat_map(|interval| &interval.in_time).sum();
        assert_eq!((offered, in_time), (stats.total().offered, stats.total().in_time));
        assert!(offered > 1000);
        let busy: f64 = intervals.iter().map(|interval| interval.busy).sum::<f64>() / 10.0;
        assert!((busy - stats.busy_fraction()).abs() < 0.05, "{busy}");
    }

    #[test]
    fn advice_follows_the_bad_rate_and_then_idleness() {
        let interval =
            |in_time, busy| Interval { offered: vec![100], in_time: vec![in_time], used: 10, busy };
        assert!((interval(80, 0.9).advice(100) - 25.0).abs() < 1e-9);
        assert!((interval(100, 0.9).advice(100) + 10.0).abs() < 1e-9);
    }
}
