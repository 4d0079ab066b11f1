//! How much later than planned answers are ready: learned, and taken off deadlines. How late
//! threads are woken.
//!
//! A profile says how long a batch runs. That the executor was woken late, ran slower than usual or
//! had to wait for a core shows only when it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fermata_core::Span;

/// How many batches, or wakeups, are remembered.
const WINDOW: usize = 256;
/// The parts of the batches, and of the requests in them, that may exceed the margin. In a batch
/// that is held to its last moment only the most urgent request is late when it overruns. So much
/// less than one request in a hundred is late, whether batches are large or have one request each.
const EXCEED: f64 = 0.02;
const EXCEED_PER_REQUEST: f64 = 0.004;
/// After how many batches the margin is worked out again.
const PERIOD: usize = 32;

/// The least and the most that is reckoned with for late wakeups; between them, recent wakeups
/// decide. No thread is woken in time to the microsecond, and a batch that is held until its last
/// moment would pass it.
pub(crate) const LATE_MIN: Span = Span(200_000);
const LATE_MAX: Span = Span(5_000_000);

/// Remembers by how much batches overran their plan, or wakeups their time.
#[derive(Debug)]
struct Overruns {
    /// By how much, and how many requests it had.
    window: Vec<(Span, usize)>,
    at: usize,
}

impl Overruns {
    fn new() -> Self {
        Self { window: Vec::with_capacity(WINDOW), at: 0 }
    }

    /// Notes a batch with its number of requests. Every 32 batches it says what most of the last
    /// ones stayed below.
    fn note(&mut self, overrun: Span, requests: usize) -> Option<Span> {
        if self.window.len() < WINDOW {
            self.window.push((overrun, requests));
        } else {
            self.window[self.at % WINDOW] = (overrun, requests);
        }
        self.at += 1;
        if !self.at.is_multiple_of(PERIOD) {
            return None;
        }
        let mut sorted = self.window.clone();
        sorted.sort_unstable();
        let requests = sorted.iter().map(|&(_, requests)| requests as f64).sum::<f64>();
        let exceed = (EXCEED * sorted.len() as f64).min(EXCEED_PER_REQUEST * requests) as usize;
        Some(sorted[sorted.len() - 1 - exceed.min(sorted.len() - 1)].0)
    }
}

/// Learns how punctually a thread is woken.
#[derive(Debug)]
pub(crate) struct Lateness(Overruns);

impl Lateness {
    pub(crate) fn new() -> Self {
        Self(Overruns::new())
    }

    /// Notes one wakeup. From time to time it says what dispatch should reckon with.
    pub(crate) fn note(&mut self, late: Span) -> Option<Span> {
        // A wakeup that is too late costs no request by itself.
        self.0.note(late, usize::MAX).map(|late| (LATE_MIN + late).min(LATE_MAX))
    }
}

/// Learns a pool's margin, on the thread that hears of all its batches.
#[derive(Debug)]
pub(crate) struct Learner {
    overruns: Overruns,
    margin: Arc<Margin>,
}

impl Learner {
    pub(crate) fn new(margin: Arc<Margin>) -> Self {
        Self { overruns: Overruns::new(), margin }
    }

    /// Notes by how much a batch overran its plan, and how many requests it had.
    pub(crate) fn note(&mut self, overrun: Span, requests: usize) {
        if let Some(overrun) = self.overruns.note(overrun, requests) {
            self.margin.set(overrun);
        }
    }
}

/// What comes off every deadline: written by its learner, read for each request.
#[derive(Debug)]
pub(crate) struct Margin {
    /// For what cannot be measured here: the way back to the client.
    least: Span,
    now: AtomicU64,
}

impl Margin {
    pub(crate) fn new(least: Span) -> Self {
        Self { least, now: AtomicU64::new(least.0) }
    }

    fn set(&self, overrun: Span) {
        self.now.store((self.least + overrun).0, Relaxed);
    }

    pub(crate) fn get(&self) -> Span {
        Span(self.now.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_batch_in_a_hundred_is_not_waited_for_and_many_are() {
        let mut overruns = Overruns::new();
        let mut told = Span::ZERO;
        for batch in 0..512 {
            let slow = batch % 100 == 99;
            told = overruns.note(Span(if slow { 9000 } else { 10 }), 8).unwrap_or(told);
        }
        assert_eq!(told, Span(10));
        for _ in 0..64 {
            told = overruns.note(Span(500), 8).unwrap_or(told);
        }
        assert!(told >= Span(500));
        for _ in 0..512 {
            told = overruns.note(Span::ZERO, 8).unwrap_or(told);
        }
        assert_eq!(told, Span::ZERO, "what is over is forgotten");
    }

    #[test]
    fn where_a_batch_is_one_request_one_in_a_hundred_is_too_many() {
        let mut overruns = Overruns::new();
        let mut told = Span::ZERO;
        for batch in 0..512 {
            let slow = batch % 100 == 99;
            told = overruns.note(Span(if slow { 9000 } else { 10 }), 1).unwrap_or(told);
        }
        assert_eq!(told, Span(9000));
    }
}
