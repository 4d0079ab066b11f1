//! The latency of every request of a run, to the nanosecond: histograms are too coarse to compare a
//! policy with what is asked of it.

use fermata_core::Span;
use fermata_dispatch::Policy;

use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::world::{Observer, Run, simulate};

/// What a run took, and its counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// Of each model, from arrival to answer, of those answered, ascending.
    pub by_model: Vec<Vec<Span>>,
    /// The counts.
    pub stats: Stats,
}

impl Latencies {
    /// Runs a scenario under a policy.
    pub fn of(scenario: &Scenario, policy: Policy) -> Self {
        let by_model = vec![Vec::new(); scenario.loads.len()];
        let mut recorder = Recorder { by_model, resp: scenario.network.resp };
        let mut dispatcher = policy.dispatcher(scenario.network);
        let stats = simulate(scenario, &mut dispatcher, &mut recorder, None);
        let mut by_model = recorder.by_model;
        by_model.iter_mut().for_each(|latencies| latencies.sort_unstable());
        Self { by_model, stats }
    }

    /// The latency that `share` of all answered requests do not exceed; zero if there are none.
    pub fn quantile(&self, share: f64) -> Span {
        let mut all: Vec<Span> = self.by_model.iter().flatten().copied().collect();
        all.sort_unstable();
        quantile(&all, share)
    }

    /// The same of each model, over its objective.
    pub fn over_slo(&self, scenario: &Scenario, share: f64) -> Vec<f64> {
        let each = self.by_model.iter().zip(&scenario.loads);
        each.map(|(latencies, load)| quantile(latencies, share).as_ms() / load.slo().as_ms())
            .collect()
    }
}

/// The value that `share` of all are not above, of values that ascend; zero if there are none.
pub(crate) fn quantile(ascending: &[Span], share: f64) -> Span {
    let rank = (share * ascending.len() as f64).ceil().max(1.0) as usize;
    ascending.get(rank.min(ascending.len()).saturating_sub(1)).copied().unwrap_or_default()
}

struct Recorder {
    by_model: Vec<Vec<Span>>,
    /// From the end of a batch to its clients.
    resp: Span,
}

impl Observer for Recorder {
    fn finished(&mut self, run: &Run) {
        let answered = run.finish + self.resp;
        let latencies = run.requests.iter().map(|request| answered - request.arrival);
        self.by_model[run.model.index()].extend(latencies);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fermata_core::{ClassId, Profile};
    use fermata_dispatch::{ModelSpec, Network};
    use fermata_workload::Process;

    use super::*;
    use crate::scenario::{End, Load};

    #[test]
    fn latencies_are_those_of_the_histograms_and_finer() {
        let [alpha, beta, slo] = [1.053, 5.072, 25.0].map(Span::from_ms);
        let profile = Profile::linear(alpha, beta, slo).unwrap();
        let spec = Arc::new(ModelSpec::uniform(slo, profile));
        let scenario = Scenario {
            loads: vec![Load::steady(spec, Process::Poisson, 150.0); 2],
            executors: vec![ClassId(0); 2],
            network: Network::default(),
            end: End::Requests(2_000),
            seed: 1,
            noise: 0.0,
            faults: Vec::new(),
        };
        let found = Latencies::of(&scenario, "eager".parse().unwrap());
        let total = found.stats.total();
        assert_eq!(
            found.by_model.iter().map(Vec::len).sum::<usize>() as u64,
            total.in_time + total.late
        );
        for share in [0.5, 0.99] {
            let (fine, coarse) = (found.quantile(share), total.latency.quantile(share));
            assert!(fine <= coarse && coarse.as_ms() <= 1.02 * fine.as_ms(), "{fine} {coarse}");
        }
        let over = found.over_slo(&scenario, 0.5);
        assert!(over.len() == 2 && over.iter().all(|&over| over > 0.24 && over < 1.0), "{over:?}");
    }

    #[test]
    fn quantiles_are_values_that_occur() {
        let values = [Span(1), Span(2), Span(9)];
        assert_eq!(
            [0.0, 0.5, 1.0].map(|share| quantile(&values, share)),
            [Span(1), Span(2), Span(9)]
        );
        assert_eq!(quantile(&[], 0.5), Span::ZERO);
    }
}
