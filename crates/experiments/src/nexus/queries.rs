//! Queries: the split against all other splits, the paper's grid and equal parts, and how long it
//! takes.

use std::hint::black_box;
use std::time::Instant;

use fermata_core::{Profile, Span};
use fermata_plan::query::{Budget, Query, Stage, even_split, split};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Bench;
use super::oracle::{every_batch, every_tree_split, on_a_grid};
use crate::document::{Section, Table};
use crate::trials::symphony::{Model, find, zoo_1080ti, zoo_a100};

const BATCH_MAX: u64 = 64;
/// The fastest of so many calls is the time: others use this machine too.
const CALLS: usize = 3;

/// What kind of queries are drawn.
struct Kind {
    name: &'static str,
    stages: std::ops::RangeInclusive<usize>,
    /// Only powers of two.
    powers: bool,
    joins: bool,
    /// Whether all other splits can be tried.
    tried: bool,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "trees of 2 to 8 stages, batches 1, 2, 4 ... 64",
        stages: 2..=8,
        powers: true,
        joins: false,
        tried: true,
    },
    Kind {
        name: "trees of 2 to 4 stages, batches 1 to 64",
        stages: 2..=4,
        powers: false,
        joins: false,
        tried: true,
    },
    Kind {
        name: "trees of 2 to 8 stages, batches 1 to 64",
        stages: 2..=8,
        powers: false,
        joins: false,
        tried: false,
    },
    Kind {
        name: "fork-join of 4 to 7 stages, batches 1, 2, 4 ... 64",
        stages: 4..=7,
        powers: true,
        joins: true,
        tried: true,
    },
];

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    section.say(
        "Random queries: models of both zoos, fan-outs from 0.1 to 10 (evenly over their \
         logarithm), an objective of 1.2 to 4 \
         times the shortest that can be kept, 100 queries a second. In a tree, a stage comes after \
         any of those before it; a \
         fork-join query is one stage, two or three ways of one or more stages side by side, and \
         one stage after all of them. \
         Time is budgeted as it is waited, 2 l(b). *tried*: every combination of batches (for \
         trees: every batch of a stage \
         with every split of what follows it). *grid*: the paper's dynamic program, with time cut \
         into milliseconds. *even*: \
         the objective in equal parts. GPUs are equal if they differ by less than a billionth.",
    );
    let mut table = Table::new([
        "queries",
        "number",
        "equal to the best of all tried",
        "grid equal to ours",
        "even: GPUs more (mean)",
        "us: mean",
        "median",
        "99 %",
        "most",
    ]);
    for kind in &KINDS {
        let all = if kind.joins { 500 } else { 2000 };
        let number = if bench.suite.quick { all / 20 } else { all };
        table.add(measure(kind, number, bench.suite.seed));
    }
    section.say(table.markdown());
    section.say(
        "Asked: equal to brute force for 2,000 trees and 500 fork-join graphs, 100 us each. Of \
         eight stages with 64 batches each \
         there are too many splits to try. The even split is counted where it keeps the objective.",
    );
    two_stages(&mut section);
    Ok(section)
}

/// A row of the table.
fn measure(kind: &Kind, number: usize, seed: u64) -> Vec<String> {
    let models: Vec<Model> = zoo_a100().into_iter().chain(zoo_1080ti()).collect();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let (mut equal, mut grid, mut micros) = (0, 0, Vec::with_capacity(number));
    let mut more = Vec::new();
    for _ in 0..number {
        let query = kind.draw(&models, &mut random);
        let best = split(&query, Budget::Wait).expect("the objective is long enough").gpus();
        micros.push(time(&query));
        let same = |gpus: f64| (gpus - best).abs() <= 1e-9 * best;
        if kind.tried {
            let tried = match kind.joins {
                true => every_batch(&query, Budget::Wait),
                false => every_tree_split(&query, Budget::Wait),
            };
            equal += usize::from(same(tried));
        }
        if !kind.joins {
            grid += usize::from(same(on_a_grid(&query, Budget::Wait)));
        }
        more.extend(even_split(&query, Budget::Wait).map(|even| even.gpus() / best - 1.0));
    }
    micros.sort_by(f64::total_cmp);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let count = |counted: bool, found: usize| match counted {
        true => format!("{found} of {number}"),
        false => "-".to_owned(),
    };
    let us = |value: f64| format!("{value:.1}");
    vec![
        kind.name.to_owned(),
        number.to_string(),
        count(kind.tried, equal),
        count(!kind.joins, grid),
        format!("{:.1} %", 100.0 * mean(&more)),
        us(mean(&micros)),
        us(micros[number / 2]),
        us(micros[number * 99 / 100]),
        us(micros[number - 1]),
    ]
}

