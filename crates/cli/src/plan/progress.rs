//! How far the trying of a plan is, for whoever watches a terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on the terminal, or nothing where nobody watches.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn start(confirm: bool) -> Self {
        if !confirm || !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::new(0);
        let template = "{spinner} trying the plan: {pos} of {len} pools, {elapsed}";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }

    /// So many more pools are to be tried.
    pub(super) fn expect(&self, pools: usize) {
        self.bar.inc_length(pools as u64);
    }

    /// One of them was.
    pub(super) fn finish_one(&self) {
        self.bar.inc(1);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
