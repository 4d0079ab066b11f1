//! The picture of a load: the latencies by percentile, and how it went over time.

use fermata_chart::{Axis, Figure, Lines, Panel, Row, Series, grouped};

use super::campaign::Run;
use super::percentiles::{latency_axis, percentiles};
use super::plan::Plan;
use super::record::{Outcome, Slice};
use super::report::Report;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 300.0;
/// Requests in one part of the time, at least on average, unless there are few.
const PART_MIN: u64 = 200;
/// Models in the title.
const NAMES_MAX: usize = 4;

/// Draws a run.
pub(super) fn draw(plan: &Plan, run: &Run, report: &Report) -> String {
    let share = format!("{:.2} % in time", 100.0 * report.total.in_time_share);
    let row =
        |panel: Lines| Row { height: HEIGHT, panels: vec![Box::new(panel) as Box<dyn Panel>] };
    let figure = Figure {
        title: format!("{} at {}", names(plan), report.url),
        subtitle: format!(
            "{} requests a second for {} s: {share}",
            grouped(report.total.sent_rps, 0),
            grouped(report.seconds, 1)
        ),
        width: WIDTH,
        rows: vec![
            row(percentiles(plan, &run.record)),
            row(rates(run)),
            row(over_time(run, report)),
        ],
    };
    figure.render()
}

/// The first few models, and how many more there are.
fn names(plan: &Plan) -> String {
    let names: Vec<&str> = plan.models.iter().map(|model| model.name.as_str()).collect();
    match names.get(NAMES_MAX..) {
        Some(more) if !more.is_empty() => {
            format!("{} and {} more", names[..NAMES_MAX].join(", "), more.len())
        }
        _ => names.join(", "),
    }
}

/// The run in parts that are long enough for a percentile to mean something, and how long each is.
struct Parts {
    slices: Vec<Slice>,
    seconds: f64,
}

impl Parts {
    fn of(run: &Run) -> Self {
        // A run that was cut has empty slices at its end.
        let last = run.record.slices.iter().rposition(|slice| slice.sent > 0);
        let used = &run.record.slices[..last.map_or(0, |last| last + 1)];
        let sent: u64 = used.iter().map(|slice| slice.sent).sum();
        let parts = (sent / PART_MIN).clamp(10, used.len().max(10) as u64) as usize;
        let together = used.len().div_ceil(parts).max(1);
        let slices: Vec<Slice> = used
            .chunks(together)
            .map(|chunk| {
                let mut part = Slice::new();
                chunk.iter().for_each(|slice| part.merge(slice));
                part
            })
            .collect();
        let seconds = run.seconds * together as f64 / used.len().max(1) as f64;
        Self { slices, seconds }
    }

    /// A value of each part, at its middle. The last part may be shorter than the others.
    fn along(&self, run: &Run, value: impl Fn(&Slice, f64) -> f64) -> Vec<(f64, f64)> {
        let point = |(at, slice): (usize, &Slice)| {
            let from = at as f64 * self.seconds;
            let length = self.seconds.min(run.seconds - from);
            (from + length / 2.0, value(slice, length))
        };
        self.slices.iter().enumerate().map(point).collect()
    }
}

fn rates(run: &Run) -> Lines {
    let parts = Parts::of(run);
    let sent = parts.along(run, |slice, seconds| slice.sent as f64 / seconds);
    let mut series = vec![Series { dashed: true, ..Series::line("sent", sent) }];
    for outcome in Outcome::ALL {
        let rate = |slice: &Slice, seconds: f64| slice.counts[outcome as usize] as f64 / seconds;
        let points = parts.along(run, rate);
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
    let parts = Parts::of(run);
    let quantile = |name: &str, share: f64| {
        let value = |slice: &Slice, _| match slice.latency.is_empty() {
            true => f64::NAN,
            false => slice.latency.value_at_quantile(share) as f64 / 1e6,
        };
        Series::line(name, parts.along(run, value))
    };
    let longest = report.total.latency_ms.map_or(0.0, |latency| latency.max);
    let (y, marks) = latency_axis(longest, report.total.slo_ms.as_slice());
    Lines {
        title: "Latency over time".to_owned(),
        x: Axis::from_zero("time (s)"),
        y,
        series: vec![quantile("p50", 0.5), quantile("p99", 0.99), quantile("max", 1.0)],
        marks,
    }
}
