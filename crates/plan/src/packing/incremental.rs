//! The next packing from the last one, moving little (Nexus 6.1, last paragraph).
//!
//! A GPU that has become too full gives up its cheapest sessions; what is new or was given up goes
//! where it fits best; and while moves are left, the GPU that is used the least is emptied onto the
//! others and released.

use super::greedy::sorted;
use super::occupancy::occupancy;
use super::{Bin, Packer, Set};

/// Sessions on their GPUs again, and how many are elsewhere than before.
#[derive(Clone, Debug, PartialEq)]
pub struct Repacked {
    /// Who shares a GPU. The GPUs of the previous packing come first, in their order; those that
    /// were released are empty.
    pub sets: Vec<Set>,
    /// How many sessions were on another GPU before.
    pub moved: usize,
}

/// Packs the sessions, given where they were: sets of places in the list of sessions, each in at
/// most one. Sessions that were nowhere are placed; those on a GPU that is too full now must move;
/// at most `moves` others do, to release GPUs.
pub fn repack(packer: &Packer<'_>, previous: &[Set], moves: usize) -> Repacked {
    let mut placed = vec![false; packer.sessions.len()];
    let mut homeless: Set = Vec::new();
    let mut moved = 0;
    let mut bins: Vec<Bin> = Vec::new();
    for set in previous {
        let mut members = set.clone();
        members.iter().for_each(|&at| placed[at] = true);
        // The cheapest last, so that it is the first to go.
        members.sort_by(|&a, &b| share(packer, b).total_cmp(&share(packer, a)).then(a.cmp(&b)));
        while packer.round(&members).is_none() {
            homeless.push(members.pop().expect("each session fits alone"));
            moved += 1;
        }
        bins.push(filled(packer, &members));
    }
    homeless.extend((0..placed.len()).filter(|&at| !placed[at]));
    homeless.sort_by(|&a, &b| share(packer, b).total_cmp(&share(packer, a)).then(a.cmp(&b)));
    for at in homeless {
        if !place(packer, &mut bins, at, None) {
            bins.push(filled(packer, &[at]));
        }
    }
    moved += release(packer, &mut bins, moves);
    let sets = sorted(bins.into_iter().map(|bin| bin.members).collect());
    Repacked { sets, moved }
}

/// Empties the least used GPUs onto the others, as long as moves are left. Says how many sessions
/// moved.
fn release(packer: &Packer<'_>, bins: &mut Vec<Bin>, moves: usize) -> usize {
    let used = |bin: &Bin| bin.members.iter().map(|&at| share(packer, at)).sum::<f64>();
    let mut order: Vec<(f64, usize)> =
        bins.iter().enumerate().map(|(place, bin)| (used(bin), place)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut moved = 0;
    for (_, emptied) in order {
        let leaving = bins[emptied].members.clone();
        if leaving.is_empty() || moved + leaving.len() > moves {
            continue;
        }
        // All of them or none: half-empty GPUs help nobody.
        let mut trial = bins.clone();
        trial[emptied] = Bin::empty();
        if leaving.iter().all(|&at| place(packer, &mut trial, at, Some(emptied))) {
            *bins = trial;
            moved += leaving.len();
        }
    }
    moved
}

/// Puts a session where it leaves the least room, on a GPU that is in use; not on the one that is
/// being emptied.
fn place(packer: &Packer<'_>, bins: &mut [Bin], at: usize, emptied: Option<usize>) -> bool {
    let usable = |(place, bin): &(usize, &Bin)| Some(*place) != emptied && !bin.members.is_empty();
    let fitting = bins.iter().enumerate().filter(usable).filter_map(|(place, bin)| {
        let round = bin.round_with(packer, at)?;
        let mut with = bin.clone();
        with.push(packer, at, round);
        Some((place, with))
    });
    let fullest = fitting.max_by(|a, b| a.1.filled().total_cmp(&b.1.filled()).then(b.0.cmp(&a.0)));
    fullest.map(|(place, bin)| bins[place] = bin).is_some()
}

fn filled(packer: &Packer<'_>, members: &[usize]) -> Bin {
    let mut bin = Bin::empty();
    for &at in members {
        let round = bin.round_with(packer, at).expect("the whole set fits");
        bin.push(packer, at, round);
    }
    bin
}

fn share(packer: &Packer<'_>, at: usize) -> f64 {
    occupancy(&packer.sessions[at].turn)
}
