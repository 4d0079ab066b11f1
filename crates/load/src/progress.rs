//! How a run goes: a line on the terminal that is kept up to date, else a line every few seconds.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use fermata_chart::grouped;
use indicatif::{ProgressBar, ProgressStyle};

use super::plan::{Mode, Plan};
use super::record::{Outcome, Slice};

/// The line, or nothing where nobody reads.
pub(super) struct Progress {
    bar: ProgressBar,
    terminal: bool,
    /// When something was last said.
    said: Cell<Instant>,
    /// What the run is about.
    what: Cell<String>,
    objective: bool,
}

const ON_TERMINAL: Duration = Duration::from_millis(500);
const IN_LINES: Duration = Duration::from_secs(5);

impl Progress {
    pub(super) fn start(plan: &Plan) -> Self {
        let terminal = io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg}").expect("the template is well formed"),
        );
        let what = match plan.mode {
            Mode::Closed { concurrency } => format!("{concurrency} in flight"),
            Mode::Goodput { .. } | Mode::Open { .. } => format!("{} rps", grouped(plan.rate(), 0)),
        };
        let objective = plan.models.iter().any(|model| model.slo.is_some());
        Self { bar, terminal, said: Cell::new(Instant::now()), what: Cell::new(what), objective }
    }

    /// Says how it goes, if it is time to; `recent` is what happened since.
    pub(super) fn tick(&self, since: Duration, recent: impl FnOnce() -> Slice) {
        let passed = self.said.get().elapsed();
        if passed < if self.terminal { ON_TERMINAL } else { IN_LINES } {
            return;
        }
        self.said.set(Instant::now());
        let recent = recent();
        let what = self.what.take();
        let line = line(&what, since, passed, &recent, self.objective);
        self.what.set(what);
        if self.terminal {
            self.bar.set_message(line);
            self.bar.tick();
        } else {
            eprintln!("{line}");
        }
    }

    /// A search tries another rate.
    pub(super) fn step(&self, rate: f64) {
        self.what.set(format!("{} rps", grouped(rate, 0)));
        self.said.set(Instant::now());
    }

    /// A search has tried a rate, and this is what it has seen.
    pub(super) fn stepped(&self, line: &str) {
        if self.terminal { self.bar.println(line) } else { eprintln!("{line}") }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn line(what: &str, since: Duration, passed: Duration, recent: &Slice, objective: bool) -> String {
    let ended: u64 = recent.counts.iter().sum();
    let share = |count: u64| 100.0 * count as f64 / ended.max(1) as f64;
    let word = if objective { "in time" } else { "answered" };
    let quantile = |share| recent.latency.value_at_quantile(share) as f64 / 1e6;
    let mut line = format!(
        "{:.0} s, {what}: sent {} rps, {:.2} % {word}, p50 {:.2} ms, p99 {:.2} ms",
        since.as_secs_f64(),
        grouped(recent.sent as f64 / passed.as_secs_f64(), 0),
        share(recent.counts[Outcome::InTime as usize]),
        quantile(0.5),
        quantile(0.99),
    );
    for outcome in [Outcome::Shed, Outcome::Missed, Outcome::Failed] {
        let count = recent.counts[outcome as usize];
        if count > 0 {
            line += &format!(", {} {}", grouped(count as f64, 0), outcome.name());
        }
    }
    line
}
