//! Simulations of random options, every policy, with the checker on. A failure is one seed.
//!
//! `FERMATA_SEEDS=100` runs more of them, `FERMATA_SEED=7` exactly one. The seed and its options
//! are printed first; with the commit they repeat the run.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, Growth, KindId, Profile, Span, Spread, Time};
use fermata_dispatch::{ModelSpec, Network, Policy};
use fermata_sim::{
    Checker, Delayed, End, Fault, FaultKind, Load, Log, Promises, Scenario, Sizes, Stats, simulate,
};
use fermata_workload::Process;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Every name that `Policy` knows, and what it promises.
const POLICIES: [(&str, Promises); 18] = [
    ("clipper", Promises::NONE),
    ("clockwork", Promises::NONE),
    ("deferred", Promises::EARLY_DROP),
    ("deferred-prefix", Promises::ALL),
    ("eager", Promises::EARLY_DROP),
    ("eager-prefix", Promises::ALL),
    ("fermata", Promises::EARLY_DROP),
    ("fermata:fixed", Promises::EARLY_DROP),
    ("fermata:release", Promises::EARLY_DROP),
    ("fermata:release:fixed", Promises::EARLY_DROP),
    ("nexus", Promises::NONE),
    ("orloj", Promises::ALL),
    ("shepherd", Promises::NONE),
    ("tfserving", Promises::NONE),
    ("timeout:20%", Promises::EARLY_DROP),
    ("timeout:20%-prefix", Promises::ALL),
    ("timeout:4ms", Promises::EARLY_DROP),
    ("timeout:4ms-prefix", Promises::ALL),
];
const SEEDS: u64 = 6;
const REQUESTS: u64 = 2500;

/// First of all, since without it a seed says nothing.
#[test]
fn the_same_seed_twice_gives_the_same_actions() {
    for seed in seeds().take(2) {
        let scenario = options(seed);
        for (name, promises) in POLICIES {
            let [once, twice] = [(), ()].map(|()| checked(&scenario, name, promises));
            assert!(once.1.bytes == twice.1.bytes, "seed {seed}: {name} differs from itself");
            assert_eq!(once, twice, "seed {seed}: {name} differs from itself");
        }
    }
}

#[test]
fn random_options_keep_the_invariants() {
    for seed in seeds() {
        let scenario = options(seed);
        println!("seed {seed}: {scenario:#?}");
        for (name, promises) in POLICIES {
            println!("seed {seed}: {name}");
            let (stats, log) = checked(&scenario, name, promises);
            let total = stats.total();
            let left = total.in_time + total.late + total.dropped + total.cancelled;
            assert_eq!(total.offered, left, "seed {seed}: {name} lost requests");
            assert_eq!(total.offered, log.entered);
            assert_eq!(total.dropped + total.cancelled, log.dropped);
            let perfect = scenario.noise == 0.0
                && !scenario.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Slow(_)));
            if perfect && promises.in_time {
                assert_eq!(total.late, 0, "seed {seed}: {name} is late in a perfect world");
            }
        }
    }
}

/// The machines of a pool on threads of their own, as far as virtual time can tell.
#[test]
fn messages_that_take_their_time_break_no_invariant() {
    for seed in seeds() {
        let scenario = options(seed);
        println!("seed {seed}: {scenario:#?}");
        for (name, promises) in POLICIES {
            let Some(rules) = name.parse::<Policy>().unwrap().rules() else { continue };
            for (shards, longest) in [(1, 0), (2, 20_000), (3, 1_000_000)] {
                println!("seed {seed}: {name}, {shards} shards, {longest} ns");
                let longest = Span(longest);
                let mut pool = Delayed::new(rules, scenario.network, shards, 2, longest, seed);
                let mut checker = Checker::new(scenario.network, promises);
                let total = simulate(&scenario, &mut pool, &mut checker, None).total();
                let left = total.in_time + total.late + total.dropped + total.cancelled;
                assert_eq!(total.offered, left, "seed {seed}: {name} lost requests");
                assert_eq!(total.offered, checker.end().entered);
            }
        }
    }
}

