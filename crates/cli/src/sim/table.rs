//! The figures of a run, for people.

use std::fmt::Write;
use std::path::Path;

use fermata_chart::grouped;
use fermata_files::Table;

use super::report::{Figures, ModelReport, Report};

/// More models than this are named only in the JSON: the worst come first.
const MODELS_SHOWN: usize = 20;

/// The reports as text: one in detail, several side by side.
pub(super) fn text(file: &Path, reports: &[Report]) -> String {
    match reports {
        [report] => detail(file, report),
        several => comparison(file, several),
    }
}

fn detail(file: &Path, report: &Report) -> String {
    let Report { total, .. } = report;
    let mut rows = vec![
        ["offered", &rps(total.offered_rps), ""].map(str::to_owned),
        ["in time", &rps(total.in_time_rps), ""].map(str::to_owned),
        ["bad", &percent(total.bad_rate), &worst_note(report)].map(str::to_owned),
        ["busy", &percent(total.busy_fraction), ""].map(str::to_owned),
        ["executors used", &total.executors_used.to_string(), &format!("of {}", report.executors)]
            .map(str::to_owned),
        ["batch, median", &total.batch_p50.to_string(), ""].map(str::to_owned),
    ];
    if let Some(latency) = total.latency_ms {
        for (name, value) in [
            ("latency p50", latency.p50),
            ("latency p99", latency.p99),
            ("latency p99.9", latency.p999),
        ] {
            rows.push([name.to_owned(), format!("{value:.2} ms"), String::new()]);
        }
    }
    if let Some(found) = found(report) {
        rows.insert(0, found);
    }
    let mut text = headline(file, report, &format!("policy {}", report.policy));
    let widest =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name_width, value_width) = (widest(0), widest(1));
    for [name, value, note] in &rows {
        let line = format!("  {name:name_width$}  {value:>value_width$}  {note}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if report.models.len() > 1 {
        text.push('\n');
        text.push_str(&models(report));
    }
    text
}

/// What was searched for.
fn found(report: &Report) -> Option<[String; 3]> {
    if let Some(goodput) = report.total.goodput_rps {
        let note = match goodput > 0.0 {
            true => "the figures below are of a run at this rate",
            false => "some model fails at any rate; the figures below are of the file's",
        };
        return Some(["goodput".to_owned(), rps(goodput), note.to_owned()]);
    }
    let (value, note) = match report.min_gpus? {
        Ok(fewest) => {
            (fewest.to_string(), "the figures below are of a run with that many".to_owned())
        }
        Err(most) => {
            let note = format!("even {most} are too few; the figures below are of the file's");
            ("none".to_owned(), note)
        }
    };
    Some(["fewest gpus".to_owned(), value, note])
}

fn worst_note(report: &Report) -> String {
    match report.models.len() {
        0 | 1 => String::new(),
        _ => format!("worst model {}", percent(report.worst_bad_rate)),
    }
}

fn headline(file: &Path, report: &Report, policy: &str) -> String {
    let models = match report.models.len() {
        1 => "1 model".to_owned(),
        several => format!("{several} models"),
    };
    let gpus = match report.gpus {
        1 => "1 gpu".to_owned(),
        several => format!("{several} gpus"),
    };
    let (file, seed, seconds) = (file.display(), report.seed, grouped(report.seconds, 1));
    format!("{file}: {models} on {gpus}, {policy}, seed {seed}, {seconds} s\n\n")
}

fn models(report: &Report) -> String {
    let mut worst_first: Vec<&ModelReport> = report.models.iter().collect();
    worst_first.sort_by(|a, b| b.figures.bad_rate.total_cmp(&a.figures.bad_rate));
    let mut table = Table::new(
        [
            "model",
            "slo ms",
            "offered rps",
            "in time rps",
            "bad",
            "busy",
            "batch",
            "p50 ms",
            "p99 ms",
        ]
        .into_iter()
        .chain(["p99.9 ms"]),
    );
    for ModelReport { name, slo, figures } in worst_first.iter().take(MODELS_SHOWN) {
        let head = [name.clone(), slo.as_ms().to_string()];
        table.row(head.into_iter().chain(columns(figures)));
    }
    let mut text = table.render();
    if let Some(more) = report.models.len().checked_sub(MODELS_SHOWN + 1) {
        let _ = writeln!(text, "  and {} more, none of them worse: see --json", more + 1);
    }
    text
}

fn columns(figures: &Figures) -> impl Iterator<Item = String> {
    let latency = |pick: fn(&super::report::LatencyMs) -> f64| match &figures.latency_ms {
        Some(latency) => format!("{:.2}", pick(latency)),
        None => "-".to_owned(),
    };
    [
        grouped(figures.offered_rps, 1),
        grouped(figures.in_time_rps, 1),
        percent(figures.bad_rate),
        percent(figures.busy_fraction),
        figures.batch_p50.to_string(),
        latency(|latency| latency.p50),
        latency(|latency| latency.p99),
        latency(|latency| latency.p999),
    ]
    .into_iter()
}

fn comparison(file: &Path, reports: &[Report]) -> String {
    let first = &reports[0];
    let searched = match (first.total.goodput_rps, first.min_gpus) {
        (Some(_), _) => Some("goodput rps"),
        (_, Some(_)) => Some("fewest gpus"),
        _ => None,
    };
    let head =
        ["offered rps", "in time rps", "bad", "busy", "batch", "p50 ms", "p99 ms", "p99.9 ms"];
    let last = ["worst model", "used"];
    let head = ["policy"].into_iter().chain(searched).chain(head).chain(last);
    let mut table = Table::new(head);
    for report in reports {
        let searched = match (report.total.goodput_rps, report.min_gpus) {
            (Some(goodput), _) => Some(grouped(goodput, 1)),
            (_, Some(Ok(fewest))) => Some(fewest.to_string()),
            (_, Some(Err(most))) => Some(format!("> {most}")),
            _ => None,
        };
        let last = [percent(report.worst_bad_rate), report.total.executors_used.to_string()];
        let row = [report.policy.clone()].into_iter().chain(searched);
        table.row(row.chain(columns(&report.total)).chain(last));
    }
    headline(file, first, &format!("{} policies", reports.len())) + &table.render()
}

fn rps(rate: f64) -> String {
    format!("{} rps", grouped(rate, 1))
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
