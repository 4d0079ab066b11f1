//! Many sessions: best fit in several orders, each session tried with the shortest round of what is
//! there already.
//!
//! No round is fixed in advance, so a set is refused only if it really does not fit; that alone is
//! worth more than any cleverness in the order. The orders differ in what they take for the hard
//! ones.

use fermata_core::Span;

use super::greedy::sorted;
use super::occupancy::occupancy;
use super::{Bin, Packer, Set};

/// What makes a session hard to place: the largest is placed first.
type Hardness = fn(&Packer<'_>, usize) -> f64;

const ORDERS: [Hardness; 2] = [
    |packer, at| occupancy(&packer.sessions[at].turn),
    // A tight objective leaves few companions, and likes its own kind; among alike objectives the
    // larger is harder.
    |packer, at| {
        let turn = &packer.sessions[at].turn;
        occupancy(turn) - 10.0 * (4.0 * turn.slo.as_ms().ln()).floor()
    },
];

/// The best of several best fits.
pub fn best_fit(packer: &Packer<'_>) -> Vec<Set> {
    let tried = ORDERS.iter().map(|hardness| fill(packer, *hardness));
    tried.min_by_key(Vec::len).unwrap_or_default()
}

fn fill(packer: &Packer<'_>, hardness: Hardness) -> Vec<Set> {
    let mut sessions: Vec<(f64, usize)> =
        (0..packer.sessions.len()).map(|at| (hardness(packer, at), at)).collect();
    sessions.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut bins: Vec<Bin> = Vec::new();
    // How much longer each round may become: most GPUs are refused by one look here.
    let mut rooms: Vec<Span> = Vec::new();
    for (_, at) in sessions {
        let shortest = packer.sessions[at].turn.profile.shortest();
        let mut best: Option<(f64, usize, Span)> = None;
        for (place, _) in rooms.iter().enumerate().filter(|(_, room)| **room >= shortest) {
            let Some(round) = bins[place].round_with(packer, at) else { continue };
            let left = left_over(packer, &bins[place], at, round);
            if best.is_none_or(|(least, ..)| left < least) {
                best = Some((left, place, round));
            }
        }
        let (place, round) = match best {
            Some((_, place, round)) => (place, round),
            None => {
                let bin = Bin::empty();
                let round = bin.round_with(packer, at).expect("each session fits alone");
                bins.push(bin);
                rooms.push(Span::ZERO);
                (bins.len() - 1, round)
            }
        };
        bins[place].push(packer, at, round);
        rooms[place] = bins[place].room();
    }
    sorted(bins.into_iter().map(|bin| bin.members).collect())
}

/// The part of the longest possible round that is still free when the session is in.
fn left_over(packer: &Packer<'_>, bin: &Bin, at: usize, round: Span) -> f64 {
    let longest = |&member: &usize| {
        let turn = &packer.sessions[member].turn;
        turn.slo - turn.latency(round)
    };
    let longest = bin.members.iter().chain(std::iter::once(&at)).map(longest).min();
    let longest = longest.expect("the session itself is there").0 as f64;
    1.0 - round.0 as f64 / longest
}
