//! A pool of executors with its models, the load on it, and the most that staggered execution could
//! do.

use fermata_core::{ClassId, Profile, Span, Table};
use fermata_dispatch::Network;
use fermata_plan::staggered_batch;
use fermata_sim::{Arrivals, End, Load, Scenario};
use fermata_workload::{Gaps, Popularity, Process, Rate};

use super::model::Model;

/// Models on executors, and how they are asked for.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The models.
    pub models: Vec<Model>,
    /// How popular each is.
    pub popularity: Popularity,
    /// How their requests are spread.
    pub process: Process,
    /// How many executors there are.
    pub executors: usize,
    /// How far away they are.
    pub network: Network,
}

/// Longer tables begin again: by then every model is at another place of its own table.
const TABLE_MAX: usize = 1 << 20;

/// A search that looks around this share of the bound seldom looks far.
const LIKELY_SHARE: f64 = 0.85;

/// A run is at least so many of the longest SLOs long: what waits at its end is then a small part.
const SLOS_MIN: f64 = 5.0;

impl Pool {
    /// Equally popular models under Poisson arrivals, the executors next to the dispatcher.
    pub fn new(models: Vec<Model>, executors: usize) -> Self {
        Self {
            models,
            popularity: Popularity::Equal,
            process: Process::Poisson,
            executors,
            network: Network::default(),
        }
    }

    /// Several copies of one model.
    pub fn alike(model: &Model, copies: usize, executors: usize) -> Self {
        Self::new(vec![model.clone(); copies], executors)
    }

    /// A rate near which the goodput is likely to be.
    pub fn likely_rate(&self) -> f64 {
        let bound = self.bound();
        // Where nothing can be served in time, some rate must still be asked for.
        if bound > 0.0 { LIKELY_SHARE * bound } else { self.executors as f64 }
    }

    /// The fewest requests that say anything: in a shorter run the executors could serve all of
    /// them in time at any rate.
    pub fn requests_min(&self) -> u64 {
        let slo_ms = self.models.iter().map(|model| model.slo_ms).fold(0.0, f64::max);
        (SLOS_MIN * slo_ms / 1e3 * self.bound()) as u64
    }

    /// A run of so many requests at a total rate, from gaps drawn here: clones share them, so that
    /// policies and rates are compared on the same random numbers.
    pub fn scenario(&self, rate: f64, requests: u64, seed: u64) -> Scenario {
        let shares = self.popularity.shares(self.models.len());
        let loads = self.models.iter().zip(shares).enumerate().map(|(number, (model, share))| {
            let expected = requests as f64 * share;
            // A model may have a few more than expected before all have come.
            let gaps = (expected + 6.0 * expected.sqrt() + 100.0) as usize;
            let table = Gaps::new(self.process, seed, number as u64).table(gaps.min(TABLE_MAX));
            Load::new(model.spec(), Arrivals::Table(table, Rate::Constant(rate * share)))
        });
        Scenario {
            loads: loads.collect(),
            executors: vec![ClassId(0); self.executors],
            network: self.network,
            end: End::Requests(requests),
            seed,
            noise: 0.0,
            faults: Vec::new(),
        }
    }

    /// The highest rate of staggered execution (Symphony 3.3, equations 1 and 2). Each model's
    /// batch is the largest with which `l(b)` and the wait of its first request for its last fit
    /// into the SLO; all of them together may take the time of all executors. For one model on `N`
    /// executors that is the paper's `(1 + 1/N) l(b) <= SLO` at the rate `N b / l(b)`, except that
    /// the wait ends with the last arrival. It is a bound for regular arrivals: random ones mostly
    /// do worse, but the hundredth that may be lost, and bursts that fill large batches at once,
    /// let them do a little better now and then.
    pub fn bound(&self) -> f64 {
        let reaches: Vec<Option<Reach>> =
            self.models.iter().map(|model| Reach::new(model, self.network)).collect();
        let Some(reaches) = reaches.into_iter().collect::<Option<Vec<Reach>>>() else {
            return 0.0;
        };
        let shares = self.popularity.shares(self.models.len());
        let demand = |rate: f64| -> f64 {
            reaches.iter().zip(&shares).map(|(reach, share)| reach.demand(rate * share)).sum()
        };
        let executors = self.executors as f64;
        let mut high = 1.0;
        while demand(high) <= executors {
            high *= 2.0;
        }
        let mut low = 0.0;
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if demand(middle) <= executors { low = middle } else { high = middle }
        }
        low
    }
}

/// One model as seen through the network.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Executor time by batch size.
    profile: Profile,
    /// The same with the way to the executor.
    reach: Table,
    /// What of the SLO is left after the way back.
    budget: Span,
}

impl Reach {
    /// `None`, if not even one request can be answered in time.
    pub fn new(model: &Model, network: Network) -> Option<Self> {
        let (profile, slo) = (model.profile(), Span::from_ms(model.slo_ms));
        let reach = network.reach(&profile);
        let budget = slo - network.resp;
        (reach.largest_within(budget) > 0).then_some(Self { profile, reach, budget })
    }

    /// How many executors this rate keeps busy in staggered execution.
    pub fn demand(&self, rate: f64) -> f64 {
        let batch = staggered_batch(&self.reach, self.budget, rate);
        rate * self.profile.cost(batch) / 1e9
    }
}

/// The rate of executors that know nothing of each other (Symphony 5.3): a request waits for a
/// whole batch, so `2 l(b) <= SLO`.
pub fn uncoordinated(model: &Model, executors: usize) -> f64 {
    let batch = ((model.slo_ms / 2.0 - model.beta_ms) / model.alpha_ms).floor();
    if batch >= 1.0 {
        executors as f64 * batch / model.latency_ms(batch as usize) * 1e3
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_table_2_are_those_the_paper_prints() {
        for (model, staggered, alone) in
            [(Model::resnet50(25.0), 5839, 4501), (Model::inception_resnet(70.0), 1083, 713)]
        {
            let pool = Pool::alike(&model, 1, 8);
            assert_eq!(pool.bound().round() as u64, staggered);
            assert_eq!(uncoordinated(&model, 8).round() as u64, alone);
        }
    }

    #[test]
    fn distance_lowers_the_bound_until_nothing_is_in_time() {
        let mut pool = Pool::alike(&Model::resnet50(20.0), 20, 32);
        let mut last = f64::INFINITY;
        for ctrl_ms in [0.0, 2.0, 5.0, 10.0, 40.0] {
            pool.network.ctrl = Span::from_ms(ctrl_ms);
            let bound = pool.bound();
            assert!(bound < last, "{ctrl_ms}");
            last = bound;
        }
        assert_eq!(last, 0.0);
    }

    #[test]
    fn popularity_changes_a_bound_only_through_batches() {
        let equal = Pool::alike(&Model::resnet50(25.0), 20, 32);
        let skewed = Pool { popularity: Popularity::Zipf(0.9), ..equal.clone() };
        let (equal, skewed) = (equal.bound(), skewed.bound());
        assert!((skewed / equal - 1.0).abs() < 0.1, "{equal} {skewed}");
    }
}
