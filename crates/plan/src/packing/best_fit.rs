//! Many sessions: best fit in several orders, each session tried with the shortest round of what is there already.
//!
//! No round is fixed in advance, so a set is refused only if it really does not fit; that alone is worth more than any
//! cleverness in the order. The orders differ in what they take for the hard ones.

use super::bound::occupancy;
use super::greedy::sorted;
use super::{Bin, Packer, Set};

/// By what sessions are ordered, the largest first, and among which GPU of those that could take one is chosen.
type Order = fn(&Packer<'_>, usize) -> f64;

/// What makes a session hard to place.
const ORDERS: [Order; 4] = [
    |packer, at| occupancy(&packer.sessions[at].turn),
    // A tight objective leaves few companions; within alike objectives, the larger first.
    |packer, at| {
        let turn = &packer.sessions[at].turn;
        let level = (turn.slo.as_ms().ln() * 4.0).floor();
        -level * 10.0 + occupancy(turn)
    },
    // The part of the objective that a batch alone takes.
    |packer, at| {
        let turn = &packer.sessions[at].turn;
        turn.profile.shortest().0 as f64 / turn.slo.0 as f64 + occupancy(turn)
    },
    |packer, at| {
        let turn = &packer.sessions[at].turn;
        occupancy(turn) / turn.slo.as_ms().sqrt()
    },
];

/// The best of several best fits.
pub fn best_fit(packer: &Packer<'_>) -> Vec<Set> {
    let tried = ORDERS.iter().map(|order| fill(packer, order));
    tried.min_by_key(Vec::len).unwrap_or_default()
}

fn fill(packer: &Packer<'_>, order: &Order) -> Vec<Set> {
    let mut sessions: Vec<(f64, usize)> =
        (0..packer.sessions.len()).map(|at| (order(packer, at), at)).collect();
    sessions.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut bins: Vec<Bin> = Vec::new();
    for (_, at) in sessions {
        let mut best: Option<(f64, usize, fermata_core::Span)> = None;
        for (place, bin) in bins.iter().enumerate() {
            let Some(round) = bin.round_with(packer, at) else { continue };
            let left = left_over(packer, bin, at, round);
            if best.is_none_or(|(least, ..)| left < least) {
                best = Some((left, place, round));
            }
        }
        match best {
            Some((_, place, round)) => bins[place].push(packer, at, round),
            None => {
                let mut bin = Bin::empty();
                let round = bin.round_with(packer, at).expect("each session fits alone");
                bin.push(packer, at, round);
                bins.push(bin);
            }
        }
    }
    sorted(bins.into_iter().map(|bin| bin.members).collect())
}

/// The part of the longest possible round that is still free when the session is in.
fn left_over(packer: &Packer<'_>, bin: &Bin, at: usize, round: fermata_core::Span) -> f64 {
    let longest = |&member: &usize| {
        let turn = &packer.sessions[member].turn;
        turn.slo - turn.latency(round)
    };
    let longest = bin.members.iter().chain(std::iter::once(&at)).map(longest).min();
    let longest = longest.expect("the session itself is there").0 as f64;
    1.0 - round.0 as f64 / longest
}
