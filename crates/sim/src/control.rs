//! Deciding the number of executors while a run goes on: an autoscaler, or a plan made anew every
//! epoch.

use fermata_core::{Span, Time};

/// Decides how many executors there are, at moments of its own choice until the last arrival.
pub trait Control {
    /// There are never more than this.
    fn most(&self) -> usize;
    /// When it decides next; asked at the start, and after each decision.
    fn next(&self) -> Time;
    /// How many executors there must be from now on. They join idle and at once; one that leaves
    /// ends what it runs.
    fn executors(&mut self, now: Time, seen: &Seen) -> usize;
}

/// What has happened since the run began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many executors there are.
    pub executors: usize,
    /// How long executors were busy, all of them together, those that have left included.
    pub busy: Span,
    /// By model: requests that came.
    pub offered: Vec<u64>,
    /// By model: requests that were answered in time.
    pub in_time: Vec<u64>,
    /// By model: requests that were dropped or answered late.
    pub bad: Vec<u64>,
}

/// Nothing is decided.
impl Control for () {
    fn most(&self) -> usize {
        0
    }

    fn next(&self) -> Time {
        Time::NEVER
    }

    fn executors(&mut self, _now: Time, seen: &Seen) -> usize {
        seen.executors
    }
}
