//! How many executors the load needs, by the rule of `fermata_plan::advice`, from counters of the
//! last seconds.

use std::sync::Mutex;
use std::time::Duration;

use fermata_core::{Span, Time};
use fermata_plan::advice::{Observed, needed};

/// The last seconds count: long enough to see a few hundred batches, short enough to follow a load.
const WINDOW: Duration = Duration::from_secs(10);

/// What to do about a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Advice {
    /// The share of the executors' time that was busy.
    pub busy: f64,
    /// The share of requests that were dropped or late.
    pub bad: f64,
    /// How many executors the load needs.
    pub executors: usize,
}

/// Counters of a pool at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// When.
    pub time: Time,
    /// How long all executors were busy until then.
    pub busy: Span,
    /// How long they could have been.
    pub available: Span,
    /// Requests that left in time.
    pub good: u64,
    /// Requests that were dropped or late.
    pub bad: u64,
    /// Seconds of executors that filled batches would have taken, where that counts.
    pub filled: Option<f64>,
}

/// What happened in a pool since the last time. Models come and go with their counters, so that
/// only what was counted while they were there is the pool's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// How many executors there are.
    pub executors: usize,
    /// How long all executors were busy, since the pool's start.
    pub busy: Span,
    /// Requests that left in time, since the last time.
    pub good: u64,
    /// Requests that were dropped or late, since the last time.
    pub bad: u64,
    /// How many executors filled batches would have kept busy since the last time; `None` where
    /// batches are filled, so that `busy` tells.
    pub filled: Option<f64>,
}

/// Keeps the samples of one pool.
#[derive(Debug, Default)]
pub struct Advisor {
    samples: Mutex<Vec<Sample>>,
}

impl Advisor {
    /// Takes a sample, about once a second.
    pub fn sample(&self, time: Time, change: Change) {
        let mut samples = self.samples.lock().expect("nothing panics with it");
        let last = samples.last().copied().unwrap_or(Sample { time, ..Sample::default() });
        let sample = Sample {
            time,
            busy: change.busy,
            available: last.available + (time - last.time) * change.executors as u64,
            good: last.good + change.good,
            bad: last.bad + change.bad,
            filled: change
                .filled
                .map(|filled| last.filled.unwrap_or(0.0) + filled * (time - last.time).as_secs()),
        };
        samples.push(sample);
        let old = sample.time - Span(WINDOW.as_nanos() as u64);
        let from = samples.partition_point(|sample| sample.time < old);
        samples.drain(..from);
    }

    /// What the samples say about a pool of so many executors.
    pub fn advice(&self, executors: usize) -> Advice {
        let samples = self.samples.lock().expect("nothing panics with it");
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return Advice { executors, ..Advice::default() };
        };
        advise(first, last, executors)
    }
}

fn advise(first: &Sample, last: &Sample, executors: usize) -> Advice {
    let time = (last.available - first.available).0 as f64;
    if time == 0.0 {
        return Advice { executors, ..Advice::default() };
    }
    let busy = ((last.busy - first.busy).0 as f64 / time).min(1.0);
    let (good, lost) = (last.good - first.good, last.bad - first.bad);
    let all = good + lost;
    let bad = if all == 0 { 0.0 } else { lost as f64 / all as f64 };
    let filled = first.filled.zip(last.filled).map_or(f64::INFINITY, |(first_filled, filled)| {
        (filled - first_filled) / (last.time - first.time).as_secs()
    });
    let needed = needed(Observed { executors, bad, busy, filled }).ceil().max(1.0);
    Advice { busy, bad, executors: needed as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_ten_seconds(busy_s: f64, good: u64, bad: u64) -> Advice {
        let advisor = Advisor::default();
        let change = Change { executors: 8, ..Change::default() };
        advisor.sample(Time::from_ms(5_000.0), change);
        let busy = Span::from_ms(busy_s * 1e3);
        advisor.sample(Time::from_ms(15_000.0), Change { busy, good, bad, ..change });
        advisor.advice(8)
    }

    #[test]
    fn a_third_lost_asks_for_half_as_many_more() {
        assert_eq!(after_ten_seconds(80.0, 2000, 1000).executors, 12);
    }

    #[test]
    fn executors_that_came_late_were_not_idle_before() {
        let advisor = Advisor::default();
        let change = Change { executors: 2, ..Change::default() };
        advisor.sample(Time::from_ms(0.0), change);
        advisor.sample(Time::from_ms(5_000.0), Change { busy: Span::from_ms(1e4), ..change });
        let busy = Span::from_ms(1e4 + 4e4);
        advisor.sample(Time::from_ms(10_000.0), Change { executors: 8, busy, ..change });
        assert_eq!(advisor.advice(8), Advice { busy: 1.0, bad: 0.0, executors: 8 });
    }

    #[test]
    fn losses_of_idle_executors_are_not_mended_by_more_of_them() {
        assert_eq!(after_ten_seconds(20.0, 2000, 1000).executors, 8);
    }

    #[test]
    fn executors_that_are_busy_with_small_batches_are_spare() {
        let busy_all_the_time = |filled| {
            let advisor = Advisor::default();
            for second in 0..=10 {
                let busy = Span::from_secs(8.0 * f64::from(second));
                let change = Change { executors: 8, busy, good: 300, bad: 0, filled };
                advisor.sample(Time::from_ms(1e3 * f64::from(second)), change);
            }
            advisor.advice(8)
        };
        assert_eq!(busy_all_the_time(None), Advice { busy: 1.0, bad: 0.0, executors: 8 });
        // What was busy is told as it was.
        assert_eq!(busy_all_the_time(Some(2.5)), Advice { busy: 1.0, bad: 0.0, executors: 3 });
    }

    #[test]
    fn three_quarters_idle_leaves_a_quarter() {
        assert_eq!(after_ten_seconds(20.0, 3000, 3).executors, 2);
        assert_eq!(after_ten_seconds(0.0, 0, 0).executors, 1);
    }
}