/// Microseconds of one split.
fn time(query: &Query) -> f64 {
    let call = |_| {
        let start = Instant::now();
        let _ = black_box(split(black_box(query), Budget::Wait));
        start.elapsed().as_secs_f64() * 1e6
    };
    (0..CALLS).map(call).fold(f64::INFINITY, f64::min)
}

impl Kind {
    fn draw(&self, models: &[Model], random: &mut Pcg64Mcg) -> Query {
        let number = random.random_range(self.stages.clone());
        let afters = if self.joins { fork_join(number, random) } else { tree(number, random) };
        let stage = |after: Vec<usize>| {
            let model = &models[random.random_range(0..models.len())];
            let fan_out = 10_f64.powf(random.random_range(-1.0..1.0));
            Stage { profile: self.profile(model), fan_out, after }
        };
        let mut stages: Vec<Stage> = afters.into_iter().map(stage).collect();
        stages[0].fan_out = 1.0;
        let mut query = Query { rate: 100.0, slo: Span::ZERO, stages };
        let Err(fermata_plan::query::NoSplit::TooTight { slo_min }) = split(&query, Budget::Wait)
        else {
            unreachable!("nothing takes no time, and nothing drawn is tangled");
        };
        query.slo = Span((slo_min.0 as f64 * random.random_range(1.2..4.0)) as u64);
        query
    }

    /// Latencies by batch. Where only powers of two may be run, other batches take as long as the
    /// next one.
    fn profile(&self, model: &Model) -> Profile {
        let latency = |batch: u64| {
            let run = if self.powers { batch.next_power_of_two() } else { batch };
            Span::from_ms(model.alpha_ms) * run + Span::from_ms(model.beta_ms)
        };
        Profile::from_table((1..=BATCH_MAX).map(latency)).expect("a batch takes some time")
    }
}

/// The stage before each.
fn tree(number: usize, random: &mut Pcg64Mcg) -> Vec<Vec<usize>> {
    let before = |at: usize| if at == 0 { vec![] } else { vec![random.random_range(0..at)] };
    (0..number).map(before).collect()
}

/// One, two or three ways, one.
fn fork_join(number: usize, random: &mut Pcg64Mcg) -> Vec<Vec<usize>> {
    let middle = number - 2;
    let ways = random.random_range(2..=middle.min(3));
    let mut ends: Vec<usize> = vec![0; ways];
    let mut afters = vec![vec![]];
    for at in 1..=middle {
        // Every way has a stage before one has two.
        let way = if at <= ways { at - 1 } else { random.random_range(0..ways) };
        afters.push(vec![ends[way]]);
        ends[way] = at;
    }
    ends.sort_unstable();
    afters.push(ends);
    afters
}

/// Nexus' figure 16: SSD, and then Inception.
fn two_stages(section: &mut Section) {
    section.say(
        "**SSD, then Inception (Nexus, figure 16).** Throughput of a GPU under the best split over \
         that under equal parts; the \
         paper reports 13 to 55 % more on 8 GPUs. Models: SSDMobilenet and InceptionV3 of the \
         1080Ti zoo, batches up to 64. \
         With `l(b)` as 6.2 counts, and with `2 l(b)`, which is what is waited. SSDMobilenet gains \
         little by batching \
         (beta/alpha 0.4, against 4.5 of InceptionV3), so that less is won here than there.",
    );
    let zoo = zoo_1080ti();
    let profile = |name: &str| {
        let model = find(&zoo, name);
        let latency = |batch| Span::from_ms(model.alpha_ms) * batch + Span::from_ms(model.beta_ms);
        Profile::from_table((1..=BATCH_MAX).map(latency)).expect("a batch takes some time")
    };
    let (ssd, inception) = (profile("SSDMobilenet"), profile("InceptionV3"));
    let mut table = Table::new(["objective (ms)", "fan-out", "more by l(b)", "more by 2 l(b)"]);
    for slo_ms in [300.0, 400.0, 500.0] {
        for fan_out in [0.1, 1.0, 10.0] {
            let first = Stage { profile: ssd.clone(), fan_out: 1.0, after: vec![] };
            let second = Stage { profile: inception.clone(), fan_out, after: vec![0] };
            let slo = Span::from_ms(slo_ms);
            let query = Query { rate: 100.0, slo, stages: vec![first, second] };
            let more = |budget| match (split(&query, budget), even_split(&query, budget)) {
                (Ok(best), Ok(even)) => {
                    format!("{:.1} %", 100.0 * (even.gpus() / best.gpus() - 1.0))
                }
                _ => "-".to_owned(),
            };
            table.add([
                format!("{slo_ms:.0}"),
                fan_out.to_string(),
                more(Budget::Run),
                more(Budget::Wait),
            ]);
        }
    }
    section.say(table.markdown());
}
