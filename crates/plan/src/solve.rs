//! From a problem to a plan, by any of the methods.
//!
//! Demands that nothing can serve are named first. Every other goes to the kind of GPU that serves
//! it for the least money, as long as there are enough of that kind (`kinds.rs`); each kind is
//! planned by itself. If that takes more GPUs than there may be, demands are served in the order in
//! which they are listed, as many as fit, and the rest is named.

mod kinds;

use fermata_core::Span;

use crate::packing::{Packer, Repacked, Session, Set, best_fit, exact, repack, saturate, squishy};
use crate::plan::{Infeasible, Member, Plan, Pool, Reason};
use crate::pools;
use crate::problem::Problem;
use crate::shares::{self, Rules, Traits};
use kinds::{Choice, Chosen};

/// How to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As few pools as memory allows, over whose executors dispatch decides.
    Pools,
    /// Rounds on whole GPUs, packed as Nexus does (6.1, algorithm 1).
    Squishy,
    /// Rounds on whole GPUs, packed as well as can be.
    Exact,
    /// Rounds on shares of GPUs, by gpulet's elastic partitioning. It does not heed a previous
    /// plan.
    Elastic,
    /// Rounds on shares of GPUs, on the fewest that are found. It does not heed a previous plan.
    Shares,
}

/// Beyond so many sessions packings are no longer proven to be the best.
const EXACT_MAX: usize = 150;

/// Of the sessions that need not move from a previous plan, at most this part does.
const MOVED_MAX: f64 = 0.05;

/// Plans the problem; with a previous plan, one that is not far from it.
///
/// Plans with shares are made from nothing each time, since a share is cut anew in a millisecond.
pub fn solve(problem: &Problem, method: Method, previous: Option<&Plan>) -> Plan {
    solve_with_shares(problem, method, previous, &Rules::default(), &[])
}

/// The same with what is known of shares: the rules of cutting GPUs, and the traits of each demand,
/// by its place.
pub fn solve_with_shares(
    problem: &Problem,
    method: Method,
    previous: Option<&Plan>,
    rules: &Rules,
    traits: &[Traits],
) -> Plan {
    match method {
        Method::Elastic => shares::elastic(problem, rules, traits),
        Method::Shares => shares::best(problem, rules, traits),
        Method::Pools | Method::Squishy | Method::Exact => on_whole_gpus(problem, method, previous),
    }
}

fn on_whole_gpus(problem: &Problem, method: Method, previous: Option<&Plan>) -> Plan {
    let (choices, mut infeasible) = kinds::choices(problem, method);
    let plan_for = |choices: &[Choice]| {
        let gpus = |demands: &[Chosen]| draft(problem, method, demands, previous).gpus();
        draft(problem, method, &kinds::choose(problem, choices, gpus), previous)
    };
    let whole = plan_for(&choices);
    if is_allowed(problem, &whole) {
        return Plan { infeasible, ..whole };
    }
    // The longest part of the list that can be served.
    let (mut served, mut above) = (0, choices.len());
    let mut best = Plan { lower_bound: 0, ..Plan::default() };
    while above - served > 1 {
        let middle = served.midpoint(above);
        let plan = plan_for(&choices[..middle]);
        if is_allowed(problem, &plan) {
            (served, best) = (middle, plan);
        } else {
            above = middle;
        }
    }
    let gpus = whole.gpus();
    let reason = Reason::NoGpu { served: 0.0, gpus };
    let left = choices[served..].iter();
    infeasible.extend(left.map(|each| Infeasible { demand: each.demand, reason: reason.clone() }));
    infeasible.sort_by_key(|each| each.demand);
    Plan { infeasible, lower_bound: whole.lower_bound, ..best }
}

impl Method {
    /// The shortest objective that can be met if a request alone takes so long: in rounds, who just
    /// misses a batch waits for all of it.
    fn shortest_slo(self, alone: Span) -> Span {
        match self {
            Self::Pools => alone,
            Self::Squishy | Self::Exact | Self::Elastic | Self::Shares => alone * 2,
        }
    }
}

fn is_allowed(problem: &Problem, plan: &Plan) -> bool {
    let of_kind = |kind: usize| -> usize {
        plan.pools.iter().filter(|pool| pool.kind == kind).map(|pool| pool.gpus.len()).sum()
    };
    let kinds = problem.kinds.iter().enumerate();
    problem.limit.is_none_or(|limit| plan.gpus() <= limit)
        && kinds
            .filter_map(|(at, kind)| Some((at, kind.limit?)))
            .all(|(at, limit)| of_kind(at) <= limit)
}

/// A plan for these demands on as many GPUs as it takes.
fn draft(problem: &Problem, method: Method, chosen: &[Chosen], previous: Option<&Plan>) -> Plan {
    let mut plan = Plan::default();
    for kind in 0..problem.kinds.len() {
        let demands: Vec<usize> =
            chosen.iter().filter(|each| each.1 == kind).map(|each| each.0).collect();
        if demands.is_empty() {
            continue;
        }
        let (pools, lower_bound) = match method {
            Method::Pools => pooled(problem, kind, &demands, previous),
            _ => packed(problem, method, kind, &demands, previous),
        };
        let before = plan.gpus();
        plan.lower_bound += lower_bound;
        plan.pools.extend(pools.into_iter().map(|mut pool| {
            pool.gpus.iter_mut().for_each(|gpu| *gpu += before);
            pool
        }));
    }
    plan
}

