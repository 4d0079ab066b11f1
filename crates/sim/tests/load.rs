//! Invariant 5: offered more than it can serve, goodput stays at its peak; offered less, the busy
//! fraction falls with the load and the high-numbered executors stay untouched, where spare
//! executors are to be released.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::sync::Arc;

use fermata_core::{ClassId, Profile, Span, Time};
use fermata_dispatch::{ModelSpec, Network, Policy};
use fermata_sim::{Checker, End, Load, Promises, Scenario, Search, Stats, goodput, simulate};
use fermata_workload::Process;

const EXECUTORS: usize = 8;
const SECONDS: f64 = 5.0;

#[test]
fn deferred_has_a_flat_top() {
    Sweep::of("deferred").is_flat(0.97);
}

#[test]
fn deferred_is_proportional() {
    Sweep::of("deferred").is_proportional(0.08);
}

#[test]
fn fermata_has_a_flat_top() {
    for name in ["fermata", "fermata:release"] {
        Sweep::of(name).is_flat(0.98);
    }
}

/// Where spare executors are used, batches are small while executors are spare, and more of them
/// are busy.
#[test]
fn fermata_is_proportional_where_spare_executors_are_released() {
    Sweep::of("fermata:release").is_proportional(0.04);
}

/// A policy under loads relative to its own peak.
struct Sweep {
    name: &'static str,
    policy: Policy,
    base: Scenario,
    peak: f64,
}

impl Sweep {
    fn of(name: &'static str) -> Self {
        let (policy, base): (Policy, _) = (name.parse().unwrap(), scenario());
        let search = Search { precision: 0.02, ..Search::default() };
        let peak = goodput(&base, policy, search);
        Self { name, policy, base, peak }
    }

    fn at(&self, share: f64) -> Stats {
        let scenario = self.base.scaled(share * self.peak / self.base.rate());
        let mut checker = Checker::new(scenario.network, Promises::EARLY_DROP);
        let mut dispatcher = self.policy.dispatcher(scenario.network);
        let stats = simulate(&scenario, &mut dispatcher, &mut checker, None);
        checker.end();
        stats
    }

    /// Overload leaves at least this share of the peak.
    fn is_flat(&self, least: f64) {
        let rate = |share| self.at(share).total().in_time as f64 / SECONDS;
        let peak = rate(1.0);
        for share in [1.1, 1.5, 3.0] {
            let kept = rate(share) / peak;
            assert!(kept >= least, "{}: {kept:.3} of the peak at {share} of its load", self.name);
        }
    }

    /// The busy fraction is this near to its line.
    fn is_proportional(&self, off: f64) {
        let (name, full) = (self.name, self.at(1.0).busy_fraction());
        let mut above = full;
        for share in [0.7, 0.5, 0.3, 0.1] {
            let (busy, line) = (self.at(share).busy_fraction(), share * full);
            assert!((busy - line).abs() < off, "{name}: busy {busy:.3}, not {line:.3}, at {share}");
            assert!(busy < above, "{name}: no less busy at {share}");
            above = busy;
        }
        let untouched = EXECUTORS - self.at(0.1).executors_used();
        assert!(untouched >= EXECUTORS / 4, "{name}: only {untouched} untouched at a tenth");
    }
}

/// Four ResNet50 with an SLO that leaves room for batches.
fn scenario() -> Scenario {
    let ms = Span::from_ms;
    let profile = Profile::linear(ms(1.053), ms(5.072), ms(60.0)).unwrap();
    let spec = Arc::new(ModelSpec::uniform(ms(60.0), profile));
    Scenario {
        loads: (0..4).map(|_| Load::steady(spec.clone(), Process::Poisson, 1000.0)).collect(),
        executors: vec![ClassId(0); EXECUTORS],
        network: Network::default(),
        end: End::At(Time::START + Span::from_secs(SECONDS)),
        seed: 5,
        noise: 0.0,
        faults: Vec::new(),
    }
}
