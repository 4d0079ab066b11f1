//! The picture of a profile: latency and throughput by batch size.

use fermata_chart::{Axis, Figure, Lines, Mark, Panel, Row as Panels, Series};

use super::report::{Report, Row};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 300.0;

/// Draws all models, one below the other.
pub(super) fn draw(reports: &[Report]) -> String {
    let title = match reports {
        [report] => format!("{} on {}", report.name, report.engine),
        several => format!("{} models", several.len()),
    };
    let subtitle = match reports.iter().find(|report| report.threads > 0) {
        Some(report) => format!("{}, {} threads", report.device, report.threads),
        None => "emulated".to_owned(),
    };
    let row = |report: &Report| {
        let panels: Vec<Box<dyn Panel>> =
            vec![Box::new(latency(report)), Box::new(throughput(report))];
        Panels { height: HEIGHT, panels }
    };
    Figure { title, subtitle, width: WIDTH, rows: reports.iter().map(row).collect() }.render()
}

fn latency(report: &Report) -> Lines {
    let points = |value: &dyn Fn(&Row) -> f64| -> Vec<(f64, f64)> {
        report.batches.iter().map(|row| (row.batch as f64, value(row))).collect()
    };
    Lines {
        title: format!("{}: latency", report.name),
        x: Axis::from_zero("batch size (requests)"),
        y: Axis::from_zero("latency (ms)"),
        series: vec![
            Series::line("tail (P99)", points(&|row| row.tail_ms)),
            Series::line("mean", points(&|row| row.mean_ms)),
        ],
        marks: vec![Mark::Y(report.slo_ms, format!("SLO {} ms", report.slo_ms))],
    }
}

fn throughput(report: &Report) -> Lines {
    let points = report.batches.iter().map(|row| (row.batch as f64, row.rps)).collect();
    Lines {
        title: format!("{}: throughput", report.name),
        x: Axis::from_zero("batch size (requests)"),
        y: Axis::from_zero("requests/s of one executor"),
        series: vec![Series::line("mean", points)],
        marks: Vec::new(),
    }
}