/// Pools over which dispatch decides, with the fewest GPUs that any dispatch could do with.
fn pooled(
    problem: &Problem,
    kind: usize,
    demands: &[usize],
    previous: Option<&Plan>,
) -> (Vec<Pool>, usize) {
    let profile = |demand: usize| {
        problem.demands[demand].profiles[kind].as_ref().expect("the demand runs on this kind")
    };
    let load = |load: fn(&fermata_core::Profile, Span, f64) -> f64, demand: usize| {
        let asked = &problem.demands[demand];
        load(profile(demand), asked.slo, asked.rate)
    };
    let parts = pools::divide(problem, kind, demands, previous);
    let mut first = 0;
    let pools = parts.into_iter().map(|part| {
        let total: f64 = part.iter().map(|&demand| load(pools::staggered_load, demand)).sum();
        let executors = pools::executors_for(total);
        let member = |&at: &usize| pools::member(at, &problem.demands[at], kind, executors);
        let members = part.iter().map(member).collect();
        let gpus = (first..first + executors).collect();
        first += executors;
        Pool { kind, gpus, share: 100, round: None, members }
    });
    let pools = pools.collect();
    let least: f64 = demands.iter().map(|&demand| load(pools::least_load, demand)).sum();
    // A hundredth of the requests may be lost.
    (pools, ((0.99 * least).ceil() as usize).max(1))
}

/// Rounds on whole GPUs.
fn packed(
    problem: &Problem,
    method: Method,
    kind: usize,
    demands: &[usize],
    previous: Option<&Plan>,
) -> (Vec<Pool>, usize) {
    let session = |&demand: &usize| {
        Session::new(demand, &problem.demands[demand], kind).expect("the demand runs on this kind")
    };
    let sessions: Vec<Session<'_>> = demands.iter().map(session).collect();
    let (saturated, rest) = saturate(&sessions);
    let packer = Packer::new(rest, &problem.kinds[kind]);
    let (sets, bound) = match previous {
        Some(previous) => again(&packer, &former_sets(&packer, previous, kind)),
        None => match method {
            Method::Exact if packer.sessions.len() <= EXACT_MAX => {
                let found = exact(&packer);
                (found.sets, found.lower_bound)
            }
            Method::Exact => (best_fit(&packer), crate::packing::fluid_bound(&packer)),
            _ => (squishy(&packer), crate::packing::fluid_bound(&packer)),
        },
    };
    packer.assert_packed(&sets);
    let mut next = 0;
    let mut take = |count: usize| {
        next += count;
        (next - count..next).collect::<Vec<usize>>()
    };
    let mut pools: Vec<Pool> = Vec::new();
    let mut filled = 0;
    for each in &saturated {
        let asked = &problem.demands[each.demand];
        let profile = asked.profiles[kind].as_ref().expect("the demand runs on this kind");
        let round = profile.latency(each.batch);
        filled += each.gpus;
        pools.push(Pool {
            kind,
            gpus: take(each.gpus),
            share: 100,
            round: Some(round),
            members: vec![Member {
                demand: each.demand,
                rate: each.rate * each.gpus as f64,
                batch: each.batch,
                occupancy: 1.0,
                latency: round * 2,
            }],
        });
    }
    for set in &sets {
        let round = packer.round(set).expect("every set fits");
        let member = |&at: &usize| {
            let Session { demand, turn, .. } = packer.sessions[at];
            let latency = turn.latency(round);
            Member {
                demand,
                rate: turn.rate,
                batch: turn.batch(round),
                occupancy: latency.0 as f64 / round.0 as f64,
                latency: round + latency,
            }
        };
        let members = set.iter().map(member).collect();
        pools.push(Pool { kind, gpus: take(1), share: 100, round: Some(round), members });
    }
    (pools, filled + bound)
}

/// The packing that follows a former one.
fn again(packer: &Packer<'_>, former: &[Set]) -> (Vec<Set>, usize) {
    let moves = (MOVED_MAX * packer.sessions.len() as f64).ceil() as usize;
    let Repacked { mut sets, .. } = repack(packer, former, moves);
    sets.retain(|set| !set.is_empty());
    (sets, crate::packing::fluid_bound(packer))
}

/// Where the sessions were: what fills whole GPUs now is not among them.
fn former_sets(packer: &Packer<'_>, previous: &Plan, kind: usize) -> Vec<Set> {
    let mut place = std::collections::BTreeMap::new();
    for (at, session) in packer.sessions.iter().enumerate() {
        place.insert(session.demand, at);
    }
    // What is left of a demand is listed after the GPUs that it fills, so the last place counts.
    let shared =
        previous.pools.iter().rev().filter(|pool| pool.kind == kind && pool.round.is_some());
    let mut sets: Vec<Set> = shared
        .map(|pool| {
            let members = pool.members.iter();
            let mut set: Set = members.filter_map(|member| place.remove(&member.demand)).collect();
            set.sort_unstable();
            set
        })
        .filter(|set| !set.is_empty())
        .collect();
    sets.reverse();
    sets
}

#[cfg(test)]
mod tests;
