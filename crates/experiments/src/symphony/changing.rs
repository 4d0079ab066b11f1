//! Figure 15: a load that changes over a day, on 512 executors.

use fermata_chart::{Axis, Layer, Lines, Mark, PALETTE, Panel, Series, Shape, Stack, grouped};
use fermata_core::Span;
use fermata_workload::Counts;

use super::Bench;
use crate::document::{Section, Table, figure};
use crate::trials::symphony::{Changing, Contender, Interval, OFFERED_PEAK, changing_load};

const GPUS: usize = 512;
/// Ten recorded minutes each.
const INTERVALS: usize = 144;
/// How long a recorded minute takes: the day becomes twelve minutes, or three.
const MINUTE_S: f64 = 0.5;
const MINUTE_QUICK_S: f64 = 0.125;
const POLICIES: [&str; 5] = ["shepherd", "nexus", "eager", "deferred", "fermata"];
/// An interval with less demand than this share of the executors is not overloaded.
const UNDERLOADED: f64 = 0.9;

pub(super) fn figure15(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let counts = bench.args.trace.counts()?;
    let minute_s = match (bench.args.requests, bench.suite.quick) {
        (Some(requests), _) => minute_for(requests, &counts),
        (None, true) => MINUTE_QUICK_S,
        (None, false) => MINUTE_S,
    };
    let lab = bench.lab();
    let changing = changing_load(&counts, GPUS, Span::from_secs(minute_s), lab.seed);
    let contenders = Contender::all(&POLICIES);
    let runs: Vec<Vec<Interval>> =
        lab.spread(&contenders, |contender| changing.run(contender.policy, INTERVALS).0);

    let mut section = Section::default();
    section.say(introduction(&changing));
    section.say(table(&changing, &runs));
    section.say(
        "The paper prints no numbers for this figure: it says that Symphony uses fewer GPUs when \
         the load is low, and keeps \
         the bad rate low while the cluster is not overloaded. Advice is that of its section 3.5: \
         N r/(1 - r) more GPUs at a \
         bad rate r above 1 %, else N f fewer at an idle fraction f.",
    );
    if let Some(fermata) = POLICIES.iter().position(|name| *name == "fermata") {
        section.show("figure15", "a changing load over time", picture(&changing, &runs, fermata));
    }
    Ok(section)
}

/// About what all GPUs serve in a second, averaged over the day: only for choosing how long the day
/// is.
const DAY_RATE: f64 = 300_000.0;

/// A minute so short that the day has about as many requests as wanted.
fn minute_for(requests: u64, counts: &Counts) -> f64 {
    let minutes = counts.functions.first().map_or(1, |function| function.by_minute.len().max(1));
    requests as f64 / DAY_RATE / minutes as f64
}

fn introduction(changing: &Changing) -> String {
    let mut names: Vec<&str> = changing.models.iter().map(|model| &model.name[..]).collect();
    names.sort_unstable();
    format!(
        "{} models of the 1080Ti zoo on {GPUS} emulated GPUs, SLOs {:.0} to {:.0} ms. The paper's \
         rates come from 150 hours of \
         video that are not public; ours from the {} busiest functions of an Azure Functions day \
         that are called in nearly every \
         minute, change, and are no single spike. A model's share of the GPU time is its \
         function's share of the calls, flattened (to the power 0.75, so that no model takes half \
         of all); all are scaled so that the \
         highest half hour asks for {:.0} % of the GPUs at the best batch sizes. The day takes \
         {:.0} s; arrivals within a minute are \
         Poisson.",
        names.len(),
        changing.models.iter().map(|model| model.slo_ms).fold(f64::INFINITY, f64::min),
        changing.models.iter().map(|model| model.slo_ms).fold(0.0, f64::max),
        names.len(),
        100.0 * OFFERED_PEAK,
        changing.length.as_secs(),
    )
}

/// The demand of each interval: the mean of its recorded minutes, over the executors.
fn demand_by_interval(changing: &Changing) -> Vec<f64> {
    let minutes = changing.demand.len();
    let mean = |interval: usize| {
        let (from, to) = (interval * minutes / INTERVALS, (interval + 1) * minutes / INTERVALS);
        let part = &changing.demand[from.min(minutes - 1)..to.max(from + 1).min(minutes)];
        part.iter().sum::<f64>() / part.len() as f64 / GPUS as f64
    };
    (0..INTERVALS).map(mean).collect()
}

