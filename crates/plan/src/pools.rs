//! How many GPUs a pool needs, in which dispatch may send any model to any of them.
//!
//! In staggered execution a batch is as large as its first request can wait for the last one, and
//! the executors are never idle (Symphony 3.3). Random arrivals need more: bursts of one model take
//! what others leave, so the more executors there are, the less each needs to spare, about as the
//! square root of their number. The estimate says so; the simulator has the last word.

use fermata_core::{Profile, Span, Table};

use crate::plan::{Member, Plan, Pool};
use crate::problem::{Demand, Problem};
use crate::subclusters::{Before, Item, Limits, partition};

/// What a burst takes beyond the mean, in executors, at a mean of one; grows with the square root
/// of the mean. With this, the estimates for both zoos and for twenty equal models, at a tenth to
/// five times the load of the examples, were at most one above or below what the simulator found,
/// two in two cases of 42.
const BURST: f64 = 0.1;

/// The largest batch whose first request can wait for its last; at least one.
///
/// Dispatch aims at a batch that gathers in `b / rate`, which is Symphony's equation 1: a request
/// that just misses a batch waits for the whole of the next one. No dispatcher can do better than
/// with regular arrivals, of which the first waits for `(b - 1) / rate`: that is the bound that
/// planning needs.
pub fn staggered_batch(profile: &Table, slo: Span, rate: f64) -> usize {
    if rate <= 0.0 {
        return 1;
    }
    // The first request has no gap before it.
    profile.gathered_within(slo + Span::from_secs(1.0 / rate), rate * 1e-9).max(1)
}

/// How many executors a rate keeps busy in staggered execution.
pub fn staggered_load(profile: &Profile, slo: Span, rate: f64) -> f64 {
    rate * profile.cost(staggered_batch(profile, slo, rate)) / 1e9
}

/// No dispatcher serves a rate with less than this, in executors: every batch as large as the
/// objective allows at all.
pub fn least_load(profile: &Profile, slo: Span, rate: f64) -> f64 {
    match profile.largest_within(slo) {
        0 => f64::INFINITY,
        batch => rate * profile.cost(batch) / 1e9,
    }
}

/// How many executors a pool is likely to need for a load that keeps so many busy.
pub fn executors_for(load: f64) -> usize {
    ((load + BURST * load.sqrt()).ceil() as usize).max(1)
}

/// A demand in a pool of so many executors, as it is likely to be served.
pub(crate) fn member(place: usize, demand: &Demand, kind: usize, executors: usize) -> Member {
    let profile = demand.profiles[kind].as_ref().expect("the demand runs on this kind");
    let batch = staggered_batch(profile, demand.slo, demand.rate);
    let load = staggered_load(profile, demand.slo, demand.rate);
    let wait = Span::from_secs((batch - 1) as f64 / demand.rate.max(f64::MIN_POSITIVE));
    Member {
        demand: place,
        rate: demand.rate,
        batch,
        occupancy: load / executors as f64,
        latency: (profile.latency(batch) + wait).min(demand.slo),
    }
}

/// The demands of a kind in as few pools as its memory allows, alike in load; few of them are in
/// another pool than before.
pub(crate) fn divide(
    problem: &Problem,
    kind: usize,
    demands: &[usize],
    previous: Option<&Plan>,
) -> Vec<Vec<usize>> {
    let item = |&at: &usize| {
        let demand = &problem.demands[at];
        let profile = demand.profiles[kind].as_ref().expect("the demand runs on this kind");
        let load = staggered_load(profile, demand.slo, demand.rate);
        Item { load, memory: demand.memory, workspace: demand.workspace }
    };
    let items: Vec<Item> = demands.iter().map(item).collect();
    let memory = problem.kinds[kind].memory;
    let total = items.iter().fold(0u64, |sum, item| sum.saturating_add(item.memory));
    let fewest = total.div_ceil(memory.max(1)).clamp(1, items.len().max(1) as u64) as usize;
    let former = previous.map(|plan| former_pools(plan, kind, demands));
    let moves = (MOVED_MAX * items.len() as f64).ceil() as usize;
    let before = former.as_ref().map(|clusters| Before { clusters, moves });
    let limits = Limits { memory, ..Limits::NONE };
    let parted = (fewest..=items.len())
        .find_map(|pools| Some((pools, partition(&items, pools, limits, before).ok()?)));
    let (pools, pool_of) = parted.expect("every demand fits into a pool of its own");
    let mut parts = vec![Vec::new(); pools];
    for (&demand, pool) in demands.iter().zip(pool_of) {
        parts[pool].push(demand);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Of the demands that need not change their pool, at most this part does.
const MOVED_MAX: f64 = 0.05;

/// The pool of each demand in a plan, among those of this kind over which dispatch decides.
fn former_pools(plan: &Plan, kind: usize, demands: &[usize]) -> Vec<Option<usize>> {
    let pools: Vec<&Pool> =
        plan.pools.iter().filter(|pool| pool.kind == kind && pool.round.is_none()).collect();
    let holds = |pool: &Pool, demand| pool.members.iter().any(|member| member.demand == demand);
    demands.iter().map(|&demand| pools.iter().position(|pool| holds(pool, demand))).collect()
}
