//! The picture of a run: what the executors did in its last stretch, and how large the batches
//! were.

use std::path::Path;

use fermata_chart::{Axis, BarSeries, Bars, Block, Figure, Panel, Row, Timeline, grouped};

use super::report::Report;
use super::watch::Tape;
use super::{Answer, watch::TapedBatch};

const WIDTH: f64 = 1200.0;
const HISTOGRAM_HEIGHT: f64 = 260.0;
/// More rows than this cannot be told apart on a screen.
const ROWS_MAX: usize = 64;
/// As many models as there are colours can have a legend.
const LEGEND_MAX: usize = fermata_chart::PALETTE.len();
/// More bars than this are put together by twos, fives, tens.
const BARS_MAX: usize = 60;

/// Draws a run that was taped.
pub(super) fn draw(file: &Path, answer: &Answer, report: &Report, names: &[String]) -> String {
    let timeline = answer.tape.as_ref().map(|tape| timeline(tape, report, names));
    let timeline = timeline.map(|panel| Row {
        height: panel.height(),
        panels: vec![Box::new(panel) as Box<dyn Panel>],
    });
    let histogram = Row {
        height: HISTOGRAM_HEIGHT,
        panels: vec![Box::new(histogram(&answer.stats.total().batches)) as Box<dyn Panel>],
    };
    let figure = Figure {
        title: title(report, names),
        subtitle: subtitle(file, report),
        width: WIDTH,
        rows: timeline.into_iter().chain([histogram]).collect(),
    };
    figure.render()
}

fn title(report: &Report, names: &[String]) -> String {
    let what = match names {
        [name] => name.clone(),
        several => format!("{} models", several.len()),
    };
    let executors = match report.executors {
        1 => "one executor".to_owned(),
        several => format!("{several} executors"),
    };
    format!("{what} on {executors}, policy {}", report.policy)
}

fn subtitle(file: &Path, report: &Report) -> String {
    let total = &report.total;
    format!(
        "{}, seed {}: {} requests a second offered, {:.2} % of them bad, executors {:.0} % busy",
        file.display(),
        report.seed,
        grouped(total.offered_rps, 0),
        100.0 * total.bad_rate,
        100.0 * total.busy_fraction,
    )
}

fn timeline(tape: &Tape, report: &Report, names: &[String]) -> Timeline {
    let (start, end) = (tape.start().as_ms(), tape.end.as_ms());
    let highest = tape.batches.iter().map(|batch| batch.executor.index() + 1).max();
    let executors = report.executors.max(highest.unwrap_or(0));
    let rows = executors.min(ROWS_MAX);
    let of = match executors > ROWS_MAX {
        true => format!(", the first {rows} of {executors} executors"),
        false => String::new(),
    };
    let colours = match names.len() > LEGEND_MAX {
        true => format!(", each colour stands for every {LEGEND_MAX}th model"),
        false => String::new(),
    };
    let hollow = match tape.batches.iter().any(|batch| batch.cut) {
        true => ", hollow if it was cut short",
        false => "",
    };
    let shown = |batch: &&TapedBatch| {
        batch.executor.index() < rows && batch.start < tape.end && batch.finish > tape.start()
    };
    let block = |batch: &TapedBatch| Block {
        row: batch.executor.index(),
        start: batch.start.as_ms(),
        finish: batch.finish.as_ms(),
        colour: batch.model.index(),
        label: batch.size.to_string(),
        cut: batch.cut,
    };
    Timeline {
        title: format!(
            "The last {} ms: a block is a batch, its number the batch size{hollow}{colours}{of}",
            grouped(end - start, 0)
        ),
        time: Axis::between("time since the start of the run (ms)", start, end),
        rows,
        legend: if (2..=LEGEND_MAX).contains(&names.len()) { names.to_vec() } else { Vec::new() },
        blocks: tape.batches.iter().filter(shown).map(block).collect(),
        misses: tape
            .misses
            .iter()
            .filter(|&&miss| miss <= tape.end)
            .map(|miss| miss.as_ms())
            .collect(),
    }
}

/// `batches[b]` is how many batches had `b` requests.
fn histogram(batches: &[u64]) -> Bars {
    let total = batches.iter().sum::<u64>().max(1) as f64;
    let sizes = batches.get(1..).unwrap_or_default();
    let together = [1, 2, 5, 10, 20, 50, 100];
    let together = together.into_iter().find(|by| sizes.len() <= by * BARS_MAX).unwrap_or(100);
    let share = |group: &[u64]| 100.0 * group.iter().sum::<u64>() as f64 / total;
    let name = |group: usize| match together {
        1 => (group + 1).to_string(),
        by => format!("{}-{}", group * by + 1, (group + 1) * by),
    };
    let values: Vec<f64> = sizes.chunks(together).map(share).collect();
    Bars {
        title: "Batch sizes over the whole run".to_owned(),
        x_title: "batch size (requests)".to_owned(),
        y: Axis::from_zero("share of batches (%)"),
        groups: (0..values.len()).map(name).collect(),
        series: vec![BarSeries { name: "batches".to_owned(), values }],
        values: Some(1),
    }
}
