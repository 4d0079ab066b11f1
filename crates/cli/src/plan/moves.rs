//! What has to be loaded and unloaded to go from one plan to another.
//!
//! Which GPU of the new plan is which of the old one is free to choose: GPUs that hold the same
//! models are the same one, then those that have the most in common.

use std::collections::{BTreeMap, BTreeSet};

use fermata_plan::Plan;

/// The models that a GPU holds, and its kind.
type Holds = (usize, BTreeSet<usize>);

/// The way from a plan to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    /// On how many GPUs a demand's model has to be loaded, by demand.
    pub(super) loads: BTreeMap<usize, usize>,
    /// On how many it is unloaded.
    pub(super) unloads: BTreeMap<usize, usize>,
    /// GPUs that there were not before.
    pub(super) added: usize,
    /// GPUs that are given back.
    pub(super) released: usize,
}

impl Moves {
    /// From one plan to another.
    pub(super) fn between(before: &Plan, after: &Plan) -> Self {
        let (mut old, mut new) = (held(before), held(after));
        take_equal(&mut old, &mut new);
        let mut moves = Self::default();
        for (kind, wanted) in new {
            let common = |(of, holds): &Holds| match *of == kind {
                true => Some(holds.intersection(&wanted).count()),
                false => None,
            };
            let best = (0..old.len()).max_by_key(|&at| (common(&old[at]), std::cmp::Reverse(at)));
            let best = best.filter(|&at| common(&old[at]).is_some());
            let holds = match best {
                Some(at) => old.remove(at).1,
                None => {
                    moves.added += 1;
                    BTreeSet::new()
                }
            };
            wanted
                .difference(&holds)
                .for_each(|&model| *moves.loads.entry(model).or_default() += 1);
            holds
                .difference(&wanted)
                .for_each(|&model| *moves.unloads.entry(model).or_default() += 1);
        }
        moves.released = old.len();
        moves
    }

    /// Whether nothing has to be done.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What each GPU holds.
fn held(plan: &Plan) -> Vec<Holds> {
    let mut gpus: BTreeMap<usize, Holds> = BTreeMap::new();
    for pool in &plan.pools {
        for &gpu in &pool.gpus {
            let (_, holds) = gpus.entry(gpu).or_insert_with(|| (pool.kind, BTreeSet::new()));
            holds.extend(pool.members.iter().map(|member| member.demand));
        }
    }
    gpus.into_values().collect()
}

/// Takes away what both have.
fn take_equal(old: &mut Vec<Holds>, new: &mut Vec<Holds>) {
    let mut counts: BTreeMap<Holds, usize> = BTreeMap::new();
    old.iter().for_each(|holds| *counts.entry(holds.clone()).or_default() += 1);
    let mut stay: BTreeMap<Holds, usize> = BTreeMap::new();
    new.retain(|holds| match counts.get_mut(holds) {
        Some(left) if *left > 0 => {
            *left -= 1;
            *stay.entry(holds.clone()).or_default() += 1;
            false
        }
        _ => true,
    });
    old.retain(|holds| match stay.get_mut(holds) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use fermata_core::Span;
    use fermata_plan::{Member, Pool};

    use super::*;

    /// Pools by their GPUs and demands.
    fn plan(pools: &[(&[usize], &[usize])]) -> Plan {
        let member = |&demand: &usize| Member {
            demand,
            rate: 1.0,
            batch: 1,
            occupancy: 0.1,
            latency: Span::from_ms(1.0),
        };
        let pool = |(gpus, demands): &(&[usize], &[usize])| Pool {
            kind: 0,
            gpus: gpus.to_vec(),
            share: 100,
            round: None,
            members: demands.iter().map(member).collect(),
        };
        Plan { pools: pools.iter().map(pool).collect(), ..Plan::default() }
    }

    #[test]
    fn gpus_that_only_change_their_numbers_do_not_move() {
        let before = plan(&[(&[0, 1], &[3, 4]), (&[2], &[5])]);
        let after = plan(&[(&[0], &[5]), (&[1, 2], &[4, 3])]);
        assert!(Moves::between(&before, &after).is_empty());
    }

    #[test]
    fn models_go_where_most_of_their_company_is() {
        let before = plan(&[(&[0], &[1, 2, 3]), (&[1], &[4, 5]), (&[2], &[6])]);
        let after = plan(&[(&[0], &[4, 5, 3]), (&[1], &[1, 2])]);
        let moves = Moves::between(&before, &after);
        assert_eq!(moves.loads, BTreeMap::from([(3, 1)]));
        assert_eq!(moves.unloads, BTreeMap::from([(3, 1)]));
        assert_eq!((moves.added, moves.released), (0, 1));
    }

    #[test]
    fn a_larger_pool_loads_its_models_on_new_gpus() {
        let (before, after) = (plan(&[(&[0], &[1, 2])]), plan(&[(&[0, 1, 2], &[1, 2])]));
        let moves = Moves::between(&before, &after);
        assert_eq!(moves.loads, BTreeMap::from([(1, 2), (2, 2)]));
        assert_eq!((moves.added, moves.released), (2, 0));
    }
}
