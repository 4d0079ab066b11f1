//! One worker under a load of requests that differ in length, and how many of them it finishes in
//! time.

use std::sync::Arc;

use fermata_core::{ClassId, Growth, KindId, Profile, Span, Spread};
use fermata_dispatch::{Dispatch, ModelSpec, Network};
use fermata_sim::{Alone, Arrivals, End, Load, Scenario, Sizes, Stats, simulate};
use fermata_workload::{Process, Rate};

/// The largest batch.
const BATCH_MAX: usize = 16;
/// Runs by which distributions and tables are known before a trial begins.
const MEASURED: usize = 20_000;
/// Length hints are told apart in so many ranges.
const RANGES: usize = 32;

/// What the paper leaves open: how batches grow, and how loaded the worker is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// A letter.
    pub name: &'static str,
    /// How batches grow.
    pub growth: Growth,
    /// The arrival rate over the best that the worker could do: the most requests that batches of
    /// any size, of requests as they come, finish on average.
    pub load: f64,
}

impl Setting {
    /// A device with much room: sixteen requests take 1.75 times as long as one.
    pub const A: Self =
        Self { name: "A", growth: Growth { fixed: 0.0, base: 0.95, each: 0.05 }, load: 0.5 };
    /// A device with less: sixteen take four times as long.
    pub const B: Self =
        Self { name: "B", growth: Growth { fixed: 0.0, base: 0.8, each: 0.2 }, load: 0.8 };
}

/// What the dispatcher is told of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing: all requests are of one kind.
    Nothing,
    /// Its application.
    Application,
    /// The length of its input, in ranges.
    Length,
    /// Nothing, and the dispatcher gets a table of means in place of a distribution.
    Mean,
    /// The same with the longest of ten runs, on average, in place of the mean.
    LongestOfTen,
}

/// Requests and their worker.
#[derive(Clone, Debug)]
pub struct Trial {
    setting: Setting,
    slo: Span,
    rate: f64,
    requests: Vec<(Span, usize)>,
    measured: Vec<(Span, usize)>,
    applications: usize,
    seed: u64,
}

impl Trial {
    /// So many requests, with an objective of so many times the 99th percentile of what they take
    /// alone.
    pub fn new(alone: &Alone, setting: Setting, times_p99: f64, count: usize, seed: u64) -> Self {
        let measured = alone.draw(MEASURED, seed.wrapping_mul(2) + 1);
        let mut sorted: Vec<Span> = measured.iter().map(|&(span, _)| span).collect();
        sorted.sort_unstable();
        let p99 = sorted[sorted.len() * 99 / 100];
        let all = Spread::new(&vec![(1.0, sorted)], setting.growth, BATCH_MAX);
        let means = all.expect("runs take time").profile();
        let best = (1..=BATCH_MAX).map(|size| 1e9 / means.cost(size)).fold(0.0, f64::max);
        Self {
            setting,
            slo: Span((times_p99 * p99.0 as f64) as u64),
            rate: setting.load * best,
            requests: alone.draw(count, seed.wrapping_mul(2)),
            measured,
            applications: alone.applications(),
            seed,
        }
    }

    /// What each request takes alone, in the order of arrival.
    pub fn alone(&self) -> impl ExactSizeIterator<Item = Span> + '_ {
        self.requests.iter().map(|&(alone, _)| alone)
    }

    /// How batches grow.
    pub fn growth(&self) -> Growth {
        self.setting.growth
    }

    /// The rate at which requests come, on average.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The objective.
    pub fn slo(&self) -> Span {
        self.slo
    }

    /// The scenario, with Poisson arrivals, for a dispatcher that knows so much.
    pub fn scenario(&self, known: Known) -> Scenario {
        self.scenario_at(known, &Rate::Constant(1.0))
    }

    /// The same with a rate that has a shape: its mean is one.
    pub fn scenario_at(&self, known: Known, shape: &Rate) -> Scenario {
        let arrivals = Arrivals::Process(Process::Poisson, shape.scaled(self.rate));
        let mut load =
            Load::new(Arc::new(ModelSpec::uniform(self.slo, self.profile(known))), arrivals);
        let ranges = self.ranges();
        let kind = |alone: Span, application: usize| match known {
            Known::Application => KindId(application as u16),
            Known::Length => KindId(ranges.partition_point(|&to| to <= alone) as u16),
            Known::Nothing | Known::Mean | Known::LongestOfTen => KindId(0),
        };
        let requests = self.requests.iter().map(|&(alone, from)| (alone, kind(alone, from)));
        load.sizes =
            Some(Arc::new(Sizes { requests: requests.collect(), growth: self.setting.growth }));
        Scenario {
            loads: vec![load],
            executors: vec![ClassId(0)],
            network: Network::default(),
            end: End::Requests(self.requests.len() as u64),
            seed: self.seed,
            noise: 0.0,
            faults: Vec::new(),
        }
    }

    /// The share of requests that a dispatcher finishes in time.
    pub fn finish_rate(&self, known: Known, dispatcher: &mut impl Dispatch) -> f64 {
        finish_rate(&simulate(&self.scenario(known), dispatcher, &mut (), None))
    }

    /// What the dispatcher is told of the model.
    pub fn profile(&self, known: Known) -> Profile {
        let spread = |kinds: Vec<Vec<Span>>| {
            let share = |runs: &Vec<Span>| runs.len() as f32 / self.measured.len() as f32;
            let measured = kinds.into_iter().map(|runs| (share(&runs), runs)).collect();
            Arc::new(
                Spread::new(&measured, self.setting.growth, BATCH_MAX).expect("runs take time"),
            )
        };
        let by = |kinds: usize, kind: &dyn Fn(Span, usize) -> usize| {
            let mut runs = vec![Vec::new(); kinds];
            self.measured.iter().for_each(|&(alone, from)| runs[kind(alone, from)].push(alone));
            runs
        };
        match known {
            Known::Nothing => Profile::spread_out(spread(by(1, &|_, _| 0))),
            Known::Application => {
                Profile::spread_out(spread(by(self.applications, &|_, from| from)))
            }
            Known::Length => {
                let ranges = self.ranges();
                let range = |alone, _| ranges.partition_point(|&to| to <= alone);
                Profile::spread_out(spread(by(ranges.len() + 1, &range)))
            }
            Known::Mean => spread(by(1, &|_, _| 0)).profile(),
            Known::LongestOfTen => {
                let spread = spread(by(1, &|_, _| 0));
                let longest = |size: usize| {
                    let of_ten = spread.mixture().longest_of(10 * size).mean(spread.grid());
                    Span(self.setting.growth.latency_ns(size, of_ten) as u64)
                };
                Profile::from_table((1..=BATCH_MAX).map(longest)).expect("runs take time")
            }
        }
    }

    /// Where ranges of lengths end: each has about as many requests as any other, and equal ones
    /// are in one range.
    fn ranges(&self) -> Vec<Span> {
        let mut sorted: Vec<Span> = self.measured.iter().map(|&(span, _)| span).collect();
        sorted.sort_unstable();
        let mut ends: Vec<Span> =
            (1..RANGES).map(|at| sorted[sorted.len() * at / RANGES]).collect();
        ends.dedup();
        ends
    }
}

/// The share of all requests that were answered in time.
pub(super) fn finish_rate(stats: &Stats) -> f64 {
    let of =
        |count: fn(&fermata_sim::ModelStats) -> u64| stats.models.iter().map(count).sum::<u64>();
    of(|model| model.in_time) as f64 / of(|model| model.offered).max(1) as f64
}
