//! The figures of a load, for people.

use std::fmt::Write;

use fermata_chart::grouped;
use fermata_files::Table;

use super::plan::{Mode, Plan};
use super::report::{Figures, LatencyMs, Report};
use crate::stolen::DISTURBED;

/// A generator that is late by more than this at its worst hundredth tells little about the server.
const LAG_US_MAX: f64 = 1_000.0;

/// The report as text.
pub(super) fn text(plan: &Plan, report: &Report) -> String {
    let mut text = headline(plan, report);
    let objective = plan.models.iter().any(|model| model.slo.is_some());
    let rows = rows(report, objective);
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name_width, value_width) = (width(0), width(1));
    for [name, value, note] in &rows {
        let line = format!("  {name:name_width$}  {value:>value_width$}  {note}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if report.models.len() > 1 {
        let _ = write!(text, "\n{}", models(report));
    }
    if let Some(steps) = &report.steps {
        let mut table = Table::new(["rate rps", "in time", "p99 ms", ""].into_iter());
        for step in steps {
            let cells = [
                grouped(step.offered_rps, 1),
                percent(step.in_time_share),
                format!("{:.2}", step.p99_ms),
                step.tried().name().to_owned(),
            ];
            table.row(cells.into_iter());
        }
        let _ = write!(text, "\n{}", table.render());
    }
    if !report.errors.is_empty() {
        text.push('\n');
    }
    for error in &report.errors {
        let _ = writeln!(
            text,
            "  {} {}, {}: {}",
            grouped(error.count as f64, 0),
            error.outcome,
            error.kind,
            error.first
        );
    }
    if report.lag_us.p99 > LAG_US_MAX {
        let _ = writeln!(
            text,
            "\n  requests were sent late (p99 {:.1} ms): this machine is busy, or one thread is \
             not enough (--threads)",
            report.lag_us.p99 / 1e3
        );
    }
    text
}

fn headline(plan: &Plan, report: &Report) -> String {
    let models: Vec<&str> = plan.models.iter().take(4).map(|model| model.name.as_str()).collect();
    let more = if plan.models.len() > 4 {
        format!(" and {} more", plan.models.len() - 4)
    } else {
        String::new()
    };
    let how = match plan.mode {
        Mode::Closed { concurrency } => format!("{concurrency} in flight"),
        Mode::Goodput { .. } | Mode::Open { .. } => format!("seed {}", plan.seed),
    };
    let cut = if report.cut { ", ended early" } else { "" };
    format!(
        "{}: {}{more}, {how}, {} s{cut}\n\n",
        report.url,
        models.join(", "),
        grouped(report.seconds, 1)
    )
}

fn rows(report: &Report, objective: bool) -> Vec<[String; 3]> {
    let total = &report.total;
    let row = |name: &str, value: String, note: String| [name.to_owned(), value, note];
    let mut rows = Vec::new();
    if let Some(goodput) = report.goodput_rps {
        let note = if goodput > 0.0 {
            "the figures below are of the run at this rate"
        } else {
            "no rate that was tried is good"
        };
        rows.push(row("goodput", rps(goodput), note.to_owned()));
    }
    if let Some(offered) = report.offered_rps {
        rows.push(row("offered", rps(offered), String::new()));
    }
    rows.push(row("sent", rps(total.sent_rps), String::new()));
    let slo = total.slo_ms.map_or(String::new(), |slo| format!(", within {slo} ms"));
    let word = if objective { "in time" } else { "answered" };
    rows.push(row(word, rps(total.in_time_rps), format!("{}{slo}", percent(total.in_time_share))));
    let counts = &total.counts;
    for (name, count) in [
        ("late", counts.late),
        ("shed", counts.shed),
        ("missed", counts.missed),
        ("failed", counts.failed),
    ] {
        if count > 0 {
            let share = count as f64 / counts.sent.max(1) as f64;
            rows.push(row(name, grouped(count as f64, 0), percent(share)));
        }
    }
    if let Some(latency) = total.latency_ms {
        for (name, value) in [
            ("latency p50", latency.p50),
            ("latency p90", latency.p90),
            ("latency p99", latency.p99),
            ("latency p99.9", latency.p999),
            ("latency max", latency.max),
        ] {
            rows.push(row(name, format!("{value:.3} ms"), String::new()));
        }
    }
    if report.waited_for_connection > 0 {
        let note = "because all connections were in use (--connections)".to_owned();
        rows.push(row("waited", grouped(report.waited_for_connection as f64, 0), note));
    }
    let lag = &report.lag_us;
    let note = format!("p99 {:.0} µs, max {:.0} µs: how late this program sent", lag.p99, lag.max);
    if report.offered_rps.is_some() {
        rows.push(row("lag p50", format!("{:.0} µs", lag.p50), note));
    }
    rows.push(row(
        "cost",
        format!("{:.1} µs", report.cpu_us_per_request),
        "CPU time of this program for a request".to_owned(),
    ));
    if let Some(stolen) = report.stolen_share.filter(|&share| share > DISTURBED) {
        let note = "of the processors' time went to other machines: without that, it may be faster";
        rows.push(row("stolen", percent(stolen), note.to_owned()));
    }
    rows
}

fn models(report: &Report) -> String {
    let head =
        ["model", "slo ms", "sent rps", "in time rps", "in time", "p50 ms", "p99 ms", "p99.9 ms"];
    let mut table = Table::new(head.into_iter());
    for model in &report.models {
        table.row(columns(&model.name, &model.figures).into_iter());
    }
    table.render()
}

fn columns(name: &str, figures: &Figures) -> [String; 8] {
    let latency = |pick: fn(&LatencyMs) -> f64| match &figures.latency_ms {
        Some(latency) => format!("{:.2}", pick(latency)),
        None => "-".to_owned(),
    };
    [
        name.to_owned(),
        figures.slo_ms.map_or("-".to_owned(), |slo| slo.to_string()),
        grouped(figures.sent_rps, 1),
        grouped(figures.in_time_rps, 1),
        percent(figures.in_time_share),
        latency(|latency| latency.p50),
        latency(|latency| latency.p99),
        latency(|latency| latency.p999),
    ]
}

fn rps(rate: f64) -> String {
    format!("{} rps", grouped(rate, 1))
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
