//! The planner's advice followed in a loop: a load that steps up and down, and a pool that follows
//! it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use fermata_core::{ClassId, Span, Time};
use fermata_dispatch::{Network, Policy};
use fermata_experiments::trials::symphony::{find, zoo_a100};
use fermata_plan::advice::{Advisor, Observed};
use fermata_sim::{
    Arrivals, Checker, Control, End, Load, Promises, Scenario, Seen, min_executors,
    simulate_controlled,
};
use fermata_workload::{Process, Rate};

/// How long an interval lasts.
const INTERVAL: Span = Span(500_000_000);
/// How many intervals each step of the load lasts, and how many of them the pool may take to
/// follow.
const STEP: usize = 30;
const SETTLING: usize = 20;

/// Follows the advice, and writes down what happened.
struct Follower {
    advisor: Advisor,
    next: Time,
    last: Seen,
    /// Of each interval.
    seen: Vec<Observed>,
}

impl Control for Follower {
    fn most(&self) -> usize {
        200
    }

    fn next(&self) -> Time {
        self.next
    }

    fn executors(&mut self, now: Time, seen: &Seen) -> usize {
        let sum = |counts: &[u64]| counts.iter().sum::<u64>();
        let bad = sum(&seen.bad) - sum(&self.last.bad);
        let all = bad + sum(&seen.in_time) - sum(&self.last.in_time);
        let observed = Observed {
            executors: seen.executors,
            bad: bad as f64 / all.max(1) as f64,
            busy: (seen.busy - self.last.busy).as_secs()
                / (INTERVAL.as_secs() * seen.executors as f64),
            filled: f64::INFINITY,
        };
        self.seen.push(observed);
        self.last = seen.clone();
        self.next = now + INTERVAL;
        self.advisor.advise(observed)
    }
}

/// Three models at a rate that changes in steps.
fn scenario(rates: &[f64]) -> Scenario {
    let zoo = zoo_a100();
    let load = |name: &str| {
        let steps = rates
            .iter()
            .enumerate()
            .map(|(at, &rate)| (Time::START + INTERVAL * (at * STEP) as u64, rate / 3.0));
        Load::new(
            find(&zoo, name).spec(),
            Arrivals::Process(Process::Poisson, Rate::Steps(steps.collect())),
        )
    };
    Scenario {
        loads: ["ResNet50", "InceptionV3", "DenseNet121"].map(load).into(),
        executors: vec![ClassId(0); 4],
        network: Network::default(),
        end: End::At(Time::START + INTERVAL * (rates.len() * STEP) as u64),
        seed: 1,
        noise: 0.0,
        faults: Vec::new(),
    }
}

#[test]
fn a_pool_follows_its_load_up_and_down() {
    let policy = Policy::RELEASE;
    let rates = [6000.0, 18_000.0, 40_000.0, 22_000.0, 7000.0];
    let scenario = scenario(&rates);
    let mut follower = Follower {
        advisor: Advisor::default(),
        next: Time::START + INTERVAL,
        last: Seen { offered: vec![0; 3], in_time: vec![0; 3], bad: vec![0; 3], ..Seen::default() },
        seen: Vec::new(),
    };
    let mut checker = Checker::new(scenario.network, Promises::EARLY_DROP);
    let mut dispatcher = policy.dispatcher(scenario.network);
    simulate_controlled(&scenario, &mut dispatcher, &mut checker, &mut follower);
    checker.end();

    for (at, &rate) in rates.iter().enumerate() {
        let steady = self::scenario(&[rate]);
        let fewest = min_executors(&steady, policy, 200).unwrap() as f64;
        let settled = &follower.seen[at * STEP + SETTLING..];
        let settled = &settled[..settled.len().min(STEP - SETTLING)];
        let mean = |value: fn(&Observed) -> f64| {
            settled.iter().map(value).sum::<f64>() / settled.len() as f64
        };
        let (executors, bad) = (mean(|seen| seen.executors as f64), mean(|seen| seen.bad));
        let sizes: Vec<usize> = follower.seen.iter().map(|seen| seen.executors).collect();
        assert!(bad <= 0.01, "{rate}: {bad}, {sizes:?}");
        assert!(executors <= 1.15 * fewest, "{rate}: {executors} for {fewest}, {sizes:?}");
    }
}
