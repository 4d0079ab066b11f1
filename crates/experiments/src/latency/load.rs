//! One model on eight executors, by load: the median and the tail of the latency, and how busy the
//! executors are.

use fermata_chart::{Axis, Lines, Mark, Panel, Series, grouped};
use fermata_core::Span;
use fermata_sim::Latencies;

use super::{Bench, POLICIES, policy};
use crate::document::{Section, Table, bold_if, figure};
use crate::trials::symphony::{Model, Pool};

const EXECUTORS: usize = 8;
const SLO_MS: f64 = 25.0;
/// What the loads are shares of: a goodput of the policy, in requests a second.
const PEAK: f64 = 5_527.0;
/// The loads of the table, with the median and the 99th percentile that are asked, in milliseconds.
const ASKED: [(f64, f64, f64); 4] =
    [(0.09, 6.3, 6.6), (0.27, 9.0, 12.6), (0.45, 10.1, 15.4), (0.72, 16.5, 24.0)];
/// The loads of the picture: multiples of this up to the peak.
const STEP: f64 = 0.045;
const STEPS: u32 = 22;
/// How long a run lasts, in simulated seconds.
const SECONDS: f64 = 60.0;
const QUICK_SECONDS: f64 = 6.0;

/// A latency in milliseconds, rounded as it is shown, so that what is bold can be seen.
fn ms(span: Span) -> f64 {
    (100.0 * span.as_ms()).round() / 100.0
}

/// A run.
struct Point {
    load: f64,
    p50: f64,
    p99: f64,
    busy: f64,
    bad: f64,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let seconds = if bench.suite.quick { QUICK_SECONDS } else { SECONDS };
    let mut loads: Vec<f64> = (1..=STEPS).map(|step| STEP * f64::from(step)).collect();
    loads.extend(ASKED.map(|(load, ..)| load));
    loads.sort_by(f64::total_cmp);
    loads.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
    let jobs: Vec<(&str, f64)> =
        POLICIES.iter().flat_map(|name| loads.iter().map(move |&load| (*name, load))).collect();
    let pool = Pool::alike(&Model::resnet50(SLO_MS), 1, EXECUTORS);
    let points = bench.spread(&jobs, |&(name, load)| {
        let rate = load * PEAK;
        let scenario = pool.scenario(rate, (seconds * rate) as u64, bench.suite.seed);
        let found = Latencies::of(&scenario, policy(name));
        Point {
            load,
            p50: ms(found.quantile(0.5)),
            p99: ms(found.quantile(0.99)),
            busy: found.stats.busy_fraction(),
            bad: found.stats.total().bad_rate(),
        }
    });
    let curves: Vec<&[Point]> = points.chunks(loads.len()).collect();

    let mut section = Section::default();
    section.say(format!(
        "ResNet50 (alpha 1.053 ms, beta 5.072 ms), SLO {SLO_MS} ms, on {EXECUTORS} GPUs, Poisson, \
         {seconds:.0} simulated seconds. Loads are shares of {} requests a second. A cell has the \
         median and the 99th percentile of the latency in milliseconds, the share of GPU time that \
         is busy, and the share of requests that are bad, where there are any. Of the default \
         policy nothing bad is asked.",
        grouped(PEAK, 0)
    ));
    section.say(table(&curves));
    section.show("load", "latency, utilisation and bad requests by load", picture(&curves));
    Ok(section)
}

fn table(curves: &[&[Point]]) -> String {
    let head = ["load", "asked: p50 / p99"].into_iter().chain(POLICIES);
    let mut table = Table::new(head);
    for (load, p50, p99) in ASKED {
        let cells = curves.iter().enumerate().map(|(at, curve)| {
            let point = curve.iter().find(|point| (point.load - load).abs() < 1e-9);
            point.map_or(String::new(), |point| cell(point, (at == 0).then_some((p50, p99))))
        });
        let head = [format!("{:.0} %", 100.0 * load), format!("{p50:.1} / {p99:.1}")];
        table.add(head.into_iter().chain(cells));
    }
    table.markdown()
}

/// One run, with what is asked of it.
fn cell(point: &Point, asked: Option<(f64, f64)>) -> String {
    let missed =
        |value: f64, limit: fn((f64, f64)) -> f64| asked.is_some_and(|asked| value > limit(asked));
    let latency = |value: f64, missed: bool| bold_if(missed, format!("{value:.2}"));
    let bad = match point.bad > 0.0 {
        true => {
            format!(", {} bad", bold_if(asked.is_some(), format!("{:.2} %", 100.0 * point.bad)))
        }
        false => String::new(),
    };
    format!(
        "{} / {}, {:.0} %{bad}",
        latency(point.p50, missed(point.p50, |asked| asked.0)),
        latency(point.p99, missed(point.p99, |asked| asked.1)),
        100.0 * point.busy
    )
}

fn picture(curves: &[&[Point]]) -> String {
    let lines = |title: &str, y: Axis, value: fn(&Point) -> f64, marks: Vec<Mark>| {
        let series = POLICIES.iter().zip(curves).map(|(name, curve)| {
            let points = curve.iter().map(|point| (100.0 * point.load, value(point)));
            Series::line(*name, points.collect())
        });
        let x = Axis::between("load (% of the peak)", 0.0, 100.0);
        let panel = Lines { title: title.to_owned(), x, y, series: series.collect(), marks };
        Box::new(panel) as Box<dyn Panel>
    };
    let slo = || vec![Mark::Y(SLO_MS, "SLO".to_owned())];
    let latency = || Axis::between("milliseconds", 0.0, 30.0);
    let first = vec![
        lines("Median latency", latency(), |point| point.p50, slo()),
        lines("99th percentile of the latency", latency(), |point| point.p99, slo()),
    ];
    let second = vec![
        lines(
            "Utilisation",
            Axis::between("GPUs busy (%)", 0.0, 100.0),
            |point| 100.0 * point.busy,
            Vec::new(),
        ),
        lines(
            "Bad requests",
            Axis::between("bad (%)", 0.0, 5.0),
            |point| (100.0 * point.bad).min(5.0),
            vec![Mark::Y(1.0, "1 %".to_owned())],
        ),
    ];
    figure("Latency by load", "ResNet50, SLO 25 ms, 8 GPUs", vec![(340.0, first), (340.0, second)])
}
