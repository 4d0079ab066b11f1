//! Gpulet 3.2 and 5.2: each of nine models at 0, 100 or 200 requests a second on four GPUs; how
//! many are scheduled.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fermata_chart::{Axis, BarSeries, Bars, grouped};

use super::Bench;
use super::methods::{ELASTIC, IDEAL, LEGEND, METHODS, SHARES};
use super::models::{self, Load, Model, World};
use crate::document::{Section, Table, figure};
use crate::trials::symphony::Meter;

/// All scenarios but the empty one: a digit of three values for each model.
const SCENARIOS: usize = 3_usize.pow(9) - 1;
/// What the rates of the paper are multiplied by.
const FACTORS: [f64; 5] = [0.75, 1.0, 1.25, 1.5, 2.0];
/// A quick look takes every so many scenarios.
const QUICK_STEP: usize = 50;

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let models = models::nine();
    let step = if bench.suite.quick { QUICK_STEP } else { 1 };
    let numbers: Vec<usize> = (1..=SCENARIOS).step_by(step).collect();
    bench.progress.expect(FACTORS.len() * numbers.len());
    let mut counts = Vec::new();
    for factor in FACTORS {
        counts.push(count(bench, &models, &numbers, factor)?);
    }

    let mut section = Section::default();
    introduce(&mut section, &models);
    let names = METHODS.iter().map(|method| method.name);
    let head = ["rates", "scenarios"].into_iter().chain(names);
    let head = head.chain(["of ideal's, not by shares", "by shares, not by ideal"]);
    let mut table = Table::new(head);
    for (factor, counts) in FACTORS.iter().zip(&counts) {
        let cells = [format!("x {factor}"), grouped(numbers.len() as f64, 0)];
        let scheduled = counts.scheduled.iter().chain([&counts.missed, &counts.gained]);
        table.add(cells.into_iter().chain(scheduled.map(|&count| grouped(count as f64, 0))));
    }
    section.say("How many scenarios are scheduled:");
    section.say(table.markdown());
    say_findings(&mut section, &counts, numbers.len());
    let mut table =
        Table::new(["rates", "median of shares", "99 % within", "longest", "longest of ideal"]);
    for (factor, counts) in FACTORS.iter().zip(&counts) {
        let times = &counts.times;
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        let cells = [at(0.5), at(0.99), at(1.0), counts.longest_ideal].map(milliseconds);
        table.add([format!("x {factor}")].into_iter().chain(cells));
    }
    section
        .say("The time of a scenario, with reading the profiles and the checker, in milliseconds:");
    section.say(table.markdown());
    section.show("scenarios", "schedulable scenarios by method", picture(&counts, numbers.len()));
    Ok(section)
}

/// What came of all scenarios at one factor.
struct Counts {
    /// By method.
    scheduled: [usize; METHODS.len()],
    /// By ideal and not by shares, and the other way round.
    missed: usize,
    gained: usize,
    /// Of shares, ascending.
    times: Vec<Duration>,
    longest_ideal: Duration,
}

/// One scenario: who schedules it, and how long each took.
type Outcome = [(bool, Duration); METHODS.len()];

fn count(
    bench: &Bench<'_>,
    models: &[Model],
    numbers: &[usize],
    factor: f64,
) -> anyhow::Result<Counts> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut outcomes: Vec<Outcome> = Vec::new();
        while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            outcomes.push(try_all(models, number, factor)?);
            bench.progress.finish_one();
        }
        Ok(outcomes)
    };
    let outcomes: anyhow::Result<Vec<Vec<Outcome>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..bench.suite.threads()).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let outcomes: Vec<Outcome> = outcomes?.into_iter().flatten().collect();
    let scheduled =
        std::array::from_fn(|at| outcomes.iter().filter(|outcome| outcome[at].0).count());
    let only = |by: usize, not: usize| {
        outcomes.iter().filter(|outcome| outcome[by].0 && !outcome[not].0).count()
    };
    let mut times: Vec<Duration> = outcomes.iter().map(|outcome| outcome[SHARES].1).collect();
    times.sort_unstable();
    let longest_ideal = outcomes.iter().map(|outcome| outcome[IDEAL].1).max().unwrap_or_default();
    let (missed, gained) = (only(IDEAL, SHARES), only(SHARES, IDEAL));
    Ok(Counts { scheduled, missed, gained, times, longest_ideal })
}

