//! The picture of a load: the latencies by percentile, and how it went over time.

use super::campaign::Run;
use super::plan::Plan;
use super::record::{Outcome, SLICES, Slice};
use super::report::Report;
use crate::chart::{Axis, Figure, Lines, Mark, Panel, Row, Scale, Series, Shape, grouped};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 300.0;

/// Draws a run.
pub(super) fn draw(plan: &Plan, run: &Run, report: &Report) -> String {
    let models: Vec<&str> = plan.models.iter().take(4).map(|model| model.name.as_str()).collect();
    let share = format!("{:.2} % in time", 100.0 * report.total.in_time_share);
    let row =
        |panel: Lines| Row { height: HEIGHT, panels: vec![Box::new(panel) as Box<dyn Panel>] };
    let figure = Figure {
        title: format!("{} at {}", models.join(", "), report.url),
        subtitle: format!(
            "{} requests a second for {} s: {share}",
            grouped(report.total.sent_rps, 0),
            grouped(report.seconds, 1)
        ),
        width: WIDTH,
        rows: vec![row(percentiles(plan, run)), row(rates(run)), row(over_time(run, report))],
    };
    figure.render()
}

/// Latency against how many are slower, each tenth of them as wide as the last.
fn percentiles(plan: &Plan, run: &Run) -> Lines {
    let shares = (0..=160).map(|step| 1.0 - f64::powf(10.0, -f64::from(step) / 40.0));
    let shares: Vec<f64> = shares.collect();
    let series = |(model, record): (&super::plan::ModelPlan, &super::record::ModelRecord)| {
        let latency = &record.latency;
        // Beyond one in as many as there are, a percentile is the maximum again.
        let told = |share: &&f64| (1.0 - **share) * latency.len() as f64 >= 1.0;
        let point =
            |&share: &f64| (1.0 / (1.0 - share), latency.value_at_quantile(share) as f64 / 1e6);
        Series::line(&model.name, shares.iter().filter(told).map(point).collect())
    };
    let mut marks: Vec<Mark> = [(2.0, "p50"), (10.0, "p90"), (100.0, "p99"), (1000.0, "p99.9")]
        .map(|(at, name)| Mark::X(at, name.to_owned()))
        .into();
    marks.extend(plan.models.iter().filter_map(|model| {
        let ms = model.slo?.as_secs_f64() * 1e3;
        Some(Mark::Y(ms, format!("SLO {ms} ms")))
    }));
    Lines {
        title: "Latency: one request in so many takes longer".to_owned(),
        x: Axis { scale: Scale::Log, ..Axis::fitting("one request in") },
        y: Axis::from_zero("latency (ms)"),
        series: plan.models.iter().zip(&run.record.models).map(series).collect(),
        marks,
    }
}

fn slice_seconds(run: &Run) -> f64 {
    // A run that was cut has empty slices at its end.
    run.seconds / used(run).len().max(1) as f64
}

fn used(run: &Run) -> &[Slice] {
    let last = run.record.slices.iter().rposition(|slice| slice.sent > 0);
    &run.record.slices[..last.map_or(0, |last| last + 1).min(SLICES)]
}

fn along(run: &Run, value: impl Fn(&Slice) -> f64) -> Vec<(f64, f64)> {
    let seconds = slice_seconds(run);
    let middle = |at: usize| (at as f64 + 0.5) * seconds;
    used(run).iter().enumerate().map(|(at, slice)| (middle(at), value(slice))).collect()
}

fn rates(run: &Run) -> Lines {
    let seconds = slice_seconds(run);
    let mut series = vec![Series {
        dashed: true,
        ..Series::line("sent", along(run, |slice| slice.sent as f64 / seconds))
    }];
    for outcome in Outcome::ALL {
        let points = along(run, |slice| slice.counts[outcome as usize] as f64 / seconds);
        if outcome == Outcome::InTime || points.iter().any(|point| point.1 > 0.0) {
            series.push(Series::line(outcome.name(), points));
        }
    }
    Lines {
        title: "What became of the requests, by when they were due".to_owned(),
        x: Axis::from_zero("time (s)"),
        y: Axis::from_zero("requests a second"),
        series,
        marks: Vec::new(),
    }
}

fn over_time(run: &Run, report: &Report) -> Lines {
    let quantile = |name: &str, share: f64| {
        let points = along(run, |slice| match slice.latency.is_empty() {
            true => f64::NAN,
            false => slice.latency.value_at_quantile(share) as f64 / 1e6,
        });
        Series { shape: Shape::Line, ..Series::line(name, points) }
    };
    let slo = report.total.slo_ms.map(|ms| Mark::Y(ms, format!("SLO {ms} ms")));
    Lines {
        title: "Latency over time".to_owned(),
        x: Axis::from_zero("time (s)"),
        y: Axis::from_zero("latency (ms)"),
        series: vec![quantile("p50", 0.5), quantile("p99", 0.99), quantile("max", 1.0)],
        marks: slo.into_iter().collect(),
    }
}
