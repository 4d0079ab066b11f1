//! Sub-clusters: how even, how fast, and with how few models moved (Symphony, appendix A).

use std::time::{Duration, Instant};

use fermata_plan::subclusters::{Before, Imbalance, Item, Limits, imbalance, partition};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Bench;
use crate::document::{Section, Table};

const MODELS: usize = 800;
const CLUSTERS: usize = 20;
/// A twentieth of the models.
const MOVES: usize = 40;
/// Of the models, every so-many-th gets a new rate.
const CHANGED: usize = 10;

/// Megabytes of the zoos' weights, as published with the Keras applications; MobileNetV3 and SSD by
/// their parameters, and BERT's base model.
const MEGABYTES: [u64; 37] = [
    10, 14, 16, 22, 23, 27, 29, 29, 31, 33, 34, 36, 42, 48, 57, 59, 75, 80, 88, 88, 92, 98, 98,
    118, 166, 171, 171, 215, 220, 232, 232, 256, 343, 440, 479, 528, 549,
];

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    let number = if bench.suite.quick { 3 } else { 40 };
    section.say(format!(
        "{MODELS} models into {CLUSTERS} sub-clusters, {number} times: each is a variant of a \
         model of the zoo, with the memory \
         of its published weights (10 to 549 MB) and a tenth of that while it runs, and a rate \
         drawn from an exponential \
         distribution. No cluster may be more than a tenth above the average in load or memory. \
         Imbalance is (max - min) / \
         average. *random*: the best of as many random partitions as {} ms allow. *{MOVES} moves*: \
         every tenth model has got a \
         new rate, and at most {MOVES} models (5 %) may be moved.",
        RANDOM.as_millis()
    ));
    let runs: Vec<Run> =
        (0..number).map(|at| Run::measure(bench.suite.seed.wrapping_add(at))).collect();
    let mut table = Table::new([
        "partition",
        "load: median",
        "load: worst",
        "memory: median",
        "memory: worst",
        "ms: median",
        "ms: worst",
        "asked",
    ]);
    type Which = fn(&Run) -> &Outcome;
    let rows = [
        ("random", (|run| &run.random) as Which, "-"),
        ("ours", |run| &run.fresh, "0.1 % in 100 ms"),
        ("after the change, nothing moved", |run| &run.changed, "-"),
        ("ours, 40 moves", |run| &run.moved, "0.5 %"),
    ];
    for (name, outcome, asked) in rows {
        let sorted = |value: fn(&Outcome) -> f64| -> Vec<f64> {
            let mut values: Vec<f64> = runs.iter().map(|run| value(outcome(run))).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let percent = |value: f64| format!("{:.3} %", 100.0 * value);
        let load = sorted(|outcome| outcome.imbalance.load);
        let memory = sorted(|outcome| outcome.imbalance.memory);
        let took = sorted(|outcome| outcome.took.as_secs_f64() * 1e3);
        let (middle, last) = (runs.len() / 2, runs.len() - 1);
        table.add([
            name.to_owned(),
            percent(load[middle]),
            percent(load[last]),
            percent(memory[middle]),
            percent(memory[last]),
            format!("{:.1}", took[middle]),
            format!("{:.1}", took[last]),
            asked.to_owned(),
        ]);
    }
    section.say(table.markdown());
    let heaviest = runs.iter().map(|run| run.heaviest).fold(0.0, f64::max);
    section.say(format!(
        "The heaviest model has {:.0} % of a cluster's average load at most, so that no instance \
         is impossible.",
        100.0 * heaviest
    ));
    Ok(section)
}

/// What came of one way to partition.
struct Outcome {
    imbalance: Imbalance,
    took: Duration,
}

/// One draw of models.
struct Run {
    fresh: Outcome,
    random: Outcome,
    changed: Outcome,
    moved: Outcome,
    /// The heaviest model's load over the average of a cluster.
    heaviest: f64,
}

impl Run {
    fn measure(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut model = || {
            let memory = MEGABYTES[random.random_range(0..MEGABYTES.len())] * 1_000_000;
            Item { load: exponential(&mut random), memory, workspace: memory / 10 }
        };
        let mut items: Vec<Item> = (0..MODELS).map(|_| model()).collect();
        let (limits, average) = limits(&items);
        let heaviest = items.iter().map(|item| item.load).fold(0.0, f64::max) / average;
        let outcome = |items: &[Item], cluster_of: &[usize], took| Outcome {
            imbalance: imbalance(items, CLUSTERS, cluster_of),
            took,
        };

        let start = Instant::now();
        let first = partition(&items, CLUSTERS, limits, None).expect("there is room");
        let fresh = outcome(&items, &first, start.elapsed());
        let start = Instant::now();
        let best = at_random(&items, &mut random);
        let drawn = outcome(&items, &best, start.elapsed());

        items.iter_mut().step_by(CHANGED).for_each(|item| item.load = exponential(&mut random));
        let changed = outcome(&items, &first, Duration::ZERO);
        let clusters: Vec<Option<usize>> = first.iter().copied().map(Some).collect();
        let before = Before { clusters: &clusters, moves: MOVES };
        let start = Instant::now();
        // Where everything is may be beyond the limits of a moment ago: they are not asked for
        // again.
        let second = partition(&items, CLUSTERS, Limits::NONE, Some(before));
        let second = second.expect("without limits there is room");
        let moved = outcome(&items, &second, start.elapsed());
        let moves = first.iter().zip(&second).filter(|(one, other)| one != other).count();
        assert!(moves <= MOVES, "{moves} models were moved");
        Self { fresh, random: drawn, changed, moved, heaviest }
    }
}

fn exponential(random: &mut Pcg64Mcg) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}

/// A tenth above the average, and the average load.
fn limits(items: &[Item]) -> (Limits, f64) {
    let share = |sum: f64| sum / CLUSTERS as f64;
    let load = share(items.iter().map(|item| item.load).sum());
    let memory = share(items.iter().map(|item| item.memory as f64).sum());
    let workspace = items.iter().map(|item| item.workspace).max().unwrap_or(0);
    (Limits { load: 1.1 * load, memory: (1.1 * memory) as u64 + workspace }, load)
}

/// As long as the paper's random solver would have, were it as impatient as we are.
const RANDOM: Duration = Duration::from_millis(100);

/// The best of many random partitions, by the sum of both imbalances. Limits are not asked for: it
/// would keep none.
fn at_random(items: &[Item], random: &mut Pcg64Mcg) -> Vec<usize> {
    let start = Instant::now();
    let mut best: Option<(f64, Vec<usize>)> = None;
    while start.elapsed() < RANDOM {
        let cluster_of: Vec<usize> =
            items.iter().map(|_| random.random_range(0..CLUSTERS)).collect();
        let Imbalance { load, memory } = imbalance(items, CLUSTERS, &cluster_of);
        if best.as_ref().is_none_or(|(least, _)| load + memory < *least) {
            best = Some((load + memory, cluster_of));
        }
    }
    best.expect("at least one was tried").1
}
