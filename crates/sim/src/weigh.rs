//! How good cuts of a GPU are for a load, by simulating each: `fermata serve --shares auto` chooses
//! by it.
//!
//! Pure, and bounded: a few dozen runs of some ten thousand requests, the same for every cut, so
//! that chance favours none of them.

use std::sync::Arc;

use fermata_core::{ClassId, Profile};
use fermata_dispatch::{ModelSpec, Network, Policy};
use fermata_plan::shares::{Coefficients, Usage, stretched};
use fermata_workload::Process;

use crate::feed::Drawn;
use crate::scenario::{End, Load, Scenario};
use crate::search::{BAD_MAX, NEAR, highest_near, run_drawn};
use crate::stats::Stats;

/// How many requests a run has, at least and at most.
const REQUESTS: (u64, u64) = (20_000, 40_000);
/// What a run should be longer than, in SLOs: who begins with empty queues seems to be better than
/// he is.
const SLOS: f64 = 30.0;
/// A goodput is found to within this part of it: cuts that differ by less are equally good.
const PRECISION: f64 = 0.01;
const SEED: u64 = 1;

/// How good are these cuts of one GPU for this load?
#[derive(Clone, Debug)]
pub struct Question {
    /// Requests a second of each model. Only their proportions count.
    pub rates: Vec<f64>,
    /// How far away the shares are.
    pub network: Network,
    /// Those to try; the first is the one in force.
    pub cuts: Vec<Cut>,
}

/// A cut that is tried.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Its shares, in percent.
    pub percents: Vec<u32>,
    /// The class of each: shares with equally many multiprocessors are of one.
    pub classes: Vec<ClassId>,
    /// What dispatch would know of each model, with a profile by class, as if there were no
    /// neighbours.
    pub specs: Vec<Arc<ModelSpec>>,
}

/// The goodput of each cut of a question.
pub fn weigh(question: &Question) -> Vec<f64> {
    let Some(bench) = Bench::new(question) else { return vec![0.0; question.cuts.len()] };
    let mut guess = None;
    let mut goodput = |cut: &Cut| {
        let found = bench.goodput(cut, guess);
        // Other cuts are likely to be as good, by and large.
        guess = guess.or((found > 0.0).then_some(found));
        found
    };
    question.cuts.iter().map(&mut goodput).collect()
}

/// A load on which cuts are tried.
struct Bench<'a> {
    question: &'a Question,
    /// Requests a second of each model when batches of one follow each other on one share: a rate
    /// to begin with.
    rates: Vec<f64>,
    requests: u64,
}

impl<'a> Bench<'a> {
    /// `None`, if some model runs nowhere, or nothing is asked for.
    fn new(question: &'a Question) -> Option<Self> {
        let all: f64 = question.rates.iter().sum();
        let mut busy = 0.0;
        let mut slo = 0.0_f64;
        for (model, rate) in question.rates.iter().enumerate() {
            let specs = question.cuts.iter().map(|cut| &cut.specs[model]);
            let profiles = specs.flat_map(|spec| spec.profiles.iter().flatten());
            let shortest = profiles.map(|profile| profile.shortest()).min()?;
            busy += rate / all * shortest.as_secs();
            slo = slo.max(question.cuts.first()?.specs[model].slo.as_secs());
        }
        let total = 1.0 / busy;
        if !total.is_finite() {
            return None;
        }
        let rates = question.rates.iter().map(|rate| rate / all * total).collect();
        let requests = (SLOS * slo * total) as u64;
        Some(Self { question, rates, requests: requests.clamp(REQUESTS.0, REQUESTS.1) })
    }

    /// The highest rate of all models together at which each has enough of its requests in time.
    fn goodput(&self, cut: &Cut, guess: Option<f64>) -> f64 {
        let scenario = self.scenario(cut);
        let total = scenario.rate();
        let drawn = Drawn::new(&scenario, 1.0);
        let (guess, step) = guess.map_or((total, 2.0), |guess| (guess, NEAR));
        // What a cut can serve at most is asked, where no share is spare. `release` fills batches
        // at every rate, so that the rates that are tried below the goodput take fewer batches, and
        // less time to simulate.
        highest_near(guess, step, PRECISION, |rate| {
            is_good(&run_drawn(&scenario, &drawn, rate / total, Policy::RELEASE, None))
        })
    }

    fn scenario(&self, cut: &Cut) -> Scenario {
        let load = |(spec, &rate): (&Arc<ModelSpec>, &f64)| {
            Load::steady(Arc::new(beside(spec, cut)), Process::Poisson, rate)
        };
        Scenario {
            loads: cut.specs.iter().zip(&self.rates).map(load).collect(),
            executors: cut.classes.clone(),
            network: self.question.network,
            end: End::Requests(self.requests),
            seed: SEED,
            noise: 0.0,
            faults: Vec::new(),
        }
    }
}

/// Whether enough requests were in time: of all together, and of each model. One lost request of a
/// model that has few is no failure.
fn is_good(stats: &Stats) -> bool {
    let enough = |bad: u64, offered: u64| bad as f64 <= BAD_MAX * offered as f64;
    let each = stats.models.iter();
    let (bad, offered) =
        each.clone().fold((0, 0), |sum, model| (sum.0 + model.bad(), sum.1 + model.offered));
    enough(bad, offered)
        && each.clone().all(|model| model.bad() <= 1 || enough(model.bad(), model.offered))
}

