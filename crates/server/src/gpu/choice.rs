//! Which cut of a GPU is best for what comes in: the cuts that are tried, and whether another one
//! pays. No clock; who tries them is told by the caller.

use std::sync::Arc;
use std::time::Duration;

use fermata_core::ClassId;
use fermata_dispatch::{ModelSpec, Network};
use fermata_engine::{Cut, Gpu};

/// Tries the cuts of a question: the goodput of each, in requests a second of all models together;
/// zero where one of them cannot be served.
pub type Weigh = fn(&Question) -> Vec<f64>;

/// How a server cuts its GPUs by itself.
#[derive(Clone, Copy, Debug)]
pub struct SharePlan {
    /// How often it looks whether another cut is better.
    pub epoch: Duration,
    /// Who tries cuts.
    pub weigh: Weigh,
}

/// How good are these cuts of one GPU for this load?
#[derive(Clone, Debug)]
pub struct Question {
    /// Requests a second of each model. Only their proportions count.
    pub rates: Vec<f64>,
    /// How far away the shares are.
    pub network: Network,
    /// Those to try; the first is the one in force.
    pub cuts: Vec<Candidate>,
}

/// A cut that is tried.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its shares, in percent.
    pub percents: Vec<u32>,
    /// The class of each: shares with equally many multiprocessors are of one.
    pub classes: Vec<ClassId>,
    /// What dispatch would know of each model, with a profile by class, as if there were no
    /// neighbours.
    pub specs: Vec<Arc<ModelSpec>>,
}

/// The cuts that are tried, in percent. More than four shares of a GPU have not been seen to pay,
/// and every seat takes the memory of all models.
const CUTS: [&[u32]; 6] = [&[100], &[50, 50], &[40, 60], &[20, 80], &[33, 33, 34], &[25; 4]];

/// Cuts that differ by less than this are equally good: then fewer shares are better, which disturb
/// each other less.
const EQUAL: f64 = 0.02;

/// Another cut must promise so much more than the one in force, or it is not worth it.
const GAIN_MIN: f64 = 0.10;

/// The cuts worth trying on a GPU with so many seats, that in force first.
pub(crate) fn cuts(gpu: &Gpu, seats: usize, present: &Cut) -> Vec<Cut> {
    let parts = |cut: &Cut| {
        let mut parts = cut.multiprocessors().to_vec();
        parts.sort_unstable();
        parts
    };
    let mut cuts = vec![present.clone()];
    for percents in CUTS.into_iter().filter(|percents| percents.len() <= seats) {
        let Ok(cut) = Cut::new(percents, gpu.multiprocessors, gpu.step) else { continue };
        if !cuts.iter().any(|other| parts(other) == parts(&cut)) {
            cuts.push(cut);
        }
    }
    cuts
}

/// The cut to take in place of the first, by what each of them promises: the best, or one as good
/// with fewer shares, if it promises enough more.
pub(crate) fn choose(cuts: &[Candidate], goodputs: &[f64]) -> Option<usize> {
    let best = goodputs.iter().copied().fold(0.0, f64::max);
    let as_good = (0..cuts.len()).filter(|&at| goodputs[at] >= (1.0 - EQUAL) * best);
    let chosen = as_good.min_by(|&a, &b| {
        let shares = |at: usize| cuts[at].percents.len();
        shares(a).cmp(&shares(b)).then(goodputs[b].total_cmp(&goodputs[a]))
    })?;
    let pays = goodputs[chosen] > 0.0 && goodputs[chosen] >= (1.0 + GAIN_MIN) * goodputs[0];
    (chosen != 0 && pays).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(multiprocessors: u32, step: u32) -> Gpu {
        Gpu { index: 0, name: "H200".to_owned(), memory: 0, multiprocessors, step }
    }

    fn tried(gpu: &Gpu, seats: usize, present: &[u32]) -> Vec<Vec<u32>> {
        let present = Cut::new(present, gpu.multiprocessors, gpu.step).unwrap();
        cuts(gpu, seats, &present).iter().map(|cut| cut.percents().to_vec()).collect()
    }

    #[test]
    fn cuts_into_as_many_shares_as_there_are_seats_are_tried_and_none_twice() {
        let h200 = gpu(132, 8);
        assert_eq!(tried(&h200, 4, &[100]).len(), 6);
        assert_eq!(tried(&h200, 1, &[100]), [[100]]);
        let two = tried(&h200, 2, &[50, 50]);
        assert_eq!(two, [vec![50, 50], vec![100], vec![40, 60], vec![20, 80]]);
        // What somebody has cut by hand is tried too; 60,40 is 40,60.
        assert_eq!(tried(&h200, 2, &[60, 30])[0], [60, 30]);
        assert_eq!(tried(&gpu(100, 1), 2, &[60, 40]).len(), 4);
        // A small GPU cannot be cut so finely.
        assert_eq!(tried(&gpu(16, 8), 4, &[100]), [vec![100], vec![50, 50]]);
        assert_eq!(tried(&gpu(8, 8), 4, &[100]), [vec![100]]);
    }

    fn chosen(cuts: &[(&[u32], f64)]) -> Option<usize> {
        let candidate = |&(percents, _): &(&[u32], f64)| Candidate {
            percents: percents.to_vec(),
            classes: Vec::new(),
            specs: Vec::new(),
        };
        let candidates: Vec<Candidate> = cuts.iter().map(candidate).collect();
        let goodputs: Vec<f64> = cuts.iter().map(|&(_, goodput)| goodput).collect();
        choose(&candidates, &goodputs)
    }

    #[test]
    fn the_best_is_chosen_and_of_equals_the_one_with_fewer_shares() {
        let cut = |two: f64, uneven: f64, four: f64| {
            chosen(&[(&[100], 100.0), (&[50, 50], two), (&[40, 60], uneven), (&[25; 4], four)])
        };
        assert_eq!(cut(120.0, 118.0, 150.0), Some(3));
        assert_eq!(cut(148.0, 146.0, 150.0), Some(1));
        assert_eq!(cut(148.0, 149.0, 150.0), Some(2), "of as many shares the better");
        assert_eq!(cut(109.0, 109.0, 109.0), None, "too little for a re-cut");
        assert_eq!(cut(90.0, 0.0, 0.0), None);
    }

    #[test]
    fn a_cut_in_force_stays_until_another_is_better_by_a_tenth() {
        assert_eq!(chosen(&[(&[25; 4], 100.0), (&[100], 101.0)]), None);
        assert_eq!(chosen(&[(&[25; 4], 100.0), (&[100], 110.5)]), Some(1));
        assert_eq!(chosen(&[(&[25; 4], 0.0), (&[100], 5.0)]), Some(1));
        assert_eq!(chosen(&[(&[25; 4], 0.0), (&[100], 0.0)]), None, "none can serve it");
        assert_eq!(chosen(&[(&[100], 0.0)]), None);
    }
}
