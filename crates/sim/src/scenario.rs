//! What is simulated: models and their load, executors, network, noise and faults.

use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, Growth, KindId, Span, Time};
use fermata_dispatch::{ModelSpec, Network};
use fermata_workload::{GapTable, Gaps, Process, Rate, Stream};

/// A run, described. It is cheap to copy: what is large is shared.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The models and what is asked of them.
    pub loads: Vec<Load>,
    /// The class of each executor.
    pub executors: Vec<ClassId>,
    /// How far away the executors are.
    pub network: Network,
    /// When the arrivals end.
    pub end: End,
    /// The seed of every stream of random numbers.
    pub seed: u64,
    /// The relative standard deviation of execution times.
    pub noise: f64,
    /// What goes wrong, in any order.
    pub faults: Vec<Fault>,
}

/// A model and what is asked of it.
#[derive(Clone, Debug)]
pub struct Load {
    /// What dispatch knows of it.
    pub spec: Arc<ModelSpec>,
    /// When requests come.
    pub arrivals: Arrivals,
    /// How long each of them runs, where that depends on its input.
    pub sizes: Option<Arc<Sizes>>,
}

/// How long requests run that differ in length: drawn beforehand, so that every policy is given the
/// same.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// What each request takes alone and what dispatch is told that it is, in the order of arrival;
    /// from the beginning again when there are more.
    pub requests: Vec<(Span, KindId)>,
    /// What a batch takes, by its size and its longest request.
    pub growth: Growth,
}

/// When requests come.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// A process at a rate.
    Process(Process, Rate),
    /// The same from gaps drawn beforehand, which several runs share.
    Table(GapTable, Rate),
    /// At recorded moments, each with an objective of its own; that of the model, where none are
    /// given.
    Recorded(Arc<[Time]>, Option<Arc<[Span]>>),
}

impl Arrivals {
    /// The same at another rate, which stays. Recorded moments have no rate.
    pub fn at_rate(&self, rate: f64) -> Self {
        let rate = Rate::Constant(rate);
        match self {
            Self::Process(process, _) => Self::Process(*process, rate),
            Self::Table(gaps, _) => Self::Table(gaps.clone(), rate),
            Self::Recorded(..) => panic!("recorded moments have no rate"),
        }
    }
}

/// When the arrivals end. What has arrived is then served or dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// At this moment.
    At(Time),
    /// After this many requests.
    Requests(u64),
}

/// Something that goes wrong, or changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// When.
    pub at: Time,
    /// To which executor.
    pub executor: ExecutorId,
    /// What.
    pub kind: FaultKind,
}

/// What happens to an executor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// It breaks in whatever it does.
    Crash,
    /// It joins, idle.
    Join(ClassId),
    /// It takes no more batches.
    Leave,
    /// Its batches that start from now on take this many times as long as its class says.
    Slow(f64),
}

impl Scenario {
    /// The total rate, where every load has one, at the beginning.
    pub fn rate(&self) -> f64 {
        self.loads.iter().map(Load::rate).sum()
    }

    /// Whether no rate changes over time and nothing else happens at a moment of its own: then
    /// another rate is the same run faster or slower.
    pub fn is_steady(&self) -> bool {
        let changing = |load: &Load| {
            matches!(
                load.arrivals,
                Arrivals::Process(_, Rate::Steps(_)) | Arrivals::Table(_, Rate::Steps(_))
            )
        };
        self.faults.is_empty() && !self.loads.iter().any(changing)
    }

    /// The same with every rate multiplied.
    pub fn scaled(&self, factor: f64) -> Self {
        let mut scaled = self.clone();
        for load in &mut scaled.loads {
            load.arrivals = load.arrivals.scaled(factor);
        }
        scaled
    }

    /// The same with this many executors of the first class.
    pub fn with_executors(&self, executors: usize) -> Self {
        Self { executors: vec![ClassId(0); executors], ..self.clone() }
    }

    /// How many requests each load is expected to have.
    pub fn expected(&self) -> Vec<f64> {
        let each = |end: Time| self.loads.iter().map(|load| load.expected(end)).collect();
        match self.end {
            End::At(end) => each(end),
            End::Requests(requests) => {
                let total = self.rate();
                self.loads.iter().map(|load| requests as f64 * load.rate() / total).collect()
            }
        }
    }
}

impl Load {
    /// The rate at the beginning.
    pub fn rate(&self) -> f64 {
        match &self.arrivals {
            Arrivals::Process(_, rate) | Arrivals::Table(_, rate) => rate.at(Time::START),
            Arrivals::Recorded(times, _) => {
                let last = times.last().map_or(0.0, |time| time.as_secs());
                if last > 0.0 { times.len() as f64 / last } else { 0.0 }
            }
        }
    }

    fn expected(&self, end: Time) -> f64 {
        match &self.arrivals {
            Arrivals::Process(_, rate) | Arrivals::Table(_, rate) => rate.expected(end),
            Arrivals::Recorded(times, _) => times.partition_point(|&time| time < end) as f64,
        }
    }

    /// When its requests come, it being the model of this number: each number has a stream of its
    /// own.
    pub fn stream(&self, seed: u64, number: usize) -> Stream {
        match &self.arrivals {
            Arrivals::Process(process, rate) => {
                Stream::new(Gaps::new(*process, seed, number as u64), rate)
            }
            Arrivals::Table(gaps, rate) => Stream::new(Gaps::from_table(gaps.clone()), rate),
            Arrivals::Recorded(times, _) => Stream::recorded(times.clone()),
        }
    }
}

impl Arrivals {
    fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Process(process, rate) => Self::Process(*process, rate.scaled(factor)),
            Self::Table(gaps, rate) => Self::Table(gaps.clone(), rate.scaled(factor)),
            Self::Recorded(times, slos) => {
                let squeeze = |time: &Time| Time((time.0 as f64 / factor) as u64);
                Self::Recorded(times.iter().map(squeeze).collect(), slos.clone())
            }
        }
    }
}

impl End {
    /// The last moment at which a request may arrive.
    pub(crate) fn time(self) -> Time {
        match self {
            Self::At(time) => time,
            Self::Requests(_) => Time::NEVER,
        }
    }

    /// How many requests may arrive.
    pub fn requests(self) -> u64 {
        match self {
            Self::At(_) => u64::MAX,
            Self::Requests(requests) => requests,
        }
    }
}

/// A model that is asked for at a steady rate on executors of one class.
impl Load {
    /// A model, and when it is asked for.
    pub fn new(spec: Arc<ModelSpec>, arrivals: Arrivals) -> Self {
        Self { spec, arrivals, sizes: None }
    }

    /// A steady load.
    pub fn steady(spec: Arc<ModelSpec>, process: Process, rate: f64) -> Self {
        Self::new(spec, Arrivals::Process(process, Rate::Constant(rate)))
    }

    /// The objective of each request, where they are not the model's.
    pub(crate) fn own_slos(&self) -> Option<&Arc<[Span]>> {
        match &self.arrivals {
            Arrivals::Recorded(_, slos) => slos.as_ref(),
            Arrivals::Process(..) | Arrivals::Table(..) => None,
        }
    }

    /// The SLO of its model.
    pub fn slo(&self) -> Span {
        self.spec.slo
    }
}
