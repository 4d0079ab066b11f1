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
use super::{make, method, picture};

/// Factors of the file's objectives and rates; each objective is planned with each rate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sweep {
    slo: Vec<f64>,
    rate: Vec<f64>,
}

/// As many values, if it is not said how many.
const STEPS: usize = 6;
const STEPS_MAX: usize = 1000;
/// Factors are from its inverse to this.
const FACTOR_MAX: f64 = 1e4;

/// One point of a sweep.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) slo: f64,
    pub(super) rate: f64,
    pub(super) gpus: usize,
    pub(super) lower_bound: usize,
    pub(super) cost: Option<f64>,
    /// Whether there may be so many.
    pub(super) within_limits: bool,
    /// The demands that are not met.
    pub(super) infeasible: Vec<String>,
    /// Only where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_time: Option<bool>,
    /// How many GPUs were estimated before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) estimate: Option<usize>,
}

impl Sweep {
    /// Reads `slo=0.8..1.5:4,rate=2`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut slo, mut rate) = (None, None);
        for part in text.split(',') {
            let (key, values) =
                part.split_once('=').ok_or_else(|| format!("'{part}' has no '='"))?;
            let place = match key.trim() {
                "slo" => &mut slo,
                "rate" => &mut rate,
                other => return Err(format!("'{other}' is not slo or rate")),
            };
            if place.replace(factors(values.trim())?).is_some() {
                return Err(format!("'{}' is there twice", key.trim()));
            }
        }
        let usual = || vec![1.0];
        Ok(Self { slo: slo.unwrap_or_else(usual), rate: rate.unwrap_or_else(usual) })
    }
}

/// `2`, `0.5..2` or `0.5..2:4`.
fn factors(text: &str) -> Result<Vec<f64>, String> {
    let factor = |text: &str| match text.parse::<f64>() {
        Ok(factor) if (1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&factor) => Ok(factor),
        _ => Err(format!("'{text}' is not a factor from {} to {FACTOR_MAX}", 1.0 / FACTOR_MAX)),
    };
    let Some((low, rest)) = text.split_once("..") else { return Ok(vec![factor(text)?]) };
    let (high, steps) = match rest.split_once(':') {
        None => (rest, STEPS),
        Some((high, steps)) => match steps.parse() {
            Ok(steps) if (2..=STEPS_MAX).contains(&steps) => (high, steps),
            _ => return Err(format!("'{steps}' is not a number of steps from 2 to {STEPS_MAX}")),
        },
    };
    let (low, high) = (factor(low)?, factor(high)?);
    let step = (high - low) / (steps - 1) as f64;
    // As a person would write them: no digits that only a machine sees.
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    Ok((0..steps).map(|at| rounded(low + step * at as f64)).collect())
}

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

/// The values of one side of a sweep, in its order.
pub(super) fn values(points: &[Point], of: impl Fn(&Point) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = Vec::new();
    for point in points {
        if !values.contains(&of(point)) {
            values.push(of(point));
        }
    }
    values
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_read() {
        let sweep = Sweep::parse("slo=1..2:3,rate=0.5").unwrap();
        assert_eq!(sweep, Sweep { slo: vec![1.0, 1.5, 2.0], rate: vec![0.5] });
        assert_eq!(Sweep::parse("rate=0.5..2").unwrap().rate, [0.5, 0.8, 1.1, 1.4, 1.7, 2.0]);
        for (text, words) in [
            ("slo", "no '='"),
            ("price=2", "'price' is not slo or rate"),
            ("slo=0", "'0' is not a factor"),
            ("slo=1..x", "'x' is not a factor"),
            ("slo=1..2:1", "'1' is not a number of steps"),
            ("slo=1,slo=2", "'slo' is there twice"),
        ] {
            let reason = Sweep::parse(text).unwrap_err();
            assert!(reason.contains(words), "{text}: {reason}");
        }
    }
}
