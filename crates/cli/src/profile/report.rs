//! What was measured, for people and for machines.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use fermata_chart::grouped;
use fermata_core::{Profile, Span};
use fermata_engine::Engine;
use fermata_files::Table;
use fermata_server::profiler::{Latency, Measured, Planned, Stop};
use serde::Serialize;

/// One model.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) name: String,
    pub(super) engine: String,
    pub(super) device: String,
    pub(super) threads: usize,
    pub(super) slo_ms: f64,
    /// Why there is no larger batch: the SLO, the largest that the model takes, the time to
    /// measure, or that it fails.
    pub(super) end: &'static str,
    /// Whether it was measured before.
    pub(super) kept: bool,
    /// Where it was written just now.
    pub(super) written: Option<PathBuf>,
    pub(super) batches: Vec<Row>,
    /// What batches are planned with.
    pub(super) planned_ms: Vec<f64>,
    /// Whether its requests may differ in length: then these latencies are those of one length.
    pub(super) differs_in_length: bool,
    #[serde(skip)]
    not_written: Option<String>,
}

/// One batch size.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Row {
    pub(super) batch: usize,
    pub(super) mean_ms: f64,
    pub(super) median_ms: f64,
    pub(super) tail_ms: f64,
    /// How many were timed; zero where the latency was interpolated.
    pub(super) runs: usize,
    /// Requests a second of an executor that runs such batches without a pause.
    pub(super) rps: f64,
}

impl Report {
    pub(super) fn new(
        name: &str,
        engine: &dyn Engine,
        threads: usize,
        slo: Span,
        measured: &Measured,
        written: Option<io::Result<PathBuf>>,
    ) -> Self {
        let kept = written.is_none();
        let (written, not_written) = match written {
            None => (None, None),
            Some(Ok(file)) => (Some(file), None),
            Some(Err(error)) => (None, Some(error.to_string())),
        };
        Self {
            name: name.to_owned(),
            engine: engine.name().to_owned(),
            device: engine.device(),
            threads,
            slo_ms: slo.as_ms(),
            end: match measured.stop {
                Stop::Failed(_) => "failed",
                Stop::Limit => "slo",
                Stop::MaxBatch => "max_batch",
                Stop::Time => "time",
            },
            kept,
            written,
            batches: (1..)
                .zip(&measured.batches)
                .map(|(batch, latency)| Row::new(batch, latency))
                .collect(),
            planned_ms: planned(&measured.profile(Planned::of(engine))),
            differs_in_length: false,
            not_written,
        }
    }

    /// An emulated model's latencies are what its file says.
    pub(super) fn emulated(name: &str, slo: Span, profile: &Profile) -> Self {
        let sizes = profile.largest_within(slo).max(1);
        let row = |batch: usize| {
            let latency = profile.latency(batch);
            Row::new(batch, &Latency { mean: latency, median: latency, tail: latency, runs: 0 })
        };
        Self {
            name: name.to_owned(),
            engine: "emulated".to_owned(),
            device: "emulated".to_owned(),
            threads: 0,
            slo_ms: slo.as_ms(),
            end: if sizes < profile.max_batch() { "slo" } else { "max_batch" },
            kept: true,
            written: None,
            batches: (1..=sizes).map(row).collect(),
            planned_ms: planned(profile)[..sizes].to_vec(),
            differs_in_length: false,
            not_written: None,
        }
    }

    fn head(&self) -> String {
        let on = match self.threads {
            0 => "emulated: as its fermata.toml says".to_owned(),
            1 => format!("{}, one thread on {}", self.engine, self.device),
            threads => format!("{}, {threads} threads on {}", self.engine, self.device),
        };
        let from = if self.kept && self.threads > 0 {
            ", measured before (--force measures again)"
        } else {
            ""
        };
        format!("{}: {on}{from}\n", self.name)
    }

    fn table(&self) -> String {
        let mut table = Table::new(["batch", "mean ms", "tail ms", "requests/s"].into_iter());
        let timed = self.batches.iter().any(|row| row.runs > 0);
        let last = self.batches.len();
        // What was interpolated is in the JSON and in the list below.
        for row in self.batches.iter().filter(|row| !timed || row.runs > 0 || row.batch == last) {
            let cells = [
                row.batch.to_string(),
                format!("{:.3}", row.mean_ms),
                format!("{:.3}", row.tail_ms),
                grouped(row.rps, 0),
            ];
            table.row(cells.into_iter());
        }
        table.render()
    }

    /// What is not seen here.
    fn lengths(&self) -> &'static str {
        match self.differs_in_length {
            true => {
                "  its requests may differ in length: these are of the shortest, or as --shape \
                 says; fermata serve measures \
                 by length, when it loads the model\n"
            }
            false => "",
        }
    }

    fn ending(&self) -> String {
        let alone = self.batches[0].median_ms;
        let largest = self.batches.len();
        match self.end {
            _ if alone > self.slo_ms => {
                format!(
                    "  one request takes {alone:.3} ms, longer than the SLO of {} ms: none could \
                     be in time\n",
                    self.slo_ms
                )
            }
            "slo" => format!(
                "  {} and more would take longer than the SLO of {} ms\n",
                largest + 1,
                self.slo_ms
            ),
            "failed" => format!("  {} and more fail\n", largest + 1),
            _ => format!("  {largest} is the largest batch of the model\n"),
        }
    }

    /// What to give to `fermata sim`.
    fn snippet(&self) -> String {
        let latencies: Vec<String> = self.planned_ms.iter().map(f64::to_string).collect();
        format!(
            "  for fermata sim:\n  [[model]]\n  name = {:?}\n  latency_ms = [{}]\n  slo_ms = {}\n  \
             rate = 100\n",
            self.name,
            latencies.join(", "),
            self.slo_ms
        )
    }
}

impl Row {
    fn new(batch: usize, latency: &Latency) -> Self {
        let rps = batch as f64 / latency.mean.as_secs().max(1e-9);
        Self {
            batch,
            mean_ms: latency.mean.as_ms(),
            median_ms: latency.median.as_ms(),
            tail_ms: latency.tail.as_ms(),
            runs: latency.runs,
            rps,
        }
    }
}

/// The latencies of a profile, to the microsecond above.
fn planned(profile: &Profile) -> Vec<f64> {
    let ms = |size: usize| (profile.latency(size).as_ms() * 1e3).ceil() / 1e3;
    (1..=profile.max_batch()).map(ms).collect()
}

/// All models, for people.
pub(super) fn text(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&report.head());
        text.push_str(&report.table());
        text.push_str(&report.ending());
        text.push_str(report.lengths());
        match (&report.written, &report.not_written) {
            (Some(file), _) => {
                let _ = writeln!(text, "  kept in {}", file.display());
            }
            (_, Some(reason)) => {
                let _ = writeln!(text, "  not kept: {reason}");
            }
            _ => {}
        }
        text.push_str(&report.snippet());
    }
    text
}

/// All models, for machines.
pub(super) fn json(reports: &[Report]) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(reports)?;
    text.push('\n');
    Ok(text)
}
