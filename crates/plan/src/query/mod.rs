//! A query: models that call each other under one objective, and how that objective is split among
//! them (Nexus 6.2).
//!
//! The larger a stage's batch, the fewer GPUs it needs and the longer it takes. Wanted is a batch
//! for each stage, such that the stages along every way through the query keep the objective
//! together, with the fewest GPUs `sum R l(b) / b`. The paper cuts time into pieces; here nothing
//! is cut, and the split is the best there is:
//!
//! 1. `shape.rs`: the graph becomes calls in series and in parallel.
//! 2. `relaxed.rs`: were batches divisible, every part of the query would have a convex curve of
//!    GPUs over time, and the best point has a price of time for each part. Prices give a lower
//!    bound, and a first split near it.
//! 3. `exact.rs`: a dynamic program on pairs of (time, GPUs) of each part, of which only those are
//!    kept that no other beats, and that, by the prices, can be a part of something better than the
//!    first split.

mod exact;
mod point;
mod relaxed;
mod shape;

use fermata_core::{Profile, Span};

use point::{Point, front};
use relaxed::Relaxed;
use shape::Shape;

/// A dataflow of model calls under one objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Queries a second.
    pub rate: f64,
    /// From a query's arrival to its last answer.
    pub slo: Span,
    /// The models that are called: each after those that it waits for.
    pub stages: Vec<Stage>,
}

/// A model that a query calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// How long batches take.
    pub profile: Profile,
    /// How often it is called, on average, for each call of the last stage that every way to it
    /// passes; in a tree, that is the stage before it. After a join, it is the stage at which the
    /// ways parted: a join by itself makes no calls. Where there is no such stage, for each query.
    pub fan_out: f64,
    /// The places of the stages that it waits for, each before its own; none, if it starts with the
    /// query.
    pub after: Vec<usize>,
}

/// How much of a stage's objective a batch takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// The time that it runs, as Nexus' 6.2 counts. A request that comes just after a batch has
    /// started is late then.
    Run,
    /// Twice that: a request may have to wait while the batch before its own runs, as Nexus' 6.1
    /// counts. What was split so can be served.
    #[default]
    Wait,
}

/// How a query's objective is split.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// By stage.
    pub stages: Vec<StageSplit>,
}

/// What a stage gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageSplit {
    /// The batch that is expected.
    pub batch: usize,
    /// Its objective: what its batch takes, and the time that is left over on the longest way
    /// through this stage, in proportion.
    pub slo: Span,
    /// Calls a second.
    pub rate: f64,
    /// GPUs that are kept busy.
    pub gpus: f64,
}

/// Why there is no split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSplit {
    /// Batches of one take too long: the objective would have to be this long.
    TooTight {
        /// The shortest objective that could be kept.
        slo_min: Span,
    },
    /// The ways through the query part and join in a manner that is not series and parallel: some
    /// stage waits for a part of what another waits for.
    Tangled,
}

/// A split that is more than this much above the best is not kept: moving batch sizes costs more
/// than it gains below.
pub const TOLERANCE: f64 = 0.01;

impl Budget {
    /// How much of an objective a run of this length takes.
    pub fn time(self, run: Span) -> Span {
        match self {
            Self::Run => run,
            Self::Wait => run * 2,
        }
    }
}

impl Query {
    /// Calls a second of each stage.
    pub fn rates(&self) -> Vec<f64> {
        let mut rates = Vec::with_capacity(self.stages.len());
        for (stage, last) in self.stages.iter().zip(shape::last_passed(self)) {
            let before = last.map_or(self.rate, |last: usize| rates[last]);
            rates.push(before * stage.fan_out);
        }
        rates
    }

    /// The longest way through each stage, if each takes so long.
    fn ways(&self, times: &[Span]) -> Vec<Span> {
        // Until the end of each stage, and from its start.
        let (mut until, mut from) = (times.to_vec(), times.to_vec());
        for (at, stage) in self.stages.iter().enumerate() {
            assert!(stage.after.iter().all(|&before| before < at), "a stage is after those before");
            let before = stage.after.iter().map(|&before| until[before]).max();
            until[at] += before.unwrap_or(Span::ZERO);
        }
        for (at, stage) in self.stages.iter().enumerate().rev() {
            for &before in &stage.after {
                from[before] = from[before].max(times[before] + from[at]);
            }
        }
        (0..times.len()).map(|at| until[at] + from[at] - times[at]).collect()
    }