/// A model on the shares of a cut, whose neighbours slow it down. Where run times depend on the
/// input, batches take what they do on average.
fn beside(spec: &ModelSpec, cut: &Cut) -> ModelSpec {
    let on_class = |(at, profile): (usize, &Option<Arc<Profile>>)| {
        let profile = profile.as_ref()?;
        let factor = neighbours(cut, ClassId(at as u16));
        Some(Arc::new(stretched(profile, factor, profile.max_batch())))
    };
    let profiles = spec.profiles.iter().enumerate().map(on_class).collect();
    ModelSpec { slo: spec.slo, profiles, data: spec.data }
}

/// How many times as long batches take on a class of shares, all others being busy. What models use
/// of a GPU is not known here, so that of an average one counts.
fn neighbours(cut: &Cut, class: ClassId) -> f64 {
    let share = cut.classes.iter().position(|&other| other == class);
    let percent = share.map_or(0, |share| cut.percents[share]);
    let others = cut.percents.iter().sum::<u32>() - percent;
    if others == 0 {
        return 1.0;
    }
    let usage = Usage::default();
    Coefficients::default().factor(usage.on_share(percent), usage.on_share(others))
}

#[cfg(test)]
mod tests {
    use fermata_core::Span;
    use fermata_plan::shares::on_share;

    use super::*;

    const CUTS: [&[u32]; 4] = [&[100], &[50, 50], &[20, 80], &[25; 4]];

    /// A model that takes `alpha b + beta` ms on a whole GPU: SLO in ms, rate.
    struct Net(f64, f64, f64, f64);

    fn question(nets: &[Net], cuts: &[&[u32]]) -> Question {
        let candidate = |percents: &&[u32]| {
            let mut shares = percents.to_vec();
            shares.dedup();
            let class =
                |percent: &u32| shares.iter().position(|share| share == percent).unwrap() as u16;
            let spec = |&Net(alpha, beta, slo_ms, _): &Net| {
                let latency = |batch: u32| Span::from_ms(alpha * f64::from(batch) + beta);
                let whole = Profile::from_table((1..=64).map(latency)).unwrap();
                let on = |&percent: &u32| Some(Arc::new(on_share(&whole, percent, 64)));
                Arc::new(ModelSpec::new(Span::from_ms(slo_ms), shares.iter().map(on).collect()))
            };
            Cut {
                percents: percents.to_vec(),
                classes: percents.iter().map(class).map(ClassId).collect(),
                specs: nets.iter().map(spec).collect(),
            }
        };
        Question {
            rates: nets.iter().map(|net| net.3).collect(),
            network: Network::default(),
            cuts: cuts.iter().map(candidate).collect(),
        }
    }

    fn best(goodputs: &[f64]) -> usize {
        let (at, _) = goodputs.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap();
        at
    }

    #[test]
    fn small_models_at_tight_objectives_want_several_shares() {
        // Most of a small batch is its fixed part, which shares pay at the same time.
        let small =
            [Net(0.02, 0.8, 4.0, 10.0), Net(0.03, 0.9, 5.0, 10.0), Net(0.05, 1.0, 5.0, 5.0)];
        let goodputs = weigh(&question(&small, &CUTS));
        assert_eq!(best(&goodputs), 3, "{goodputs:?}");
        assert!(goodputs[1] > 1.1 * goodputs[0], "{goodputs:?}");
    }

    #[test]
    fn one_large_model_at_a_loose_objective_wants_the_whole_gpu() {
        let goodputs = weigh(&question(&[Net(2.0, 0.5, 200.0, 7.0)], &CUTS));
        assert_eq!(best(&goodputs), 0, "{goodputs:?}");
        // Neighbours that disturb each other cost more than a hundredth.
        assert!(goodputs[1] < 0.98 * goodputs[0], "{goodputs:?}");
    }

    #[test]
    fn only_the_mix_counts_and_not_how_much_comes() {
        let nets = |factor: f64| [Net(0.1, 1.0, 10.0, 3.0 * factor), Net(0.3, 1.0, 20.0, factor)];
        let [little, much] =
            [1e-3, 1e6].map(|factor| weigh(&question(&nets(factor), &[&[100], &[50, 50]])));
        for (little, much) in little.iter().zip(&much) {
            assert!((little / much - 1.0).abs() < 0.02, "{little} and {much}");
        }
    }

    #[test]
    fn a_cut_on_which_a_model_is_never_in_time_is_worth_nothing() {
        let nets = [Net(0.1, 1.0, 10.0, 5.0), Net(20.0, 5.0, 50.0, 1.0)];
        let goodputs = weigh(&question(&nets, &CUTS));
        assert!(goodputs[0] > 0.0, "{goodputs:?}");
        assert_eq!(goodputs[3], 0.0, "{goodputs:?}");
        assert_eq!(weigh(&question(&[], &CUTS)), [0.0; 4], "nothing is asked for");
    }

    #[test]
    fn neighbours_slow_each_other_down_and_a_whole_gpu_has_none() {
        let question = question(&[Net(1.0, 1.0, 50.0, 1.0)], &CUTS);
        let factor = |cut: usize, class| neighbours(&question.cuts[cut], ClassId(class));
        assert_eq!(factor(0, 0), 1.0);
        assert!((factor(1, 0) - 1.1176).abs() < 1e-9);
        assert!(factor(2, 0) > factor(2, 1), "the smaller one has the louder neighbour");
        assert!(factor(3, 0) > factor(1, 0));
    }
}