fn table(changing: &Changing, runs: &[Vec<Interval>]) -> String {
    let mut table = Table::new([
        "policy",
        "requests",
        "bad (%)",
        "bad while demand < 90 % (%)",
        "mean GPUs busy",
        "mean GPUs used",
        "fewest used",
        "most GPUs advised",
    ]);
    let demand = demand_by_interval(changing);
    for (name, intervals) in POLICIES.iter().zip(runs) {
        let bad = |keep: &dyn Fn(f64) -> bool| {
            let kept = || intervals.iter().zip(&demand).filter(|(_, demand)| keep(**demand));
            let offered: u64 = kept().flat_map(|(interval, _)| &interval.offered).sum();
            let in_time: u64 = kept().flat_map(|(interval, _)| &interval.in_time).sum();
            100.0 * (offered - in_time) as f64 / offered.max(1) as f64
        };
        let mean = |value: &dyn Fn(&Interval) -> f64| {
            intervals.iter().map(value).sum::<f64>() / intervals.len() as f64
        };
        let offered: u64 = intervals.iter().flat_map(|interval| &interval.offered).sum();
        let fewest = intervals.iter().map(|interval| interval.used).min().unwrap_or(0);
        let advised =
            intervals.iter().map(|interval| interval.advice(GPUS)).fold(f64::MIN, f64::max);
        table.add([
            (*name).to_owned(),
            grouped(offered as f64, 0),
            format!("{:.2}", bad(&|_| true)),
            format!("{:.3}", bad(&|demand| demand < UNDERLOADED)),
            format!("{:.0}", mean(&|interval| GPUS as f64 * interval.busy)),
            format!("{:.0}", mean(&|interval| interval.used as f64)),
            fewest.to_string(),
            format!("{advised:+.0}"),
        ]);
    }
    table.markdown()
}

/// The paper's four subplots for our policy, with the others beside it where that says something.
fn picture(changing: &Changing, runs: &[Vec<Interval>], fermata: usize) -> String {
    let seconds = changing.length.as_secs() / INTERVALS as f64;
    let time = |at: usize| at as f64 * seconds;
    let x = || Axis::between("time (s)", 0.0, changing.length.as_secs());
    let intervals = &runs[fermata];
    let stairs = |name: &str, values: Vec<f64>| Series {
        shape: Shape::Stairs,
        ..Series::line(name, values.into_iter().enumerate().map(|(at, y)| (time(at), y)).collect())
    };
    let by_policy = |value: &dyn Fn(&Interval) -> f64| -> Vec<Series> {
        let order = ["fermata", "deferred", "eager"];
        let found =
            order.iter().filter_map(|name| Some((name, POLICIES.iter().position(|p| p == name)?)));
        found.map(|(name, at)| stairs(name, runs[at].iter().map(value).collect())).collect()
    };
    let lines = |title: &str, y: Axis, series: Vec<Series>, marks: Vec<Mark>| -> Box<dyn Panel> {
        Box::new(Lines { title: title.to_owned(), x: x(), y, series, marks })
    };
    let mut used = by_policy(&|interval| interval.used as f64);
    let demand = demand_by_interval(changing).into_iter().map(|share| share * GPUS as f64);
    used.push(Series {
        dashed: true,
        ..stairs("demand at the best batch sizes", demand.collect())
    });
    let rows: Vec<(f64, Vec<Box<dyn Panel>>)> = vec![
        (380.0, vec![Box::new(stack(changing, intervals, seconds))]),
        (
            240.0,
            vec![lines(
                "GPUs that ran something in the interval",
                Axis::from_zero("GPUs"),
                used,
                vec![Mark::Y(GPUS as f64, format!("{GPUS} there are"))],
            )],
        ),
        (
            240.0,
            vec![lines(
                "Advice: GPUs to add, or to remove",
                Axis::fitting("GPUs"),
                by_policy(&|interval| interval.advice(GPUS)),
                vec![Mark::Y(0.0, String::new())],
            )],
        ),
        (
            240.0,
            vec![lines(
                "Bad rate",
                Axis::from_zero("bad (%)"),
                by_policy(&|interval| 100.0 * interval.bad_rate()),
                vec![Mark::Y(1.0, "1 %".to_owned())],
            )],
        ),
    ];
    figure("A changing load on 512 GPUs", "figure 15", rows)
}

/// What was in time by model, in colour, and below the total what was bad, in grey.
fn stack(changing: &Changing, intervals: &[Interval], seconds: f64) -> Stack {
    let per_second = |count: u64| count as f64 / seconds;
    let mut layers: Vec<Layer> = (0..changing.models.len())
        .map(|model| Layer {
            colour: PALETTE[model % (PALETTE.len() - 1)],
            values: intervals.iter().map(|interval| per_second(interval.in_time[model])).collect(),
        })
        .collect();
    let greys = ["#444444", "#888888"];
    layers.extend((0..changing.models.len()).map(|model| {
        Layer {
            colour: greys[model % greys.len()],
            values: intervals
                .iter()
                .map(|interval| per_second(interval.offered[model] - interval.in_time[model]))
                .collect(),
        }
    }));
    Stack {
        title: "Requests by model under fermata: in time in colour, bad in grey on top".to_owned(),
        x: Axis::between("time (s)", 0.0, changing.length.as_secs()),
        y: Axis::from_zero("requests/s"),
        step: seconds,
        layers,
    }
}
