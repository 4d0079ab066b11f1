//! How far a run is, for whoever watches a terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use fermata_sim::Scenario;
use indicatif::{ProgressBar, ProgressStyle};

use super::{NamedPolicy, Question};

/// A bar on the terminal, or nothing where nobody watches.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn start(
        scenario: &Scenario,
        policies: &[NamedPolicy],
        question: Question,
        json: bool,
    ) -> Self {
        if json || !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let requests = scenario.expected().iter().sum::<f64>() * policies.len() as f64;
        let searching = "{spinner} {msg}, {elapsed}";
        let (bar, template) = match question {
            Question::Run => (
                ProgressBar::new(requests as u64),
                "{bar:40} {human_pos}/{human_len} requests, {eta}",
            ),
            Question::Goodput => {
                (ProgressBar::new_spinner().with_message("searching for the goodput"), searching)
            }
            Question::MinGpus { .. } => (
                ProgressBar::new_spinner().with_message("searching for the fewest gpus"),
                searching,
            ),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }

    pub(super) fn add(&self, requests: u64) {
        self.bar.inc(requests);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