fn try_all(models: &[Model], number: usize, factor: f64) -> anyhow::Result<Outcome> {
    let rate = |at: usize| (number / 3_usize.pow(at as u32) % 3) as f64 * 100.0 * factor;
    let asked = models.iter().enumerate().map(|(at, model)| (model, model.slo_ms, rate(at)));
    let load = Load::new(&World::usual(), asked.filter(|(_, _, rate)| *rate > 0.0));
    let mut outcome = [(false, Duration::ZERO); METHODS.len()];
    for (method, found) in METHODS.iter().zip(&mut outcome) {
        let start = Instant::now();
        *found = (method.schedules(&load)?, start.elapsed());
    }
    Ok(outcome)
}

fn introduce(section: &mut Section, models: &[Model]) {
    section.say(
        "Each of nine models is asked for at 0, 100 or 200 requests a second, on four GPUs that \
         may be split 50+50, 40+60 or 20+80, with at most \
         three models on a share and batches of at most 32 (gpulet 3.2, 5.2). The paper prints \
         neither latencies nor interference of its models, so these are ours:",
    );
    section.say(models::table(models));
    section.say(
        "A batch of `b` on a share `p` takes `L(b, p) = beta + alpha b / p`: work is divided by \
         the share, the fixed part is not. The paper's objective is \
         twice the latency of a batch of 32 on a whole GPU, which gives `32 alpha + beta`. The \
         fixed part of it is what an H200 measured from batches of 1 \
         and 32 with CUDA graphs: ResNet50 38 %, VGG-16 8 %, DenseNet 35 %, MobileNetV2 43 %, \
         which also stands for MnasNet and SSD-MobileNet, InceptionV3 48 %, which \
         stands for GoogLeNet; LeNet and BERT on 14 tokens are hardly more than launches, and \
         theirs is assumed, as is the memory (within the groups of the paper's table 5; a share \
         takes \
         1,230 MB more, a GPU has 11 GB). L2 and DRAM are the parts of the bandwidths that a model \
         uses on a whole GPU, assumed, `p` times as much on a share; \
         a neighbour makes a batch 0.895 + 0.113 L2 + 0.716 L2' + 0.355 DRAM + 0.088 DRAM' times \
         as long (the prototype's fit, with ' for the loudest on the other share), and \
         never shorter. Not taken over from the prototype: latencies x 1.1, and 15 requests a \
         second that need not be served.",
    );
    section.say(LEGEND);
}

fn say_findings(section: &mut Section, counts: &[Counts], all: usize) {
    let paper = &counts[FACTORS.iter().position(|&factor| factor == 1.0).expect("1 is a factor")];
    let [elastic, ideal, ours] = [ELASTIC, IDEAL, SHARES].map(|at| paper.scheduled[at]);
    let missed: usize = counts.iter().map(|counts| counts.missed).sum();
    let longest = counts.iter().filter_map(|counts| counts.times.last()).max();
    let percent = |count: usize| 100.0 * count as f64 / all as f64;
    section.say(format!(
        "- At the paper's own rates ideal already fails on {} scenarios ({:.1} %), so they need \
         not be scaled for that; the other factors show how it goes on.\n\
         - Scheduled by ideal and not by shares, at all factors together: {missed}.\n\
         - At x 1 elastic schedules {:.1} % of the scenarios fewer than ideal (paper: 2.6 %), and \
         shares {:.1} % more.\n\
         - The longest time of shares for a scenario is {} ms (at most 200).",
        grouped((all - ideal) as f64, 0),
        percent(all - ideal),
        percent(ideal - elastic),
        percent(ours - ideal),
        milliseconds(longest.copied().unwrap_or_default()),
    ));
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

fn picture(counts: &[Counts], all: usize) -> String {
    let series = METHODS.iter().enumerate().map(|(at, method)| BarSeries {
        name: method.name.to_owned(),
        values: counts.iter().map(|each| 100.0 * each.scheduled[at] as f64 / all as f64).collect(),
    });
    let bars = Bars {
        title: "Scenarios that are scheduled on four GPUs".to_owned(),
        x_title: "rates of the paper times".to_owned(),
        y: Axis::from_zero("% of the scenarios"),
        groups: FACTORS.iter().map(|factor| format!("{factor}")).collect(),
        series: series.collect(),
        values: Some(1),
    };
    figure("Schedulable scenarios", "gpulet, figures 4 and 15", vec![(380.0, vec![Box::new(bars)])])
}
