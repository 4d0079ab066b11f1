//! How far an experiment is: a bar with the time left on a terminal, else a line a minute.

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::trials::symphony::Meter;

const EVERY: Duration = Duration::from_secs(60);

/// One experiment's jobs.
pub(super) struct Progress {
    name: &'static str,
    bar: ProgressBar,
    /// When the last line was printed; `None` on a terminal, which has the bar.
    printed: Option<Mutex<Instant>>,
    start: Instant,
}

impl Progress {
    pub(super) fn start(name: &'static str) -> Self {
        let start = Instant::now();
        if !io::stderr().is_terminal() {
            let (bar, printed) = (ProgressBar::hidden(), Some(Mutex::new(start)));
            bar.set_length(0);
            return Self { name, bar, printed, start };
        }
        let bar = ProgressBar::new(0).with_message(name);
        let template = "{msg:9} {bar:40} {human_pos}/{human_len}, {elapsed} so far, {eta} left";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { name, bar, printed: None, start }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn print_line(&self) {
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let minutes = self.start.elapsed().as_secs_f64() / 60.0;
        let left = minutes / done.max(1) as f64 * all.saturating_sub(done) as f64;
        eprintln!("{}: {done} of {all}, {minutes:.0} min so far, about {left:.0} left", self.name);
    }
}

impl Meter for Progress {
    fn expect(&self, jobs: usize) {
        self.bar.inc_length(jobs as u64);
    }

    fn finish_one(&self) {
        self.bar.inc(1);
        let Some(printed) = &self.printed else { return };
        let mut printed = printed.lock().expect("nobody panics while printing");
        if printed.elapsed() >= EVERY {
            *printed = Instant::now();
            self.print_line();
        }
    }
}
