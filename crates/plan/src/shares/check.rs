//! Whether a plan with shares holds: every promise recomputed from the problem, by nothing that the
//! planners use but the latency model.

use fermata_core::Span;

use super::latency::stretched;
use super::{Rules, Traits};
use crate::plan::{Plan, Pool};
use crate::problem::Problem;

/// What is wrong with a plan. Pools and demands by their places.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// There are more GPUs than allowed.
    TooMany {
        /// So many.
        gpus: usize,
    },
    /// The shares of a GPU are more than the whole.
    Crowded {
        /// Which one.
        gpu: usize,
    },
    /// The models of a GPU do not fit into its memory.
    Memory {
        /// Which one.
        gpu: usize,
    },
    /// Batches that are smaller than what comes in a round, or that take longer than it; or no
    /// round at all.
    Behind {
        /// Which pool.
        pool: usize,
    },
    /// A member that may be answered too late.
    Late {
        /// Which pool.
        pool: usize,
        /// Which demand.
        demand: usize,
    },
    /// A demand that is not served, and not said to be infeasible.
    Unserved {
        /// Which one.
        demand: usize,
    },
}

/// The first fault of a plan; `None` if it holds.
pub fn check(problem: &Problem, rules: &Rules, traits: &[Traits], plan: &Plan) -> Option<Fault> {
    let gpus = plan.gpus();
    if problem.limit.is_some_and(|limit| gpus > limit) {
        return Some(Fault::TooMany { gpus });
    }
    let on_gpus = (0..gpus).find_map(|gpu| check_gpu(problem, rules, plan, gpu));
    let pools =
        || (0..plan.pools.len()).find_map(|at| check_pool(problem, rules, traits, plan, at));
    let served = || {
        let unserved = |&demand: &usize| {
            let wanted = problem.demands[demand].rate - rules.left_over;
            plan.served(demand) < wanted * (1.0 - TOLERANCE)
                && !plan.infeasible.iter().any(|known| known.demand == demand)
        };
        (0..problem.demands.len()).find(unserved).map(|demand| Fault::Unserved { demand })
    };
    on_gpus.or_else(pools).or_else(served)
}

/// For rounding errors.
const TOLERANCE: f64 = 1e-6;

fn check_gpu(problem: &Problem, rules: &Rules, plan: &Plan, gpu: usize) -> Option<Fault> {
    let pools: Vec<&Pool> = plan.pools.iter().filter(|pool| pool.gpus.contains(&gpu)).collect();
    if pools.iter().map(|pool| pool.share).sum::<u32>() > 100 {
        return Some(Fault::Crowded { gpu });
    }
    let bytes = |pool: &&Pool| {
        let demands = || pool.members.iter().map(|member| &problem.demands[member.demand]);
        let workspace = demands().map(|demand| demand.workspace).max().unwrap_or(0);
        let weights = demands().fold(workspace, |sum, demand| sum.saturating_add(demand.memory));
        weights.saturating_add(rules.overhead)
    };
    let memory = pools.iter().map(|pool| problem.kinds[pool.kind].memory).min().unwrap_or(u64::MAX);
    let used = pools.iter().map(bytes).fold(0, u64::saturating_add);
    (used > memory).then_some(Fault::Memory { gpu })
}

fn check_pool(
    problem: &Problem,
    rules: &Rules,
    traits: &[Traits],
    plan: &Plan,
    at: usize,
) -> Option<Fault> {
    let pool = &plan.pools[at];
    let Some(round) = pool.round else { return Some(Fault::Behind { pool: at }) };
    let usage = |demand: usize, share| {
        traits.get(demand).cloned().unwrap_or_default().usage.on_share(share)
    };
    let beside = plan.pools.iter().enumerate().filter(|(other, neighbour)| {
        *other != at && neighbour.gpus.iter().any(|gpu| pool.gpus.contains(gpu))
    });
    let neighbours: Vec<_> = beside
        .flat_map(|(_, other)| other.members.iter().map(|member| usage(member.demand, other.share)))
        .collect();
    let (mut sum, unknown) = (Span::ZERO, Traits::default());
    for member in &pool.members {
        let demand = &problem.demands[member.demand];
        let own = usage(member.demand, pool.share);
        let factors = neighbours.iter().map(|&other| rules.coefficients.factor(own, other));
        // A billionth less, so that a different order of additions is no fault.
        let factor = factors.fold(1.0, f64::max) * rules.margin * (1.0 - 1e-9);
        let Some(whole) = &demand.profiles[pool.kind] else {
            return Some(Fault::Late { pool: at, demand: member.demand });
        };
        let known = traits.get(member.demand).unwrap_or(&unknown);
        let profile = known.on_share(pool.kind, whole, pool.share, rules.batch);
        let latency = stretched(&profile, factor, rules.batch).latency(member.batch);
        let gathered = member.rate / pool.gpus.len().max(1) as f64 * round.as_secs();
        if gathered > member.batch as f64 + 2.0 * TOLERANCE {
            return Some(Fault::Behind { pool: at });
        }
        if round + latency > demand.slo {
            return Some(Fault::Late { pool: at, demand: member.demand });
        }
        sum += latency;
    }
    (sum > round).then_some(Fault::Behind { pool: at })
}
