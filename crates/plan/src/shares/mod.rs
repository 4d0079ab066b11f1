//! Shares of GPUs (gpulet): a GPU is whole, or split in two shares that run side by side, and
//! models take turns on each.
//!
//! - `latency.rs`, `grid.rs`, `interference.rs`: how long batches take on a share, reckoned or
//!   measured, and beside a neighbour.
//! - `scene.rs`: what fits on a share; `board.rs`: GPUs while they are filled.
//! - `elastic.rs`: gpulet's two algorithms and its "ideal"; `baselines.rs`: what it is compared
//!   with.
//! - `subsets/`: a dynamic program that schedules more; `best.rs`: it with everything else, for any
//!   number of demands.
//! - `check.rs`: whether a plan holds.

mod baselines;
mod best;
mod board;
mod check;
mod elastic;
mod grid;
mod interference;
mod latency;
mod scene;
mod subsets;

use fermata_core::{Profile, Span};

use crate::plan::{Infeasible, Plan, Reason};
use crate::problem::{Demand, Problem};
pub use baselines::{best_fit, squishy};
pub use best::schedule;
pub use board::Board;
pub use check::{Fault, check};
pub use elastic::{elastic as elastic_partitioning, ideal};
pub use grid::{Grid, GridError};
pub use interference::{
    Coefficients, Sample, Usage, error_quantiles, fit, least_squares, quantiles,
};
pub use latency::{fixed_part, on_share, stretched};
pub use scene::Scene;
pub use subsets::search;

/// What GPUs may be split into, and with which care. The defaults are those of gpulet's text and
/// prototype, where they say something about GPUs, and exact where the prototype has some slack.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The smaller or the larger share of each way to split a GPU in two, in percent.
    pub splits: Vec<u32>,
    /// How many models may take turns on a share. Squishy packing has no such limit, and `best`
    /// tries that too.
    pub models: usize,
    /// The largest batch. The prototype has 32.
    pub batch: usize,
    /// A larger share pays for elastic partitioning if it serves at least so many times as much.
    pub knee: f64,
    /// Latencies are multiplied by this. The prototype has 1.1.
    pub margin: f64,
    /// Requests a second of each demand that need not be served. The prototype has 15.
    pub left_over: f64,
    /// Bytes that each share in use takes for itself. The prototype has 1,230 MB.
    pub overhead: u64,
    /// What neighbours do to each other.
    pub coefficients: Coefficients,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            splits: vec![20, 40, 50],
            models: 3,
            batch: usize::MAX,
            knee: 1.05,
            margin: 1.0,
            left_over: 0.0,
            overhead: 0,
            coefficients: Coefficients::default(),
        }
    }
}

/// What is known of a demand beside its profile on a whole GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traits {
    /// Of what neighbours share.
    pub usage: Usage,
    /// Profiles that were measured on shares; the model of `on_share` is used for the others.
    pub measured: Vec<Measured>,
}

/// A profile that was measured on a share.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Of which kind of GPU, by its place in the problem.
    pub kind: usize,
    /// How much of it.
    pub percent: u32,
    /// How long batches take there.
    pub profile: Profile,
}

impl Traits {
    /// The profile on a share, as it was measured, or from that of a whole GPU.
    pub fn on_share(
        &self,
        kind: usize,
        whole: &Profile,
        percent: u32,
        batch_max: usize,
    ) -> Profile {
        let here = |each: &&Measured| each.kind == kind && each.percent == percent && percent < 100;
        match self.measured.iter().find(here) {
            Some(measured) => measured.profile.clone(),
            None => on_share(whole, percent, batch_max),
        }
    }
}

/// A plan by elastic partitioning, with as few GPUs as it finds (gpulet, algorithms 1 and 2). What
/// is known of each demand is by its place; nothing is known of those that are missing.
pub fn elastic(problem: &Problem, rules: &Rules, traits: &[Traits]) -> Plan {
    plan(problem, rules, traits, best::elastic_fewest)
}

/// The plan with the fewest GPUs that is found (`best.rs`).
pub fn best(problem: &Problem, rules: &Rules, traits: &[Traits]) -> Plan {
    plan(problem, rules, traits, best::best)
}

/// The scene of a problem on GPUs of its first kind: demands that could not be met even alone are
/// not in it, nor are those without requests.
pub fn scene(problem: &Problem, rules: &Rules, traits: &[Traits]) -> Scene {
    let placed = |&demand: &usize| {
        let asked = &problem.demands[demand];
        asked.rate > 0.0 && refusal(asked, problem, 0, rules).is_none()
    };
    let demands: Vec<usize> = (0..problem.demands.len()).filter(placed).collect();
    Scene::new(problem, 0, &demands, rules, traits)
}

