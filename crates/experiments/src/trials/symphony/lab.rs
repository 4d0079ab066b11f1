//! How thoroughly experiments are measured, and the measuring that most of them share.

use std::sync::OnceLock;

use fermata_dispatch::{Policy, Spare};
use fermata_sim::{Scenario, Search, Stats, goodput, min_executors, run, spread};

use super::pool::Pool;

/// How long runs are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// At least so many requests.
    pub requests: u64,
    /// At least so long, in simulated seconds, at the highest rate that can be hoped for.
    pub seconds: f64,
    /// How exactly goodputs are searched for, as a share of them.
    pub precision: f64,
}

impl Effort {
    /// For the numbers that are promised.
    pub const THOROUGH: Self = Self { requests: 1_000_000, seconds: 60.0, precision: 0.001 };
    /// For curves.
    pub const USUAL: Self = Self { requests: 400_000, seconds: 10.0, precision: 0.005 };
    /// For a look.
    pub const QUICK: Self = Self { requests: 150_000, seconds: 3.0, precision: 0.005 };

    /// Requests of a run on this pool.
    pub fn requests_on(&self, pool: &Pool) -> u64 {
        self.requests.max((self.seconds * pool.bound()) as u64).max(pool.requests_min())
    }
}

/// Is told how far the measuring is.
pub trait Meter: Sync {
    /// So many more jobs are to be done.
    fn expect(&self, _jobs: usize) {}
    /// One of them is.
    fn finish_one(&self) {}
}

impl Meter for () {}

/// Where experiments are made.
#[derive(Clone, Copy)]
pub struct Lab<'a> {
    /// How long runs are.
    pub effort: Effort,
    /// The seed of all random numbers.
    pub seed: u64,
    /// How many runs go side by side.
    pub threads: usize,
    /// Who is told how far it is.
    pub meter: &'a dyn Meter,
}

/// A policy under the name by which it is reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contender {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub policy: Policy,
}

impl Contender {
    /// Policies by their names, which are ours: a wrong one is a mistake of this program. The
    /// papers ask how few executors are enough, so that spare ones can be given away.
    pub fn all(names: &[&'static str]) -> Vec<Self> {
        let parse = |name: &str| -> Policy {
            name.parse().expect("an experiment names policies that exist")
        };
        let contender =
            |&name: &&'static str| Self { name, policy: parse(name).with_spare(Spare::Release) };
        names.iter().map(contender).collect()
    }
}

impl Lab<'_> {
    /// A scenario on this pool, near its goodput.
    pub fn scenario(&self, pool: &Pool) -> Scenario {
        pool.scenario(pool.likely_rate(), self.effort.requests_on(pool), self.seed)
    }

    /// The goodput of each policy on a pool.
    pub fn goodputs(&self, pool: &Pool, contenders: &[Contender]) -> Vec<f64> {
        self.goodputs_on(&[pool], contenders).pop().unwrap_or_default()
    }

    /// The goodput of each policy (inner) on each pool (outer): all searches are spread over the
    /// threads at once.
    pub fn goodputs_on(&self, pools: &[&Pool], contenders: &[Contender]) -> Vec<Vec<f64>> {
        let prepared: Vec<OnceLock<Scenario>> = pools.iter().map(|_| OnceLock::new()).collect();
        let jobs: Vec<(usize, Policy)> = (0..pools.len())
            .flat_map(|pool| contenders.iter().map(move |contender| (pool, contender.policy)))
            .collect();
        let found = self.spread(&jobs, |&(at, policy)| {
            if pools[at].bound() == 0.0 {
                return 0.0;
            }
            let scenario = prepared[at].get_or_init(|| self.scenario(pools[at]));
            let search = Search { guess: Some(scenario.rate()), precision: self.effort.precision };
            goodput(scenario, policy, search)
        });
        found.chunks(contenders.len().max(1)).map(<[f64]>::to_vec).collect()
    }

    /// The goodput of each policy, with what happens at exactly that rate. `None`, where there is
    /// no goodput.
    pub fn at_goodput(&self, pool: &Pool, contenders: &[Contender]) -> Vec<Option<(f64, Stats)>> {
        let scenario = self.scenario(pool);
        let search = Search { guess: Some(scenario.rate()), precision: self.effort.precision };
        self.spread(contenders, |contender| {
            let rate = goodput(&scenario, contender.policy, search);
            (rate > 0.0 && rate.is_finite())
                .then(|| (rate, run(&scenario.scaled(rate / scenario.rate()), contender.policy)))
        })
    }

    /// The fewest executors with which each policy serves this rate. `None`, if `most` are not
    /// enough.
    pub fn fewest(
        &self,
        pool: &Pool,
        rate: f64,
        contenders: &[Contender],
        most: usize,
    ) -> Vec<Option<usize>> {
        let requests = self.effort.requests.max((self.effort.seconds * rate) as u64);
        let scenario = pool.scenario(rate, requests, self.seed);
        self.spread(contenders, |contender| min_executors(&scenario, contender.policy, most))
    }

    /// Does the same to every item, on several threads, and tells the meter.
    pub fn spread<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        self.meter.expect(items.len());
        spread(items, self.threads, |item| {
            let result = work(item);
            self.meter.finish_one();
            result
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::trials::symphony::model::Model;

    /// As small as still says something.
    pub(in super::super) const TINY: Lab<'static> = Lab {
        effort: Effort { requests: 3_000, seconds: 0.0, precision: 0.005 },
        seed: 1,
        threads: 1,
        meter: &(),
    };

    #[test]
    fn goodputs_are_below_the_bound_and_in_the_order_of_the_policies() {
        let pool = Pool::alike(&Model::resnet50(25.0), 1, 8);
        let contenders = Contender::all(&["deferred", "clockwork"]);
        let found = TINY.goodputs(&pool, &contenders);
        assert!(found[0] > found[1] && found[0] < 1.05 * pool.bound(), "{found:?}");
        let at = TINY.at_goodput(&pool, &contenders[..1]);
        let (rate, stats) = at[0].as_ref().unwrap();
        assert_eq!(*rate, found[0]);
        assert!(stats.worst_bad_rate() <= 0.01);
        let fewest = TINY.fewest(&pool, found[0], &contenders, 64);
        assert!(fewest[0] <= Some(8) && fewest[1] > fewest[0], "{fewest:?}");
    }

    #[test]
    fn runs_are_long_enough_by_count_and_by_time() {
        let effort = Effort { requests: 1000, seconds: 2.0, precision: 0.005 };
        assert_eq!(effort.requests_on(&Pool::alike(&Model::resnet50(25.0), 1, 8)), 11678);
        assert_eq!(effort.requests_on(&Pool::alike(&Model::resnet50(20.0), 1, 1)), 1000);
        let wide = Pool::alike(&Model::resnet50(100.0), 20, 512);
        let few = Effort { requests: 1, seconds: 0.0, precision: 0.005 };
        assert_eq!(few.requests_on(&wide), (0.5 * wide.bound()) as u64);
    }
}
