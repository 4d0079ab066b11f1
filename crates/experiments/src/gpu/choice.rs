//! Which pairs of models are measured beside each other: a bounded number, in which every model,
//! batch and split occurs.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

/// Two models side by side: by their places, with their batches and their shares in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Choice {
    pub(super) models: [usize; 2],
    pub(super) batches: [usize; 2],
    pub(super) percents: [u32; 2],
}

/// All pairs of models, each with itself too, in an order that is drawn.
pub(super) fn pairs_of(models: usize, random: &mut Pcg64Mcg) -> Vec<[usize; 2]> {
    let pairs = (0..models).flat_map(|first| (first..models).map(move |second| [first, second]));
    let mut pairs: Vec<[usize; 2]> = pairs.collect();
    pairs.shuffle(random);
    pairs
}

/// So many of all that there are. Pairs of models take turns, and so do the ways to run them, both
/// in an order that is drawn.
pub(super) fn choose(
    models: usize,
    batches: &[usize],
    splits: &[u32],
    count: usize,
    seed: u64,
) -> Vec<Choice> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut ways: Vec<([usize; 2], u32)> = Vec::new();
    for &first in batches {
        for &second in batches {
            for &split in splits {
                ways.push(([first, second], split));
                if split != 50 {
                    ways.push(([first, second], 100 - split));
                }
            }
        }
    }
    ways.shuffle(&mut random);
    let pairs = pairs_of(models, &mut random);
    let mut chosen = Vec::with_capacity(count);
    let rounds = count.div_ceil(pairs.len().max(1));
    for round in 0..rounds {
        for (at, &models) in pairs.iter().enumerate() {
            // From round to round a pair gets another way, even where there are as many ways as
            // pairs.
            let (batches, percent) = ways[(round * pairs.len() + at + round) % ways.len()];
            chosen.push(Choice { models, batches, percents: [percent, 100 - percent] });
        }
    }
    chosen.truncate(count);
    chosen
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn nine() -> Vec<Choice> {
        choose(9, &[1, 8, 32], &[20, 40, 50], 150, 1)
    }

    #[test]
    fn every_model_batch_split_and_pair_of_models_occurs() {
        let chosen = nine();
        assert_eq!(chosen.len(), 150);
        let all = |what: &dyn Fn(&Choice, usize) -> usize| -> BTreeSet<usize> {
            chosen.iter().flat_map(|choice| [what(choice, 0), what(choice, 1)]).collect()
        };
        assert_eq!(all(&|choice, side| choice.models[side]).len(), 9);
        assert_eq!(all(&|choice, side| choice.batches[side]), BTreeSet::from([1, 8, 32]));
        let percents = all(&|choice, side| choice.percents[side] as usize);
        assert_eq!(percents, BTreeSet::from([20, 40, 50, 60, 80]));
        let pairs: BTreeSet<[usize; 2]> = chosen.iter().map(|choice| choice.models).collect();
        assert_eq!(pairs.len(), 45);
    }

    #[test]
    fn no_choice_is_measured_twice_and_a_seed_gives_the_same() {
        let chosen = nine();
        let distinct: BTreeSet<String> = chosen.iter().map(|each| format!("{each:?}")).collect();
        assert_eq!(distinct.len(), chosen.len());
        assert_eq!(chosen, nine());
        assert_ne!(chosen, choose(9, &[1, 8, 32], &[20, 40, 50], 150, 2));
        assert!(choose(2, &[1], &[50], 7, 1).len() == 7);
    }
}
