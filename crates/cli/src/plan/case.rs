//! What is asked for, ready for the planner and for the simulator that tries its plans.

use std::collections::BTreeSet;

use fermata_core::{Span, Time};
use fermata_dispatch::Policy;
use fermata_plan::shares::{Measured, Rules, Traits};
use fermata_plan::{Plan, Problem};
use fermata_sim::Arrivals;
use fermata_sim::confirm::{Confirmed, Demands, Trial, confirm};

use super::progress::Progress;
use crate::input::{GPUS_MAX, Latency};

/// A problem with the words for its parts.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) problem: Problem,
    /// Under which policy plans are tried.
    pub(super) policy: Policy,
    /// How GPUs are cut.
    pub(super) rules: Rules,
    /// By demand: what is known of it on shares.
    pub(super) traits: Vec<Traits>,
    /// By demand.
    pub(super) names: Vec<String>,
    /// By demand: when requests come, at its rate.
    pub(super) arrivals: Vec<Arrivals>,
    /// The names of the kinds.
    pub(super) kinds: Vec<String>,
    /// Whether prices were given.
    pub(super) priced: bool,
    /// How the objectives of queries are split.
    pub(super) splits: Vec<NamedSplit>,
    /// Queries that no split can serve.
    pub(super) unsplit: Vec<Unsplit>,
}

/// How the objective of a query is split: over demands that follow one another.
#[derive(Clone, Debug)]
pub(super) struct NamedSplit {
    pub(super) name: String,
    pub(super) slo: Span,
    /// The place of the first node among the demands.
    pub(super) first: usize,
    /// By node.
    pub(super) models: Vec<String>,
}

/// A query whose objective is too short.
#[derive(Clone, Debug)]
pub(super) struct Unsplit {
    pub(super) name: String,
    pub(super) slo: Span,
    pub(super) slo_min: Span,
}

impl Case {
    /// The same with as many GPUs as it takes.
    pub(super) fn without_limits(&self) -> Self {
        let mut case = self.clone();
        case.problem.limit = None;
        case.problem.kinds.iter_mut().for_each(|kind| kind.limit = None);
        case
    }

    /// Whether this number of GPUs is allowed.
    pub(super) fn allows(&self, plan: &Plan) -> bool {
        let within = |gpus: usize, limit: Option<usize>| limit.is_none_or(|limit| gpus <= limit);
        let kinds = self.problem.kinds.iter().enumerate();
        within(plan.gpus(), self.problem.limit)
            && kinds.into_iter().all(|(at, kind)| within(gpus_of(plan, at), kind.limit))
    }

    /// Tries a plan in the simulator, and gives its pools the GPUs that they turn out to need.
    pub(super) fn confirm(&self, plan: &mut Plan, trial: Trial, progress: &Progress) -> Confirmed {
        let demands = Demands {
            problem: &self.problem,
            rules: &self.rules,
            traits: &self.traits,
            arrivals: &self.arrivals,
            policy: self.policy,
            gpus_max: GPUS_MAX,
        };
        progress.expect(plan.pools.len());
        confirm(&demands, plan, trial, || progress.finish_one())
    }
}

/// What is known of a model, by its latencies on each kind of GPU, on the shares into which GPUs
/// are cut.
pub(super) fn traits_of(latencies: &[Option<Latency>]) -> Traits {
    let splits = Rules::default().splits;
    let shares: BTreeSet<u32> = splits.iter().flat_map(|&split| [split, 100 - split]).collect();
    let (mut usage, mut measured) = (None, Vec::new());
    for (kind, latency) in latencies.iter().enumerate() {
        let Some(Latency::Shares(of)) = latency else { continue };
        usage = usage.or(of.measured.usage);
        let on_share =
            |&percent: &u32| Measured { kind, percent, profile: of.measured.on_share(percent) };
        measured.extend(shares.iter().map(on_share));
    }
    Traits { usage: usage.unwrap_or_default(), measured }
}

/// How many GPUs of a kind a plan has.
pub(super) fn gpus_of(plan: &Plan, kind: usize) -> usize {
    let pools = plan.pools.iter().filter(|pool| pool.kind == kind);
    pools.flat_map(|pool| &pool.gpus).collect::<BTreeSet<_>>().len()
}

pub(super) fn scaled(span: Span, factor: f64) -> Span {
    if factor == 1.0 { span } else { Span::from_ms(span.as_ms() * factor) }
}

pub(super) fn rate_of(arrivals: &Arrivals) -> f64 {
    match arrivals {
        Arrivals::Process(_, rate) | Arrivals::Table(_, rate) => rate.at(Time::START),
        Arrivals::Recorded(..) => unreachable!("a file of demands has no recorded moments"),
    }
}
