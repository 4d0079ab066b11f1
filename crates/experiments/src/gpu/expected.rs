//! What could be expected of a server: by the simulator with measured profiles, and by the GPU
//! alone.

use std::sync::Arc;

use fermata_core::{ClassId, Profile, Span};
use fermata_dispatch::{ModelSpec, Network, Policy};
use fermata_plan::shares::Grid;
use fermata_sim::{Arrivals, End, Load, Scenario, Search, goodput};
use fermata_workload::{Process, Rate};

/// A model of a load: its latencies by share, its objective, and its part of the load.
pub(super) struct Asked {
    pub(super) latencies: Grid,
    pub(super) slo: Span,
    pub(super) weight: f64,
}

/// How many requests are simulated at each rate.
const REQUESTS: u64 = 100_000;

/// The goodput of all models together that the simulator finds on shares of a GPU that do not
/// disturb each other. Each is an executor that is so far away, and holds all models.
pub(super) fn simulated(asked: &[Asked], shares: &[u32], network: Network, seed: u64) -> f64 {
    let load = |asked: &Asked| {
        let profile = |&percent: &u32| Some(Arc::new(asked.latencies.on_share(percent)));
        let profiles = shares.iter().map(profile).collect();
        let spec = ModelSpec::new(asked.slo, profiles);
        let arrivals = Arrivals::Process(Process::Poisson, Rate::Constant(100.0 * asked.weight));
        Load::new(Arc::new(spec), arrivals)
    };
    let scenario = Scenario {
        loads: asked.iter().map(load).collect(),
        executors: (0..shares.len() as u16).map(ClassId).collect(),
        network,
        end: End::Requests(REQUESTS),
        seed,
        noise: 0.0,
        faults: Vec::new(),
    };
    // As the server decides on GPUs, whose number is fixed.
    goodput(&scenario, Policy::FERMATA, Search::default())
}

/// The largest batch that can just be missed and still be in time, and the requests a second of
/// such batches back to back.
pub(super) fn back_to_back(profile: &Profile, slo: Span) -> (usize, f64) {
    let batch = profile.largest_within(Span(slo.0 / 2)).max(1);
    (batch, batch as f64 / profile.latency(batch).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let row = |percent: u32| {
            let latency =
                |batch: f64| Span::from_ms(1.0 + 0.1 * batch * 100.0 / f64::from(percent));
            (percent, [1.0, 64.0].map(latency).to_vec())
        };
        Grid::new(&[1, 64], &[row(20), row(100)]).unwrap()
    }

    #[test]
    fn the_batch_that_an_objective_allows_is_run_twice_within_it() {
        let (batch, rate) = back_to_back(&grid().on_share(100), Span::from_ms(10.0));
        assert_eq!(batch, 40);
        assert!((rate - 40.0 / 5e-3).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn a_simulated_gpu_serves_less_than_batches_back_to_back_and_shares_pay_for_small_batches() {
        let asked =
            |slo_ms: f64| [Asked { latencies: grid(), slo: Span::from_ms(slo_ms), weight: 1.0 }];
        let whole = simulated(&asked(10.0), &[100], Network::default(), 1);
        let (_, most) = back_to_back(&grid().on_share(100), Span::from_ms(10.0));
        assert!(whole > 0.6 * most && whole < 1.1 * most, "{whole} of {most}");
        // A millisecond of every batch is fixed, and halves of a GPU pay it at the same time.
        let near = Network::default();
        let tight = [&[100][..], &[50, 50]].map(|cut| simulated(&asked(3.0), cut, near, 1));
        assert!(tight[1] > 1.1 * tight[0], "{tight:?}");
    }
}
