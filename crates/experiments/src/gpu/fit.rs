//! Fits what neighbours do to each other, on some pairs of models, and tries it on pairs that it
//! has never seen.
//!
//! The *linear* model is gpulet's (4.4): a factor from what both use of L2 and memory. The
//! *bearing* model adds what either model bears: how much longer it takes beside a presser, times
//! what its neighbour uses.

use std::collections::BTreeSet;

use fermata_plan::shares::{Coefficients, Sample, Usage, fit, least_squares, quantiles};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::choice::pairs_of;
use super::neighbours::{Beside, Taken};

/// Of all pairs of models, this part is learnt from.
const LEARNT: f64 = 0.7;
/// Which errors are told.
const PARTS: [f64; 3] = [0.5, 0.9, 0.95];

/// What a model got wrong on pairs that it has not seen, as parts of what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Errors {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p95: f64,
}

/// What was learnt, and how good it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Fitted {
    #[serde(skip)]
    pub(super) coefficients: Coefficients,
    pub(super) linear: Errors,
    /// `None` if the pairs do not determine it.
    pub(super) bearing: Option<Errors>,
    /// Had everybody been taken to be undisturbed.
    pub(super) none: Errors,
    /// How many samples were learnt from, and tried.
    pub(super) learnt: usize,
    pub(super) tried: usize,
}

/// A sample with what is needed for either model.
struct Seen {
    models: [usize; 2],
    sample: Sample,
    /// What the model that was timed bears of its neighbour's L2 and memory.
    bears: [f64; 2],
}

/// Fits both models; `None` if there are too few pairs.
pub(super) fn learn(models: usize, taken: &[Taken], pairs: &[Beside], seed: u64) -> Option<Fitted> {
    let mut order = pairs_of(models, &mut Pcg64Mcg::seed_from_u64(seed));
    order.truncate((LEARNT * order.len() as f64).round() as usize);
    let known: BTreeSet<[usize; 2]> = order.into_iter().collect();
    let seen = pairs.iter().flat_map(|pair| samples(taken, pair));
    let (learnt, tried): (Vec<Seen>, Vec<Seen>) =
        seen.partition(|seen| known.contains(&sorted(seen.models)));
    let coefficients = fit(&learnt.iter().map(|seen| seen.sample).collect::<Vec<Sample>>())?;
    if tried.is_empty() {
        return None;
    }
    let linear = errors(&tried, |seen| coefficients.factor(seen.sample.own, seen.sample.other));
    let rows = learnt.iter().map(|seen| (terms(seen), seen.sample.factor));
    let bearing = least_squares(rows).map(|weights| {
        errors(&tried, |seen| {
            let sum: f64 =
                terms(seen).iter().zip(weights).map(|(term, weight)| term * weight).sum();
            sum.max(1.0)
        })
    });
    let none = errors(&tried, |_| 1.0);
    Some(Fitted { coefficients, linear, bearing, none, learnt: learnt.len(), tried: tried.len() })
}

/// What a model uses at a batch size on a share, from what it took of a half.
pub(super) fn usage(taken: &[Taken], model: usize, batch: usize, percent: u32) -> Option<Usage> {
    let found = taken.iter().find(|taken| taken.model == model && taken.batch == batch)?;
    Some(whole(found).on_share(percent))
}

/// What it would use of a whole GPU.
pub(super) fn whole(taken: &Taken) -> Usage {
    Usage { l2: 2.0 * taken.l2, dram: 2.0 * taken.dram }
}

/// Both sides of a pair; nothing, if it is not known what they use.
fn samples(taken: &[Taken], pair: &Beside) -> Vec<Seen> {
    let choice = &pair.choice;
    let used = |side: usize| {
        usage(taken, choice.models[side], choice.batches[side], choice.percents[side])
    };
    let (Some(first), Some(second)) = (used(0), used(1)) else { return Vec::new() };
    let bears = |side: usize| {
        let found = taken.iter().find(|taken| {
            taken.model == choice.models[side] && taken.batch == choice.batches[side]
        });
        found.map_or([0.0; 2], |taken| [taken.bears_l2, taken.bears_dram])
    };
    let factors = pair.factors();
    let seen = |side: usize, own, other| Seen {
        models: choice.models,
        sample: Sample { own, other, factor: factors[side] },
        bears: bears(side),
    };
    vec![seen(0, first, second), seen(1, second, first)]
}

