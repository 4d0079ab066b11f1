//! A plan in the words of its file, for machines: the JSON of `fermata plan --json`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

use fermata_core::Span;
use fermata_plan::{Infeasible, Method, Reason};
use fermata_sim::BAD_MAX;
use fermata_sim::confirm::{Confirmed, Tried};
use serde::Serialize;

use super::case::{Case, NamedSplit, Unsplit, gpus_of};
use super::keys::MEGABYTE;
use super::moves::Moves;
use super::{Made, Previous, method};

/// A plan, told.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) method: &'static str,
    pub(super) gpus: usize,
    /// No plan by this method has fewer; zero, if nothing is known.
    pub(super) lower_bound: usize,
    /// An hour; null, where there are no prices.
    pub(super) cost: Option<f64>,
    /// Those that are used.
    pub(super) kinds: Vec<KindReport>,
    pub(super) pools: Vec<PoolReport>,
    pub(super) infeasible: Vec<InfeasibleReport>,
    /// Only where there are queries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) queries: Vec<QueryReport>,
    /// Only where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confirmed: Option<ConfirmedReport>,
    /// Only with a previous plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) moves: Option<MovesReport>,
    #[serde(skip)]
    pub(super) demands: usize,
    /// Requests a second, of all demands.
    #[serde(skip)]
    pub(super) rate: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct KindReport {
    pub(super) name: String,
    pub(super) gpus: usize,
    /// Of one, an hour.
    pub(super) price: Option<f64>,
    pub(super) cost: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PoolReport {
    pub(super) kind: String,
    pub(super) gpus: Vec<usize>,
    /// In percent of a GPU.
    pub(super) share: u32,
    /// Null, where dispatch decides.
    pub(super) round_ms: Option<f64>,
    pub(super) members: Vec<MemberReport>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct MemberReport {
    pub(super) model: String,
    pub(super) rate: f64,
    pub(super) batch: usize,
    pub(super) occupancy: f64,
    /// At most, if all goes as planned.
    pub(super) latency_ms: f64,
    pub(super) slo_ms: f64,
    /// Only where it was tried.
    #[serde(flatten)]
    pub(super) seen: Option<SeenReport>,
    /// Its place in the list of demands.
    #[serde(skip)]
    pub(super) demand: usize,
}

/// What happened when it was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct SeenReport {
    /// With each seed.
    pub(super) bad_rates: [f64; 2],
    pub(super) p99_ms: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct InfeasibleReport {
    pub(super) model: String,
    /// A word for machines.
    pub(super) reason: &'static str,
    /// What would make it feasible, by the key that would have to change.
    pub(super) needs: BTreeMap<&'static str, f64>,
    /// The same in a sentence.
    pub(super) text: String,
}

/// How the objective of a query is split.
#[derive(Clone, Debug, Serialize)]
pub(super) struct QueryReport {
    pub(super) name: String,
    pub(super) slo_ms: f64,
    pub(super) nodes: Vec<NodeReport>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct NodeReport {
    pub(super) model: String,
    pub(super) slo_ms: f64,
    pub(super) rate: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ConfirmedReport {
    /// Whether every model of every pool has 99 % of its requests in time, with both seeds.
    pub(super) in_time: bool,
    pub(super) policy: String,
    pub(super) seeds: [u64; 2],
    /// The highest bad rate of any model in any pool, with each seed.
    pub(super) worst_bad_rates: [f64; 2],
    /// How many GPUs were estimated before.
    pub(super) estimate: usize,
    /// Of all pools, with one seed.
    pub(super) requests: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct MovesReport {
    pub(super) gpus_before: usize,
    pub(super) gpus_added: usize,
    pub(super) gpus_released: usize,
    /// By model: on how many GPUs it has to be loaded.
    pub(super) loads: BTreeMap<String, usize>,
    /// By model: on how many GPUs it is unloaded.
    pub(super) unloads: BTreeMap<String, usize>,
    /// What the previous plan has and the file has not.
    pub(super) ignored: Vec<String>,
    #[serde(skip)]
    pub(super) is_empty: bool,
}

impl Report {
    pub(super) fn new(
        case: &Case,
        method: Method,
        made: &Made,
        previous: Option<&Previous>,
        seed: u64,
    ) -> Self {
        let Made { plan, confirmed } = made;
        let kinds = kinds(case, made);
        let named = |(at, pool): (usize, &fermata_plan::Pool)| PoolReport {
            kind: case.kinds[pool.kind].clone(),
            gpus: pool.gpus.clone(),
            share: pool.share,
            round_ms: pool.round.map(Span::as_ms),
            members: members(case, pool, confirmed.as_ref().map(|all| &all.pools[at])),
        };
        Self {
            method: method::name(method),
            gpus: plan.gpus(),
            lower_bound: plan.lower_bound,
            // An empty sum of floats would be a negative zero.
            cost: case
                .priced
                .then(|| kinds.iter().filter_map(|kind| kind.cost).fold(0.0, Add::add)),
            kinds,
            pools: plan.pools.iter().enumerate().map(named).collect(),
            infeasible: plan
                .infeasible
                .iter()
                .map(|each| infeasible(case, method, each))
                .chain(case.unsplit.iter().map(unsplit))
                .collect(),
            queries: case.splits.iter().map(|split| query_report(case, split)).collect(),
            confirmed: confirmed.as_ref().map(|confirmed| confirmed_report(case, confirmed, seed)),
            moves: previous.map(|previous| moves_report(case, made, previous)),
            demands: case.names.len() + case.unsplit.len(),
            rate: case.problem.demands.iter().map(|demand| demand.rate).sum(),
        }
    }

    /// What of all that was asked for is not met, if anything.
    pub(super) fn shortfall(&self) -> Option<String> {
        let late = |seen: &SeenReport| seen.bad_rates.iter().any(|&bad| bad > BAD_MAX);
        let members = self.pools.iter().flat_map(|pool| &pool.members);
        let late = members.filter(|member| member.seen.as_ref().is_some_and(late));
        let late: BTreeSet<usize> = late.map(|member| member.demand).collect();
        let unmet = match self.infeasible.len() {
            0 => None,
            unmet => Some(format!("{unmet} of {} demands cannot be met", self.demands)),
        };
        let late = match late.len() {
            0 => None,
            late => Some(format!("{late} of {} demands are late too often", self.demands)),
        };
        let parts: Vec<String> = unmet.into_iter().chain(late).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

fn kinds(case: &Case, made: &Made) -> Vec<KindReport> {
    let used = |(at, name): (usize, &String)| {
        let gpus = gpus_of(&made.plan, at);
        let price = case.priced.then_some(case.problem.kinds[at].price);
        let cost = price.map(|price| price * gpus as f64);
        (gpus > 0).then(|| KindReport { name: name.clone(), gpus, price, cost })
    };
    case.kinds.iter().enumerate().filter_map(used).collect()
}

fn members(case: &Case, pool: &fermata_plan::Pool, tried: Option<&Tried>) -> Vec<MemberReport> {
    let told = |(at, member): (usize, &fermata_plan::Member)| {
        let seen = tried.map(|tried| tried.members[at]);
        let latency_ms = member.latency.as_ms();
        MemberReport {
            model: case.names[member.demand].clone(),
            rate: member.rate,
            batch: member.batch,
            occupancy: member.occupancy,
            latency_ms,
            slo_ms: case.problem.demands[member.demand].slo.as_ms(),
            seen: seen
                .map(|seen| SeenReport { bad_rates: seen.bad_rates, p99_ms: seen.p99.as_ms() }),
            demand: member.demand,
        }
    };
    pool.members.iter().enumerate().map(told).collect()
}

fn query_report(case: &Case, split: &NamedSplit) -> QueryReport {
    let node = |(at, model): (usize, &String)| {
        let demand = &case.problem.demands[split.first + at];
        NodeReport { model: model.clone(), slo_ms: demand.slo.as_ms(), rate: demand.rate }
    };
    QueryReport {
        name: split.name.clone(),
        slo_ms: split.slo.as_ms(),
        nodes: split.models.iter().enumerate().map(node).collect(),
    }
}

/// A query whose objective is shorter than its models take one after the other.
fn unsplit(query: &Unsplit) -> InfeasibleReport {
    let slo_min = rounded_up(query.slo_min);
    let text = format!(
        "slo_ms {} is below the {slo_min} ms that its models may take together: give at least \
         {slo_min}",
        query.slo.as_ms()
    );
    let needs = BTreeMap::from([("slo_ms", slo_min)]);
    InfeasibleReport { model: query.name.clone(), reason: "slo_too_short", needs, text }
}

/// Milliseconds to the next microsecond above, so that what is told is enough.
fn rounded_up(span: Span) -> f64 {
    (span.as_ms() * 1e3).ceil() / 1e3
}

fn confirmed_report(case: &Case, confirmed: &Confirmed, seed: u64) -> ConfirmedReport {
    ConfirmedReport {
        in_time: confirmed.is_good(),
        policy: case.policy.to_string(),
        seeds: [seed, seed.wrapping_add(1)],
        worst_bad_rates: confirmed.worst(),
        estimate: confirmed.estimate,
        requests: confirmed.pools.iter().map(|pool| pool.requests).sum(),
    }
}

fn moves_report(case: &Case, made: &Made, previous: &Previous) -> MovesReport {
    let moves = Moves::between(&previous.plan, &made.plan);
    let by_name = |counts: &BTreeMap<usize, usize>| {
        counts.iter().map(|(&demand, &count)| (case.names[demand].clone(), count)).collect()
    };
    MovesReport {
        gpus_before: previous.plan.gpus(),
        gpus_added: moves.added,
        gpus_released: moves.released,
        loads: by_name(&moves.loads),
        unloads: by_name(&moves.unloads),
        ignored: previous.unknown.clone(),
        is_empty: moves.is_empty(),
    }
}

/// Why a demand is not met, and what would make it feasible.
fn infeasible(case: &Case, method: Method, each: &Infeasible) -> InfeasibleReport {
    let asked = &case.problem.demands[each.demand];
    let mb = |bytes: u64| (bytes as f64 / MEGABYTE).ceil();
    let (reason, needs, text) = match each.reason {
        Reason::NoProfile => (
            "no_profile",
            BTreeMap::new(),
            "runs on no kind of GPU: give its latencies on one".to_owned(),
        ),
        Reason::TooTight { slo_min } => {
            let slo_min = rounded_up(slo_min);
            let alone = asked.profiles.iter().flatten().map(|profile| profile.shortest()).min();
            let takes = match method {
                Method::Pools => "a request alone takes",
                _ => "a request may take that just misses a round",
            };
            let other = match alone {
                Some(alone) if method != Method::Pools && alone <= asked.slo => {
                    ", or use --method pools"
                }
                _ => "",
            };
            let text = format!(
                "slo_ms {} is below the {slo_min} ms that {takes}: give at least {slo_min}{other}",
                asked.slo.as_ms()
            );
            ("slo_too_short", BTreeMap::from([("slo_ms", slo_min)]), text)
        }
        Reason::TooLarge { memory, most } => {
            let (memory, most) = (mb(memory), mb(most));
            let text = format!(
                "needs {memory} MB, and the largest GPU that runs it has {most}: \
                 give a GPU of at least {memory} MB"
            );
            ("too_large", BTreeMap::from([("memory_mb", memory)]), text)
        }
        Reason::NoGpu { served, gpus } => {
            let part = match served > 0.0 {
                true => format!("{:.1} of {:.1} requests a second are served", served, asked.rate),
                false => "no GPU is left for it".to_owned(),
            };
            match gpus {
                0 => ("no_gpu", BTreeMap::new(), format!("{part}: allow more GPUs")),
                gpus => (
                    "no_gpu",
                    BTreeMap::from([("gpus", gpus as f64)]),
                    format!("{part}: all demands together need {gpus} GPUs"),
                ),
            }
        }
    };
    InfeasibleReport { model: case.names[each.demand].clone(), reason, needs, text }
}

/// The report as JSON.
pub(super) fn json(report: &Report) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}
