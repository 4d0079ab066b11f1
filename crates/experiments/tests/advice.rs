//! The advice on executors is the same for the same load, whatever spare executors are for.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use fermata_core::{ClassId, Span, Time};
use fermata_dispatch::{Network, Policy, Rules};
use fermata_experiments::trials::symphony::{find, zoo_a100};
use fermata_plan::advice::{Observed, needed};
use fermata_plan::staggered_load;
use fermata_sim::{End, Load, Scenario, run};
use fermata_workload::Process;

const EXECUTORS: usize = 40;

/// Three models of the zoo on a pool that is too large for them.
fn scenario(rate: f64) -> Scenario {
    let zoo = zoo_a100();
    let load = |name: &str| Load::steady(find(&zoo, name).spec(), Process::Poisson, rate / 3.0);
    Scenario {
        loads: ["ResNet50", "InceptionV3", "DenseNet121"].map(load).into(),
        executors: vec![ClassId(0); EXECUTORS],
        network: Network::default(),
        end: End::At(Time::START + Span::from_secs(5.0)),
        seed: 1,
        noise: 0.0,
        faults: Vec::new(),
    }
}

/// What the executors do under a policy; where it uses spare ones, with what the rates say.
fn observed(scenario: &Scenario, policy: Policy, uses_spare: bool) -> Observed {
    let stats = run(scenario, policy);
    let filled = |load: &Load| {
        let profile = load.spec.profile(ClassId(0)).unwrap();
        staggered_load(profile, load.slo(), load.rate())
    };
    Observed {
        executors: EXECUTORS,
        bad: stats.total().bad_rate(),
        busy: stats.busy_fraction(),
        filled: match uses_spare {
            true => scenario.loads.iter().map(filled).sum(),
            false => f64::INFINITY,
        },
    }
}

#[test]
fn advice_differs_little_between_policies_that_use_spare_executors_and_that_release_them() {
    for rate in [6_000.0, 12_000.0, 18_000.0] {
        let scenario = scenario(rate);
        let release = needed(observed(&scenario, Policy::RELEASE, false));
        // Batches of one wherever an executor is idle: nothing uses spare executors more than that.
        for policy in [Policy::FERMATA, Policy::Rules(Rules::EAGER)] {
            let seen = observed(&scenario, policy, true);
            let latency = needed(seen);
            assert!(
                (latency / release - 1.0).abs() < 0.15,
                "{rate}: {release}, {policy}: {latency}"
            );
            if policy != Policy::FERMATA {
                let by_idleness = needed(Observed { filled: f64::INFINITY, ..seen });
                assert!(by_idleness > 1.5 * release, "{rate}: {by_idleness} for {release}");
            }
        }
    }
}