/// A board of a scene as a plan.
pub fn plan_of(scene: &Scene, board: &Board) -> Plan {
    let pools = board.pools(scene, 0, 0);
    let infeasible = unserved(scene, board, 0);
    Plan { pools, lower_bound: scene.lower_bound(), infeasible }
}

/// What a planner found for the demands on one kind.
struct Found {
    board: Board,
    /// How many GPUs would serve all demands; zero if it is not known.
    enough: usize,
}

/// Each demand goes to the kind on which it is cheapest, if GPUs were a fluid; each kind is planned
/// for itself.
fn plan(
    problem: &Problem,
    rules: &Rules,
    traits: &[Traits],
    solve: impl Fn(&Scene, usize) -> Found,
) -> Plan {
    let mut plan = Plan::default();
    let mut chosen: Vec<Vec<usize>> = vec![Vec::new(); problem.kinds.len()];
    let mut least_load = 0.0;
    for (demand, asked) in problem.demands.iter().enumerate().filter(|(_, asked)| asked.rate > 0.0)
    {
        let mut cheapest: Option<(f64, usize)> = None;
        let mut lightest = f64::INFINITY;
        let mut reason: Option<Reason> = None;
        for (kind, offered) in problem.kinds.iter().enumerate() {
            if let Some(refused) = refusal(asked, problem, kind, rules) {
                reason = Some(kinder(reason, refused));
                continue;
            }
            let load = Scene::new(problem, kind, &[demand], rules, traits).load();
            lightest = lightest.min(load);
            if cheapest.is_none_or(|(cost, _)| load * offered.price < cost) {
                cheapest = Some((load * offered.price, kind));
            }
        }
        match cheapest {
            Some((_, kind)) => {
                chosen[kind].push(demand);
                least_load += lightest;
            }
            None => {
                let reason = reason.unwrap_or(Reason::NoProfile);
                plan.infeasible.push(Infeasible { demand, reason });
            }
        }
    }
    for (kind, demands) in chosen.iter().enumerate().filter(|(_, demands)| !demands.is_empty()) {
        let scene = Scene::new(problem, kind, demands, rules, traits);
        let first = plan.gpus();
        let left = problem.limit.map_or(usize::MAX, |limit| limit - first);
        let limit = problem.kinds[kind].limit.unwrap_or(usize::MAX).min(left);
        let Found { board, enough } = best::beside_full_ones(&scene, limit, &solve);
        plan.pools.extend(board.pools(&scene, kind, first));
        plan.infeasible.extend(unserved(&scene, &board, enough));
    }
    plan.lower_bound = (least_load - 1e-9_f64).ceil().max(0.0) as usize;
    plan.infeasible.sort_by_key(|infeasible| infeasible.demand);
    plan
}

/// Why a demand cannot be met by any number of GPUs of a kind.
fn refusal(demand: &Demand, problem: &Problem, kind: usize, rules: &Rules) -> Option<Reason> {
    let Some(profile) = &demand.profiles[kind] else { return Some(Reason::NoProfile) };
    // Who just misses a round waits for all of it.
    let alone = latency::stretch(profile.shortest(), rules.margin);
    let slo_min = Span(alone.0.saturating_mul(2));
    if slo_min > demand.slo {
        return Some(Reason::TooTight { slo_min });
    }
    let memory = demand.memory.saturating_add(demand.workspace).saturating_add(rules.overhead);
    let most = problem.kinds[kind].memory;
    (memory > most).then_some(Reason::TooLarge { memory, most })
}

/// Of two reasons on two kinds, the one that is easier to mend.
fn kinder(known: Option<Reason>, other: Reason) -> Reason {
    match (known, other) {
        (Some(Reason::TooTight { slo_min: a }), Reason::TooTight { slo_min: b }) => {
            Reason::TooTight { slo_min: a.min(b) }
        }
        (Some(Reason::TooLarge { memory, most: a }), Reason::TooLarge { most: b, .. }) => {
            Reason::TooLarge { memory, most: a.max(b) }
        }
        (Some(known), Reason::NoProfile) => known,
        (_, other) => other,
    }
}

/// The demands that a board does not serve wholly.
fn unserved(scene: &Scene, board: &Board, gpus: usize) -> Vec<Infeasible> {
    let served = board.served(scene);
    let short =
        scene.items.iter().zip(served).filter(|(item, served)| *served < item.rate * (1.0 - 1e-9));
    short
        .map(|(item, served)| Infeasible {
            demand: item.demand,
            reason: Reason::NoGpu { served, gpus },
        })
        .collect()
}
