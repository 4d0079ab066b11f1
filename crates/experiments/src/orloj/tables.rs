//! Tables 2 to 5, row by row beside the paper, with a picture of each case.

use fermata_chart::{Axis, Lines, Panel, Series};

use super::Bench;
use super::lab::{BASELINES, Cell, Contender, Lab};
use super::paper::{self, Row};
use crate::document::{Section, Table, figure};
use crate::trials::orloj::{Known, Setting};

pub(super) fn table2(bench: &Bench<'_>) -> anyhow::Result<Section> {
    table(bench, 2, "table 2 and figures 3, 8: two applications, by the deviation of each peak")
}

pub(super) fn table3(bench: &Bench<'_>) -> anyhow::Result<Section> {
    table(bench, 3, "table 3 and figures 3, 7: one to eight applications")
}

pub(super) fn table4(bench: &Bench<'_>) -> anyhow::Result<Section> {
    table(bench, 4, "table 4 and figure 9: every request takes the same")
}

pub(super) fn table5(bench: &Bench<'_>) -> anyhow::Result<Section> {
    table(bench, 5, "table 5 and figure 7: ten real workloads, by their mean and 99th percentile")
}

/// A finish rate that is so much higher is far better.
const FAR: f64 = 0.1;
const REQUESTS: usize = 20_000;
const SEEDS: u64 = 3;

/// The columns that are measured.
const COLUMNS: [&str; 6] =
    ["clipper", "nexus", "clockwork", "orloj", "fermata, no tags", "fermata, tags"];

/// Who is measured for each column: the best of them counts.
fn contenders() -> Vec<Vec<Contender>> {
    let fair = BASELINES.iter().map(|name| Contender::fair(name).to_vec());
    let ours = [
        Contender::named("orloj", Known::Application),
        Contender::fermata(Known::Nothing),
        Contender::fermata(Known::Application),
    ];
    fair.chain(ours.map(|one| vec![one])).collect()
}

fn table(bench: &Bench<'_>, number: u32, subtitle: &str) -> anyhow::Result<Section> {
    let lab = Lab::new(bench, REQUESTS, SEEDS).shaped()?;
    let rows = paper::rows(&bench.args.data, number)?;
    let mut section = Section::default();
    section.say(format!(
        "Finish rates, setting A ({}). The paper's columns are in italics.",
        lab.note()
    ));
    let measured = measure(bench, &lab, &rows, Setting::A)?;
    section.say(render(&rows, &measured));
    section.say(remarks(&rows, &measured));
    let svg = picture(&rows, &measured, subtitle);
    section.show(&format!("table{number}"), "finish rates by objective", svg);
    Ok(section)
}

/// By row and column.
fn measure(
    bench: &Bench<'_>,
    lab: &Lab<'_>,
    rows: &[Row],
    setting: Setting,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let contenders = contenders();
    let mut cells = Vec::new();
    for row in rows {
        let alone = paper::alone(&bench.args.data, &row.case)?;
        for &who in contenders.iter().flatten() {
            cells.push(Cell { alone: alone.clone(), setting, times_p99: row.times_p99, who });
        }
    }
    let mut found = lab.measure(&cells).into_iter();
    let best = |column: &Vec<Contender>, found: &mut dyn Iterator<Item = f64>| {
        found.take(column.len()).fold(0.0, f64::max)
    };
    let row = |_: &Row| contenders.iter().map(|column| best(column, &mut found)).collect();
    Ok(rows.iter().map(row).collect())
}

fn render(rows: &[Row], measured: &[Vec<f64>]) -> String {
    let of_paper = ["*clipper*", "*nexus*", "*clockwork*", "*orloj*"];
    let head = ["case", "objective"].into_iter().chain(of_paper).chain(COLUMNS);
    let mut table = Table::new(head);
    for (row, found) in rows.iter().zip(measured) {
        let text = [row.case.clone(), format!("{}", row.times_p99)];
        let printed = row.printed.map(|rate| format!("{rate:.2}"));
        table.add(
            text.into_iter().chain(printed).chain(found.iter().map(|rate| format!("{rate:.2}"))),
        );
    }
    table.markdown()
}

/// Where the paper's systems do far better here, and how far the policies are from each other.
fn remarks(rows: &[Row], measured: &[Vec<f64>]) -> String {
    let mean = |of: &dyn Fn(usize) -> f64| (0..rows.len()).map(of).sum::<f64>() / rows.len() as f64;
    let printed = |column: usize| mean(&|row| rows[row].printed[column]);
    let found = |column: usize| mean(&|row| measured[row][column]);
    let parts = (0..4).map(|column| {
        format!("{} {:.2} here and {:.2} there", COLUMNS[column], found(column), printed(column))
    });
    let worst = (0..rows.len()).map(|row| {
        let best = measured[row][..4].iter().copied().fold(0.0, f64::max);
        measured[row][5] - best
    });
    let far = |column: &usize| found(*column) > printed(*column) + FAR;
    let better: Vec<&str> = (0..3).filter(far).map(|column| COLUMNS[column]).collect();
    let stronger = match better.is_empty() {
        true => String::new(),
        false => format!(
            " Far better here than in the paper: {}. The paper's had no other estimate of a batch \
             than the mean of single requests, and, of Clockwork, a worker that refuses what \
             cannot \
             start when it was planned; ours plan with what batches took.",
            better.join(", ")
        ),
    };
    format!(
        "On average over the rows: {}; fermata {:.2} without and {:.2} with tags, never more than \
         {:.3} below the best of the others.{stronger}",
        parts.collect::<Vec<_>>().join(", "),
        found(4),
        found(5),
        worst.fold(f64::MAX, f64::min).min(0.0).abs(),
    )
}

fn picture(rows: &[Row], measured: &[Vec<f64>], subtitle: &str) -> String {
    let mut cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    cases.dedup();
    let panel = |case: &&str| -> Box<dyn Panel> {
        let of_case = || rows.iter().zip(measured).filter(|(row, _)| row.case == *case);
        let curve = |at: usize| of_case().map(|(row, found)| (row.times_p99, found[at])).collect();
        let mut series: Vec<Series> =
            [5, 4, 3, 2, 1, 0].map(|at| Series::measured(COLUMNS[at], curve(at))).into();
        let printed = of_case().map(|(row, _)| (row.times_p99, row.printed[3])).collect();
        series.push(Series { dashed: true, ..Series::line("orloj, paper", printed) });
        Box::new(Lines {
            title: (*case).to_owned(),
            x: Axis::between("objective (99th percentiles)", 1.5, 5.0),
            y: Axis::between("finish rate", 0.0, 1.0),
            series,
            marks: Vec::new(),
        })
    };
    let panels: Vec<Box<dyn Panel>> = cases.iter().map(panel).collect();
    let mut panels = panels.into_iter().peekable();
    let mut lines = Vec::new();
    while panels.peek().is_some() {
        lines.push((330.0, panels.by_ref().take(2).collect()));
    }
    figure("Finish rates by objective", subtitle, lines)
}