/// Models whose run time depends on the request, beside others: all policies see them, by their
/// means if they know no better.
#[test]
fn run_times_that_nobody_knows_break_no_invariant() {
    for seed in seeds() {
        let scenario = uncertain(seed);
        println!("seed {seed}: {scenario:#?}");
        for (name, _) in POLICIES {
            println!("seed {seed}: {name}");
            let is_ours = name.starts_with("fermata");
            let promises = if is_ours { Promises::UNCERTAIN } else { Promises::NONE };
            let [once, twice] = [(), ()].map(|()| checked(&scenario, name, promises));
            assert!(once.1.bytes == twice.1.bytes, "seed {seed}: {name} differs from itself");
            let total = once.0.total();
            let left = total.in_time + total.late + total.dropped + total.cancelled;
            assert_eq!(total.offered, left, "seed {seed}: {name} lost requests");
            let Some(rules) = name.parse::<Policy>().unwrap().rules() else { continue };
            let mut pool = Delayed::new(rules, scenario.network, 2, 2, Span(20_000), seed);
            let mut checker = Checker::new(scenario.network, Promises::NONE);
            let total = simulate(&scenario, &mut pool, &mut checker, None).total();
            assert_eq!(total.offered, checker.end().entered, "seed {seed}: {name} in pieces");
        }
    }
}

fn seeds() -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("FERMATA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FERMATA_SEEDS").unwrap_or(SEEDS),
    }
}

fn checked(scenario: &Scenario, policy: &str, promises: Promises) -> (Stats, Log) {
    let mut dispatcher = policy.parse::<Policy>().unwrap().dispatcher(scenario.network);
    let mut checker = Checker::new(scenario.network, promises).recording();
    let stats = simulate(scenario, &mut dispatcher, &mut checker, None);
    (stats, checker.end())
}

/// A scenario that is all the seed's.
fn options(seed: u64) -> Scenario {
    let random = &mut Pcg64Mcg::seed_from_u64(seed);
    let classes = if random.random_bool(0.3) { 2 } else { 1 };
    let executors: Vec<ClassId> = (0..random.random_range(1..=20))
        .map(|_| ClassId(random.random_range(0..classes)))
        .collect();
    let specs: Vec<_> =
        (0..random.random_range(1..=12)).map(|_| Arc::new(spec(random, classes))).collect();
    // From nearly idle to twice what the executors could do with large batches.
    let load = random.random_range(0.05..2.0) * executors.len() as f64;
    let each = load / specs.len() as f64;
    let loads: Vec<Load> = specs
        .into_iter()
        .map(|spec| {
            let profile = spec.profiles.iter().flatten().next().expect("it runs on some class");
            let rate = each / (profile.cost(profile.max_batch().div_ceil(2)) / 1e9);
            let process = match random.random_range(0..3) {
                0 => Process::Poisson,
                1 => Process::Uniform,
                _ => Process::Gamma(random.random_range(0.05..2.0)),
            };
            Load::steady(spec, process, rate)
        })
        .collect();
    let us = |random: &mut Pcg64Mcg, most: u64| Span(random.random_range(0..=most) * 1000);
    let network = match random.random_range(0..3) {
        0 => Network { ctrl: us(random, 2000), data: us(random, 300), resp: us(random, 2000) },
        1 => Network { ctrl: us(random, 100), data: us(random, 20), resp: us(random, 100) },
        _ => Network::default(),
    };
    let noise = if random.random_bool(0.3) { random.random_range(0.0..0.3) } else { 0.0 };
    let seconds = REQUESTS as f64 / loads.iter().map(Load::rate).sum::<f64>();
    let faults = if random.random_bool(0.5) {
        faults(random, &executors, classes, seconds)
    } else {
        Vec::new()
    };
    Scenario { loads, executors, network, end: End::Requests(REQUESTS), seed, noise, faults }
}

