//! The picture of a plan: what each GPU does in a round, or what a pool's time goes to; and that of
//! a sweep.

use std::collections::BTreeMap;
use std::path::Path;

use fermata_chart::{Axis, Figure, Lines, Machines, Panel, Part, Row, Series, Shape, grouped};

use super::report::{PoolReport, Report};
use super::sweep::{Point, values};

const WIDTH: f64 = 1200.0;
/// What a panel has of the width.
const PANEL_WIDTH: f64 = WIDTH - 40.0;
/// More GPUs than this cannot be told apart on a screen.
const ROWS_MAX: usize = 200;
/// So high are all GPUs together that have rounds of their own: each must be read.
const ROUNDS_HEIGHT_MAX: f64 = 1800.0;
/// So high are pools, whose GPUs are all alike.
const POOLS_HEIGHT_MAX: f64 = 600.0;
/// More rounds of a GPU than this are too short to be seen.
const ROUNDS_MAX: usize = 250;
/// More models than this have colours that cannot be told apart, and no legend.
const LEGEND_MAX: usize = 48;
const SWEEP_HEIGHT: f64 = 380.0;

/// Draws a plan.
pub(super) fn draw(file: &Path, report: &Report) -> String {
    let in_rounds = report.pools.iter().any(|pool| pool.round_ms.is_some());
    let panel = if in_rounds { rounds(report) } else { pools(report) };
    let figure = Figure {
        title: format!(
            "{} on {}, method {}",
            counted(report.demands, "demand"),
            counted(report.gpus, "GPU"),
            report.method
        ),
        subtitle: subtitle(file, report),
        width: WIDTH,
        rows: vec![Row {
            height: panel.height(PANEL_WIDTH),
            panels: vec![Box::new(panel) as Box<dyn Panel>],
        }],
    };
    figure.render()
}

fn counted(number: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(number as f64, 0), if number == 1 { "" } else { "s" })
}

fn subtitle(file: &Path, report: &Report) -> String {
    let mut text = format!("{}: {} requests a second", file.display(), grouped(report.rate, 0));
    if report.lower_bound > 0 {
        text = format!("{text}; at least {} needed", counted(report.lower_bound, "GPU"));
    }
    if let Some(cost) = report.cost {
        text = format!("{text}; {} an hour", grouped(cost, 2));
    }
    match report.infeasible.len() {
        0 => text,
        several => format!("{text}; {} not met", counted(several, "demand")),
    }
}

/// The number of a model's colour, and the names by it: models that are planned, in the order of
/// the file.
fn colours(report: &Report) -> (BTreeMap<usize, usize>, Vec<String>) {
    let mut names: BTreeMap<usize, String> = BTreeMap::new();
    for member in report.pools.iter().flat_map(|pool| &pool.members) {
        names.entry(member.demand).or_insert_with(|| member.model.clone());
    }
    let colours = names.keys().enumerate().map(|(number, &demand)| (demand, number)).collect();
    (colours, names.into_values().collect())
}

fn legend(names: Vec<String>) -> Vec<String> {
    if names.len() <= LEGEND_MAX { names } else { Vec::new() }
}

fn shown(report: &Report) -> String {
    match report.gpus > ROWS_MAX {
        true => format!("; the first {ROWS_MAX} of {} GPUs", grouped(report.gpus as f64, 0)),
        false => String::new(),
    }
}

/// The rounds of each GPU; its shares above each other.
fn rounds(report: &Report) -> Machines {
    let (colours, names) = colours(report);
    let rows = report.gpus.min(ROWS_MAX);
    let longest = report.pools.iter().filter_map(|pool| pool.round_ms).fold(0.0, f64::max);
    // How much of each GPU is drawn already.
    let mut filled = vec![0.0; rows];
    let mut parts = Vec::new();
    for pool in &report.pools {
        let round = pool.round_ms.unwrap_or(longest);
        for &gpu in pool.gpus.iter().filter(|&&gpu| gpu < rows) {
            let (top, height) = (gpu as f64 + filled[gpu], f64::from(pool.share) / 100.0);
            filled[gpu] += height;
            let rounds = ((longest / round).ceil() as usize).min(ROUNDS_MAX);
            for number in 0..rounds {
                let mut start = number as f64 * round;
                for member in &pool.members {
                    let finish = start + member.occupancy * round;
                    parts.push(Part {
                        top,
                        height,
                        start,
                        finish,
                        colour: colours[&member.demand],
                        label: format!("{} x {}", member.model, member.batch),
                        faint: number > 0,
                    });
                    start = finish;
                }
            }
        }
    }
    Machines {
        title: format!(
            "The rounds of each GPU, the first of them in full colour: a block is a batch, with \
             its size{}",
            shown(report)
        ),
        x: Axis::between("time (ms)", 0.0, longest),
        row_title: "GPU".to_owned(),
        rows,
        rows_height_max: ROUNDS_HEIGHT_MAX,
        legend: legend(names),
        parts,
    }
}

