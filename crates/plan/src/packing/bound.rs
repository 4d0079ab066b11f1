//! How few GPUs could be enough at the best.

use super::best_fit::best_fit;
use super::columns::{Effort, Items};
use super::occupancy::occupancy;
use super::simplex::{Covering, Entries};
use super::{Packer, Set};

/// Whatever sets there are, the members of each take at most one GPU together, and each at least
/// its least share.
pub fn fluid_bound(packer: &Packer<'_>) -> usize {
    let shares = packer.sessions.iter().map(|session| occupancy(&session.turn)).sum::<f64>();
    // Rates are counted in whole requests with a little tolerance, so the sum may be a little too
    // high.
    (shares * (1.0 - 1e-5)).ceil() as usize
}

/// The value of the configuration program, which takes fractions of sets: no packing has fewer
/// sets. It need not be whole. `None`, if it would take too long.
///
/// With more than a few hundred sessions, the prices of the sessions of a model are taken to be
/// piecewise linear in their rates, between as many `knots`. The best of such prices bound the
/// program, and so the packings, from below; the more knots, the less is lost.
pub fn configuration_bound(packer: &Packer<'_>, knots: Option<usize>) -> Option<f64> {
    let items = Items::single(packer.sessions.len());
    let worth = if knots.is_some() { ROUGH } else { FINE };
    let mut effort = Effort { steps: STEPS_MAX, enough: ENOUGH, worth, first: 0 };
    let mut sets: Vec<Set> = best_fit(packer);
    let mut bound = None;
    // Few knots and a part of the sessions find most of the sets that all of them need, and find
    // them sooner.
    let stages = match knots {
        None => vec![(None, 1)],
        Some(knots) => vec![(Some(knots / 2), 16), (Some(knots), 4), (Some(knots), 1)],
    };
    for (knots, every) in stages {
        let knots = Knots::new(packer, knots);
        // More than any session costs, so that the first columns are left in the end.
        let mut covering = Covering::new(&knots.needs, 2.0);
        for set in &sets {
            covering.add(1.0, knots.entries(set));
        }
        bound = loop {
            covering.solve();
            let at_knots = covering.prices();
            let price = |parts: &Entries| {
                parts.iter().map(|&(knot, part)| at_knots[knot] * part).sum::<f64>()
            };
            let asked = |at: usize| at.is_multiple_of(every);
            let weights = knots.weights.iter().enumerate();
            let prices: Vec<f64> =
                weights.map(|(at, parts)| if asked(at) { price(parts) } else { 0.0 }).collect();
            let found = items.price(packer, &prices, &mut effort);
            if found.sets.is_empty() {
                // Prices by which no set is worth more than `most` bound the sets from below
                // (Farley).
                break found.most.map(|most| prices.iter().sum::<f64>() / most);
            }
            for set in found.sets {
                covering.add(1.0, knots.entries(&set));
                sets.push(set);
            }
        };
    }
    bound
}

/// How many additions to sets are tried before it is given up: some minutes.
const STEPS_MAX: usize = 2_000_000_000;
/// One pricing ends with so many sets.
const ENOUGH: usize = 500;
/// Sets that are worth less than this more than a GPU are passed over, and the bound is as much
/// lower. Thousands of sessions have so many nearly worthy sets that looking at all of them would
/// take hours.
const ROUGH: f64 = 2.5e-3;
const FINE: f64 = 1e-6;

/// How prices of sessions hang on prices at some rates of each model.
struct Knots {
    /// For each session the knots on both sides of it, with its nearness.
    weights: Vec<Entries>,
    /// The sum of weights of each knot.
    needs: Vec<f64>,
}

impl Knots {
    fn new(packer: &Packer<'_>, knots: Option<usize>) -> Self {
        let sessions = packer.sessions.len();
        let Some(knots) = knots.map(|knots| knots.max(2)) else {
            let weights = (0..sessions).map(|at| vec![(at, 1.0)]).collect();
            return Self { weights, needs: vec![1.0; sessions] };
        };
        // Sessions of one model and objective, by rate.
        let mut order: Vec<usize> = (0..sessions).collect();
        let kind = |at: usize| {
            let turn = &packer.sessions[at].turn;
            (
                turn.slo,
                turn.profile.max_batch(),
                turn.profile.shortest(),
                turn.profile.latency(turn.profile.max_batch()),
            )
        };
        let rate = |at: usize| packer.sessions[at].turn.rate;
        order.sort_by(|&a, &b| kind(a).cmp(&kind(b)).then(rate(a).total_cmp(&rate(b))));
        let (mut weights, mut needs) = (vec![Vec::new(); sessions], Vec::new());
        for alike in order.chunk_by(|&a, &b| kind(a) == kind(b)) {
            let first = needs.len();
            let mut rates: Vec<f64> = (0..knots)
                .map(|knot| rate(alike[knot * (alike.len() - 1) / (knots - 1)]))
                .collect();
            rates.dedup();
            needs.resize(first + rates.len(), 0.0);
            for &at in alike {
                let above = rates.partition_point(|&knot| knot < rate(at));
                let parts = match above {
                    0 => vec![(first, 1.0)],
                    above => {
                        let (low, high) = (rates[above - 1], rates[above]);
                        let part = (rate(at) - low) / (high - low);
                        vec![(first + above - 1, 1.0 - part), (first + above, part)]
                    }
                };
                parts.iter().for_each(|&(knot, part)| needs[knot] += part);
                weights[at] = parts;
            }
        }
        Self { weights, needs }
    }

    /// What a set covers of each knot.
    fn entries(&self, set: &Set) -> Entries {
        let mut sums = std::collections::BTreeMap::new();
        for &(knot, part) in set.iter().flat_map(|&at| &self.weights[at]) {
            *sums.entry(knot).or_insert(0.0) += part;
        }
        sums.into_iter().collect()
    }
}
