//! Orloj's policy on the loads of its text: the finish rates that it reports.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use fermata_core::{ClassId, Growth, KindId, Profile, Span, Spread};
use fermata_dispatch::{ModelSpec, Network, Policy};
use fermata_sim::{End, Load, Scenario, Sizes, simulate};
use fermata_workload::Process;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64Mcg;

const MAX_BATCH: usize = 16;

/// Two applications whose requests take 50 and 150 ms alone, with a deviation of 10.
struct Bimodal {
    growth: Growth,
    load: f64,
    requests: usize,
    seed: u64,
}

impl Bimodal {
    fn draw(random: &mut Pcg64Mcg) -> (Span, KindId) {
        let kind = random.random_range(0..2u16);
        let ms = Normal::new([50.0, 150.0][usize::from(kind)], 10.0).unwrap().sample(random);
        (Span::from_ms(f64::max(ms, 1.0)), KindId(kind))
    }

    /// The share of requests that are answered within so many times the longest but one in a hundred.
    fn finish_rate(&self, policy: &str, times: f64) -> f64 {
        let random = &mut Pcg64Mcg::seed_from_u64(self.seed);
        let seen: Vec<_> = (0..20_000).map(|_| Self::draw(random)).collect();
        let of = |kind| seen.iter().filter(move |run| run.1 == kind).map(|run| run.0);
        let measured = [KindId(0), KindId(1)].map(|kind| (0.5, of(kind).collect())).to_vec();
        let profile =
            Profile::spread_out(Arc::new(Spread::new(&measured, self.growth, MAX_BATCH).unwrap()));
        let best = (1..=MAX_BATCH).map(|size| 1e9 / profile.cost(size)).fold(0.0, f64::max);
        let mut alone: Vec<Span> = seen.iter().map(|run| run.0).collect();
        alone.sort();
        let slo = Span::from_ms(times * alone[alone.len() * 99 / 100].as_ms());
        let spec = Arc::new(ModelSpec::uniform(slo, profile));
        let mut load = Load::steady(spec, Process::Poisson, self.load * best);
        let requests = (0..self.requests).map(|_| Self::draw(random)).collect();
        load.sizes = Some(Arc::new(Sizes { requests, growth: self.growth }));
        let scenario = Scenario {
            loads: vec![load],
            executors: vec![ClassId(0)],
            network: Network::default(),
            end: End::Requests(self.requests as u64),
            seed: self.seed,
            noise: 0.0,
            faults: Vec::new(),
        };
        let mut dispatcher = policy.parse::<Policy>().unwrap().dispatcher(Network::default());
        let total = simulate(&scenario, &mut dispatcher, &mut (), None).total();
        total.in_time as f64 / total.offered as f64
    }
}

#[test]
fn scan() {
    for (name, growth, load) in [
        ("A", Growth { fixed: 0.0, base: 0.95, each: 0.05 }, 0.5),
        ("B", Growth { fixed: 0.0, base: 0.8, each: 0.2 }, 0.8),
    ] {
        let mut line = String::new();
        for times in [1.5, 2.0, 3.0, 4.0, 5.0] {
            let rates: Vec<f64> = (0..5)
                .map(|seed| {
                    Bimodal { growth, load, requests: 20_000, seed }.finish_rate("orloj", times)
                })
                .collect();
            let mean = rates.iter().sum::<f64>() / 5.0;
            let dev = (rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / 4.0).sqrt();
            line += &format!(" {mean:.3}±{dev:.3}");
        }
        println!("{name}{line}");
    }
}