    /// The split that has these batches; `None`, if the objective is not kept, or a batch cannot be
    /// run.
    pub fn with_batches(&self, budget: Budget, batches: &[usize]) -> Option<Split> {
        let mut times = Vec::with_capacity(batches.len());
        for (stage, &batch) in self.stages.iter().zip(batches) {
            if !(1..=stage.profile.max_batch()).contains(&batch) {
                return None;
            }
            times.push(budget.time(stage.profile.latency(batch)));
        }
        let ways = self.ways(&times);
        if ways.iter().any(|&way| way > self.slo) {
            return None;
        }
        let stages = self.rates().into_iter().enumerate().map(|(at, rate)| {
            // On no way do these add up to more than the objective: the longest way through a stage
            // is at least as long.
            let slo = u128::from(times[at].0) * u128::from(self.slo.0) / u128::from(ways[at].0);
            let gpus = rate * self.stages[at].profile.cost(batches[at]) * 1e-9;
            StageSplit { batch: batches[at], slo: Span(slo as u64), rate, gpus }
        });
        Some(Split { stages: stages.collect() })
    }
}

impl Split {
    /// GPUs that are kept busy by all stages.
    pub fn gpus(&self) -> f64 {
        self.stages.iter().map(|stage| stage.gpus).sum()
    }

    /// The batch of each stage.
    pub fn batches(&self) -> Vec<usize> {
        self.stages.iter().map(|stage| stage.batch).collect()
    }
}

/// The split with the fewest GPUs.
pub fn split(query: &Query, budget: Budget) -> Result<Split, NoSplit> {
    if query.stages.is_empty() {
        return Ok(Split { stages: Vec::new() });
    }
    let shape = Shape::of(query).ok_or(NoSplit::Tangled)?;
    let fastest: Vec<Span> =
        query.stages.iter().map(|stage| budget.time(stage.profile.shortest())).collect();
    let slo_min = query.ways(&fastest).into_iter().max().unwrap_or(Span::ZERO);
    if slo_min > query.slo {
        return Err(NoSplit::TooTight { slo_min });
    }
    let limits = shape.limits(&fastest, query.slo);
    let fronts: Vec<Vec<Point>> = query
        .stages
        .iter()
        .zip(query.rates())
        .zip(&limits)
        .map(|((stage, rate), &limit)| front(&stage.profile, rate, budget, limit))
        .collect();
    let relaxed = Relaxed::new(&shape, &fronts, query.slo);
    let batches = exact::best(&shape, fronts, &relaxed, query.slo);
    Ok(query.with_batches(budget, &batches).expect("the best split keeps the objective"))
}

/// The same with a memory: the batches of `previous` stay as they are while they keep the objective
/// and need hardly more GPUs than the best. Rates and fan-outs always change a little.
pub fn resplit(query: &Query, budget: Budget, previous: &Split) -> Result<Split, NoSplit> {
    let best = split(query, budget)?;
    if previous.stages.len() != query.stages.len() {
        return Ok(best);
    }
    let kept = query.with_batches(budget, &previous.batches());
    let good = |kept: &Split| kept.gpus() <= best.gpus() * (1.0 + TOLERANCE);
    Ok(kept.filter(good).unwrap_or(best))
}

/// The objective in equal parts: for each stage, as many as there are stages on the way through it
/// that has the most. What a system does that knows nothing of batches.
pub fn even_split(query: &Query, budget: Budget) -> Result<Split, NoSplit> {
    let most = query.ways(&vec![Span(1); query.stages.len()]);
    let mut batches = Vec::with_capacity(most.len());
    let mut slo_min = Span::ZERO;
    for (stage, most) in query.stages.iter().zip(&most) {
        let share = Span(query.slo.0 / most.0);
        let points = front(&stage.profile, 1.0, budget, share);
        slo_min = slo_min.max(budget.time(stage.profile.shortest()) * most.0);
        batches.extend(points.last().map(Point::batch));
    }
    if batches.len() < most.len() {
        return Err(NoSplit::TooTight { slo_min });
    }
    Ok(query.with_batches(budget, &batches).expect("equal parts keep the objective"))
}

#[cfg(test)]
mod tests;
