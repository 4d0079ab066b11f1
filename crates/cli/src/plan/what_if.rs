//! `--what-if`: the same demands with other objectives and rates.

use fermata_chart::grouped;
use fermata_files::{Table, output};
use fermata_plan::Method;
use fermata_sim::confirm::Trial;
use serde::Serialize;

use super::args::PlanArgs;
use super::file::PlanFile;
use super::progress::Progress;
use super::report::Report;
use super::sweep::{Point, Sweep, values};
use super::{make, method, picture};

/// Plans for each point.
pub(super) fn sweep(
    file: &PlanFile,
    method: Method,
    sweep: &Sweep,
    trial: Option<Trial>,
    progress: &Progress,
) -> Vec<Point> {
    let mut points = Vec::new();
    for &rate in &sweep.rate {
        for &slo in &sweep.slo {
            let limited = file.case(slo, rate);
            // How many are needed is the question, not who gets the few that there may be.
            let case = limited.without_limits();
            let made = make(&case, method, None, trial, progress);
            let seed = trial.map_or(0, |trial| trial.seed);
            let report = Report::new(&case, method, &made, None, seed);
            points.push(Point {
                slo,
                rate,
                gpus: report.gpus,
                lower_bound: report.lower_bound,
                cost: report.cost,
                within_limits: limited.allows(&made.plan),
                infeasible: report.infeasible.iter().map(|each| each.model.clone()).collect(),
                in_time: report.confirmed.as_ref().map(|confirmed| confirmed.in_time),
                estimate: report.confirmed.as_ref().map(|confirmed| confirmed.estimate),
            });
        }
    }
    points
}

/// Prints and draws what came out. Points at which something is not met are part of the answer.
pub(super) fn tell(args: &PlanArgs, points: &[Point]) -> anyhow::Result<()> {
    if let Some(out) = &args.plot {
        output::write_file(
            out,
            &picture::draw_sweep(&args.file, method::name(args.method), points),
        )?;
    }
    #[derive(Serialize)]
    struct Told<'a> {
        method: &'static str,
        what_if: &'a [Point],
    }
    let told = Told { method: method::name(args.method), what_if: points };
    output::print(&match args.json {
        true => serde_json::to_string_pretty(&told)? + "\n",
        false => text(args, points),
    })
}

fn text(args: &PlanArgs, points: &[Point]) -> String {
    let what = if points.iter().any(|point| point.cost.is_some()) { "GPUs, cost" } else { "GPUs" };
    let mut text = format!(
        "{}: {what} by method {}, if rates (down) and SLOs (across) were so many times as high\n\n",
        args.file.display(),
        method::name(args.method)
    );
    let slos = values(points, |point| point.slo);
    let head: Vec<String> = slos.iter().map(|slo| format!("SLO x {slo}")).collect();
    let mut table = Table::new(["rate"].into_iter().chain(head.iter().map(String::as_str)));
    for row in points.chunks(slos.len().max(1)) {
        let name = format!("x {}", row[0].rate);
        table.row([name].into_iter().chain(row.iter().map(cell)));
    }
    text.push_str(&table.render());
    if points.iter().any(|point| !point.within_limits) {
        text.push_str("\n  !: more than there may be\n");
    }
    if points.iter().any(|point| !point.infeasible.is_empty()) {
        text.push_str("\n  (n): so many demands are not met, and not counted\n");
    }
    if points.iter().any(|point| point.in_time == Some(false)) {
        text.push_str("\n  late: some model has less than 99 % of its requests in time\n");
    }
    text
}

fn cell(point: &Point) -> String {
    let mut text = point.gpus.to_string();
    if let Some(cost) = point.cost {
        text = format!("{text}, {}", grouped(cost, 2));
    }
    if !point.within_limits {
        text += " !";
    }
    if !point.infeasible.is_empty() {
        text = format!("{text} ({})", point.infeasible.len());
    }
    match point.in_time {
        Some(false) => text + " late",
        _ => text,
    }
}