/// Of the bearing model.
fn terms(seen: &Seen) -> [f64; 7] {
    let Sample { own, other, .. } = seen.sample;
    let [l2, dram] = seen.bears;
    [own.l2, other.l2, own.dram, other.dram, l2 * other.l2, dram * other.dram, 1.0]
}

fn errors(tried: &[Seen], predict: impl Fn(&Seen) -> f64) -> Errors {
    let error = |seen: &Seen| (predict(seen) / seen.sample.factor - 1.0).abs();
    let found = quantiles(tried.iter().map(error).collect(), &PARTS);
    Errors { p50: found[0], p90: found[1], p95: found[2] }
}

fn sorted([first, second]: [usize; 2]) -> [usize; 2] {
    [first.min(second), first.max(second)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::choice::choose;

    const BATCHES: [usize; 3] = [1, 8, 32];

    /// Nine models that use more the larger their batches are.
    fn taken() -> Vec<Taken> {
        let mut taken = Vec::new();
        for model in 0..9_usize {
            for (at, batch) in BATCHES.into_iter().enumerate() {
                let (l2, dram) = (0.05 * model as f64, 0.03 * ((7 * model) % 9) as f64);
                let more = 0.5 + 0.2 * at as f64;
                taken.push(Taken {
                    model,
                    batch,
                    l2: l2 * more,
                    dram: dram * more,
                    bears_l2: 0.1 * ((5 * model) % 9) as f64,
                    bears_dram: 0.1 * ((2 * model) % 5) as f64,
                });
            }
        }
        taken
    }

    fn measured(factor: impl Fn(&[Taken; 2], [Usage; 2]) -> f64) -> Vec<Beside> {
        let taken = taken();
        let pair = |choice: crate::gpu::choice::Choice| {
            let find = |side: usize| {
                let (model, batch) = (choice.models[side], choice.batches[side]);
                *taken.iter().find(|each| each.model == model && each.batch == batch).unwrap()
            };
            let used = |side: usize| whole(&find(side)).on_share(choice.percents[side]);
            let first = factor(&[find(0), find(1)], [used(0), used(1)]);
            let second = factor(&[find(1), find(0)], [used(1), used(0)]);
            Beside { choice, alone_ms: [2.0, 3.0], together_ms: [2.0 * first, 3.0 * second] }
        };
        choose(9, &BATCHES, &[20, 40, 50], 150, 1).into_iter().map(pair).collect()
    }

    #[test]
    fn what_is_linear_is_learnt_from_some_pairs_and_holds_for_the_others() {
        let known = Coefficients {
            own_l2: 0.2,
            other_l2: 0.3,
            own_dram: 0.1,
            other_dram: 0.4,
            constant: 1.02,
        };
        let pairs = measured(|_, [own, other]| known.factor(own, other));
        let fitted = learn(9, &taken(), &pairs, 1).unwrap();
        assert!(fitted.linear.p95 < 1e-9 && fitted.bearing.unwrap().p95 < 1e-9, "{fitted:?}");
        assert!((fitted.coefficients.other_dram - 0.4).abs() < 1e-6);
        assert!(fitted.none.p50 > 0.02 && fitted.none.p50 <= fitted.none.p90);
        assert_eq!(fitted.learnt + fitted.tried, 300);
        assert!((70..120).contains(&fitted.tried), "{}", fitted.tried);
    }

    #[test]
    fn models_that_bear_differently_need_more_than_the_linear_model() {
        let pairs = measured(|[own, _], [_, other]| 1.0 + own.bears_l2 * other.l2);
        let fitted = learn(9, &taken(), &pairs, 1).unwrap();
        assert!(fitted.bearing.unwrap().p95 < 1e-9);
        assert!(fitted.linear.p95 > 1e-3, "{fitted:?}");
    }

    #[test]
    fn nothing_is_learnt_from_too_few_pairs() {
        let pairs = measured(|_, _| 1.1);
        assert!(learn(9, &taken(), &pairs[..1], 1).is_none());
        assert!(learn(9, &[], &pairs, 1).is_none());
    }
}