/// The same, with models of which every request takes a time of its own; some requests are of kinds
/// that nobody measured.
fn uncertain(seed: u64) -> Scenario {
    let mut scenario = options(seed);
    let random = &mut Pcg64Mcg::seed_from_u64(seed ^ 0xD1CE);
    for load in &mut scenario.loads {
        let kinds = random.random_range(1..=8);
        let alone = load.spec.slo.0 as f64 * random.random_range(0.05..0.5);
        let run = |random: &mut Pcg64Mcg, kind: usize| {
            Span((alone * (kind + 1) as f64 * random.random_range(0.1..1.5)) as u64)
        };
        let mut runs = |kind: usize| (0..30).map(|_| run(random, kind)).collect::<Vec<_>>();
        let measured = (0..kinds).map(|kind| (1.0 / kinds as f32, runs(kind))).collect();
        let growth = Growth { fixed: 0.1 * alone, base: 0.7, each: 0.3 };
        let max_batch = random.random_range(1..=20);
        let spread = Arc::new(Spread::new(&measured, growth, max_batch).unwrap());
        let known =
            load.spec.profiles.iter().map(|profile| {
                profile.as_ref().map(|_| Arc::new(Profile::spread_out(spread.clone())))
            });
        load.spec = Arc::new(ModelSpec::new(load.spec.slo, known.collect()));
        let requests = (0..REQUESTS).map(|_| {
            let kind = random.random_range(0..=kinds);
            (run(random, kind.min(kinds - 1)), KindId(kind as u16))
        });
        load.sizes = Some(Arc::new(Sizes { requests: requests.collect(), growth }));
    }
    scenario
}

fn spec(random: &mut Pcg64Mcg, classes: u16) -> ModelSpec {
    let (alpha, beta) = (random.random_range(0.05..8.0), random.random_range(0.0..15.0));
    let slo = Span::from_ms((alpha + beta) * random.random_range(1.1..8.0));
    let mut profiles: Vec<_> = (0..classes)
        .map(|class| {
            let slower = 1.0 + f64::from(class) * random.random_range(-0.5..1.0);
            let [alpha, beta] = [alpha * slower, beta * slower].map(Span::from_ms);
            let profile = Profile::linear(alpha, beta, slo).expect("latencies above zero");
            random.random_bool(0.9).then(|| Arc::new(profile))
        })
        .collect();
    if profiles.iter().all(Option::is_none) {
        let profile = Profile::linear(Span::from_ms(alpha), Span::from_ms(beta), slo);
        profiles[0] = Some(Arc::new(profile.expect("latencies above zero")));
    }
    ModelSpec::new(slo, profiles)
}

/// What an executor can go through, without contradicting itself.
fn faults(random: &mut Pcg64Mcg, executors: &[ClassId], classes: u16, seconds: f64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut add = |secs: f64, id: usize, kind| {
        let at = Time::START + Span::from_secs(secs);
        faults.push(Fault { at, executor: ExecutorId(id as u32), kind });
    };
    for id in 0..executors.len() {
        let at = random.random_range(0.0..seconds);
        let later = at + random.random_range(0.0..seconds);
        match random.random_range(0..6) {
            0 => {
                add(at, id, FaultKind::Crash);
                add(later, id, FaultKind::Join(ClassId(random.random_range(0..classes))));
            }
            1 => add(at, id, FaultKind::Leave),
            2 => {
                add(at, id, FaultKind::Slow(random.random_range(0.5..4.0)));
                add(later, id, FaultKind::Slow(1.0));
            }
            3 => {
                add(at, id, FaultKind::Leave);
                add(later, id, FaultKind::Crash);
            }
            _ => {}
        }
    }
    for id in executors.len()..executors.len() + random.random_range(0..3) {
        let class = ClassId(random.random_range(0..classes));
        add(random.random_range(0.0..seconds), id, FaultKind::Join(class));
    }
    faults
}