/// Each pool as one block of as many rows as it has GPUs.
fn pools(report: &Report) -> Machines {
    let (colours, names) = colours(report);
    let rows = report.gpus.min(ROWS_MAX);
    let mut parts = Vec::new();
    for pool in &report.pools {
        for (top, height) in spans(pool, rows) {
            let mut start = 0.0;
            for member in &pool.members {
                let finish = start + 100.0 * member.occupancy;
                let colour = colours[&member.demand];
                let label = member.model.clone();
                parts.push(Part { top, height, start, finish, colour, label, faint: false });
                start = finish;
            }
        }
    }
    Machines {
        title: format!(
            "Pools of GPUs, any of which runs any of its models: what their time goes to{}",
            shown(report)
        ),
        x: Axis::between("share of the pool's time, as planned (%)", 0.0, 100.0),
        row_title: "GPU".to_owned(),
        rows,
        rows_height_max: POOLS_HEIGHT_MAX,
        legend: legend(names),
        parts,
    }
}

/// The rows of a pool's GPUs, as stretches of neighbours.
fn spans(pool: &PoolReport, rows: usize) -> Vec<(f64, f64)> {
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for gpu in pool.gpus.iter().filter(|&&gpu| gpu < rows).map(|&gpu| gpu as f64) {
        match spans.last_mut() {
            Some((top, height)) if *top + *height == gpu => *height += 1.0,
            _ => spans.push((gpu, 1.0)),
        }
    }
    spans
}

/// Draws GPUs, and what they cost, over a sweep.
pub(super) fn draw_sweep(file: &Path, method: &str, points: &[Point]) -> String {
    let (slos, rates) = (values(points, |point| point.slo), values(points, |point| point.rate));
    // The longer side is the axis; the other makes the lines.
    let over_rates = rates.len() >= slos.len();
    let (x_title, lines, word) = match over_rates {
        true => ("rates, as a factor of the file's", &slos, "SLO"),
        false => ("SLOs, as a factor of the file's", &rates, "rate"),
    };
    let x = |point: &Point| if over_rates { point.rate } else { point.slo };
    let line = |point: &Point| if over_rates { point.slo } else { point.rate };
    let series = |of: &dyn Fn(&Point) -> Option<f64>| -> Vec<Series> {
        let one = |&value: &f64| {
            // Where something is left out, GPUs and cost would be too low.
            let whole = |point: &&Point| point.infeasible.is_empty();
            let on = points.iter().filter(|point| line(point) == value).filter(whole);
            let at = on.filter_map(|point| Some((x(point), of(point)?))).collect();
            let shape = Shape::LineAndDots;
            Series { name: format!("{word} x {value}"), points: at, shape, dashed: false }
        };
        lines.iter().map(one).collect()
    };
    let chart = |title: &str, y: &str, of: &dyn Fn(&Point) -> Option<f64>| Lines {
        title: title.to_owned(),
        x: Axis::fitting(x_title),
        y: Axis::from_zero(y),
        series: series(of),
        marks: Vec::new(),
    };
    let mut panels: Vec<Box<dyn Panel>> =
        vec![Box::new(chart("GPUs", "GPUs", &|point| Some(point.gpus as f64)))];
    if points.iter().any(|point| point.cost.is_some()) {
        panels.push(Box::new(chart("Cost", "cost an hour", &|point| point.cost)));
    }
    let unmet = points.iter().filter(|point| !point.infeasible.is_empty()).count();
    let note = match unmet {
        0 => String::new(),
        several => format!("; {several} points at which demands cannot be met are left out"),
    };
    let figure = Figure {
        title: format!("What if? Method {method}"),
        subtitle: format!("{}{note}", file.display()),
        width: WIDTH,
        rows: vec![Row { height: SWEEP_HEIGHT, panels }],
    };
    figure.render()
}
