//! Few sessions: the fewest sets, by a table of all subsets.

use super::{Packer, Set};

/// With so many sessions the table has 16,384 entries, and filling it takes 4.8 million steps at
/// most.
pub(super) const SESSIONS_MAX: usize = 14;

/// The fewest sets that fit.
pub(super) fn fewest(packer: &Packer<'_>) -> Vec<Set> {
    let sessions = packer.sessions.len();
    assert!(sessions <= SESSIONS_MAX, "the table has room for them");
    let members = |set: usize| -> Set { (0..sessions).filter(|at| set >> at & 1 == 1).collect() };
    let all = (1usize << sessions) - 1;
    // A set can fit only if it does without its last member.
    let mut fits = vec![true; all + 1];
    for set in 1..=all {
        let last = 1 << set.ilog2();
        fits[set] = fits[set ^ last] && packer.round(&members(set)).is_some();
    }
    // The fewest sets for each subset, and the one of them that has its lowest member.
    let mut fewest = vec![(0usize, 0usize); all + 1];
    for set in 1..=all {
        let lowest = set & set.wrapping_neg();
        let rest = set ^ lowest;
        let (mut best, mut part) = ((usize::MAX, 0), rest);
        loop {
            if fits[part | lowest] {
                best = best.min((fewest[rest ^ part].0 + 1, part | lowest));
            }
            if part == 0 {
                break;
            }
            part = (part - 1) & rest;
        }
        fewest[set] = best;
    }
    let (mut left, mut sets) = (all, Vec::new());
    while left != 0 {
        let set = fewest[left].1;
        sets.push(members(set));
        left ^= set;
    }
    sets
}
