//! What was measured: latencies by batch size, and the profile that is dispatched by.

use fermata_core::{Profile, Span};
use fermata_engine::Engine;

/// The share of the SLO that a request alone is planned to take at most, if it can be that fast:
/// the margin, and the time until a request is decided about, need some of it.
const ALONE_SHARE: f64 = 0.75;

/// Latencies of batches of 1, 2, 3, ...
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// `batches[b - 1]` is that of a batch of `b`. Never empty.
    pub batches: Vec<Latency>,
    /// Why there are no larger ones.
    pub stop: Stop,
    /// The longest latency that was of interest: the SLO.
    pub limit: Span,
}

/// How long batches of one size take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// On average.
    pub mean: Span,
    /// What half of them do not exceed: how fast the model is when nobody disturbs it.
    pub median: Span,
    /// What 99 % of them do not exceed.
    pub tail: Span,
    /// How many were timed; zero where the latency was interpolated between sizes.
    pub runs: usize,
}

/// Why no larger batch was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The next batch failed, with this message: the model's batch axis does not take any length.
    Failed(String),
    /// The next batch would take longer than the limit.
    Limit,
    /// There is no larger batch.
    MaxBatch,
    /// Measuring took as long as it may: a model that is so slow gains little from larger batches.
    Time,
}

/// Which of the times that a batch may take dispatch plans with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// What nearly all stay below, where an executor is told of a batch when it is free: one that
    /// takes longer than planned makes all of its requests late, and those behind it; one that
    /// takes less only leaves its executor idle for that little.
    Tail,
    /// What half of them stay below, where batches are told ahead: the next one waits on the
    /// device, and begins when this one ends, be it a little later than planned. Were each planned
    /// to take long, each would come a little too late for a device that has nothing else to do.
    Median,
}

impl Planned {
    /// For an engine.
    pub fn of(engine: &dyn Engine) -> Self {
        if engine.runs_ahead() { Self::Median } else { Self::Tail }
    }
}

impl Measured {
    /// What the dispatcher plans with.
    ///
    /// A model that is fast enough is never planned to be too slow: on a machine that was busy, the
    /// tail may be far beyond the SLO, but were nothing run for that, nobody would find out how
    /// fast the model is.
    pub fn profile(&self, planned: Planned) -> Profile {
        let first = &self.batches[0];
        let longest = (ALONE_SHARE * self.limit.0 as f64).max(first.median.0 as f64);
        let scale = (longest / first.tail.0.max(1) as f64).min(1.0);
        // A clock that does not tick between two readings has seen no more than this.
        let latency = |latency: &Latency| {
            let latency = match planned {
                Planned::Tail => Span((latency.tail.0 as f64 * scale).round() as u64),
                Planned::Median => latency.median,
            };
            latency.max(Span(1))
        };
        Profile::from_table(self.batches.iter().map(latency))
            .expect("there is at least one size, and none is zero")
    }

    /// The largest batch.
    pub fn max_batch(&self) -> usize {
        self.batches.len()
    }

    /// Whether all sizes that were timed run as they are, but for the first and the last: what was
    /// measured while an engine padded batches to other sizes tells nothing.
    pub(super) fn fits(&self, runs_as: impl Fn(usize) -> usize) -> bool {
        let timed = |size: &usize| self.batches[size - 1].runs > 0;
        (2..self.batches.len()).filter(timed).all(|size| runs_as(size) == size)
    }

    /// The same under a lower limit, or for smaller batches; `None` if what was measured does not
    /// tell.
    pub(super) fn within(mut self, limit: Span, max_batch: usize) -> Option<Self> {
        let enough = match self.stop {
            Stop::Limit => self.limit >= limit || self.batches.len() >= max_batch,
            Stop::MaxBatch => self.batches.len() >= max_batch,
            Stop::Failed(_) | Stop::Time => true,
        };
        if !enough {
            return None;
        }
        if self.batches.len() > max_batch {
            (self.stop, self.limit) = (Stop::MaxBatch, limit.max(self.limit));
            self.batches.truncate(max_batch);
        }
        if limit <= self.limit {
            self.end_at(limit);
        }
        Some(self)
    }

    /// Leaves out the sizes whose median is beyond the limit; never the first. A tail beyond it may
    /// be the machine's on that day: the size stays, and is used when executions turn out to be
    /// faster.
    pub(super) fn end_at(&mut self, limit: Span) {
        self.limit = limit;
        let fitting =
            self.batches.iter().take_while(|latency| latency.median <= limit).count().max(1);
        if fitting < self.batches.len() || self.batches[fitting - 1].median > limit {
            self.stop = Stop::Limit;
        }
        self.batches.truncate(fitting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(tails_ms: &[f64], stop: Stop, limit_ms: f64) -> Measured {
        let latency = |&ms: &f64| Latency {
            mean: Span::from_ms(ms),
            median: Span::from_ms(ms),
            tail: Span::from_ms(ms),
            runs: 1,
        };
        Measured {
            batches: tails_ms.iter().map(latency).collect(),
            stop,
            limit: Span::from_ms(limit_ms),
        }
    }

    #[test]
    fn what_was_measured_at_other_sizes_is_of_no_use() {
        let mut all = measured(&[1.0, 2.0, 3.0, 3.0, 4.0], Stop::MaxBatch, 5.0);
        assert!(all.fits(|size| size));
        let even = |size: usize| size.next_multiple_of(2);
        assert!(!all.fits(even), "3 was timed, and would run as 4");
        all.batches[2].runs = 0;
        assert!(all.fits(even));
    }

    #[test]
    fn less_can_be_had_from_more() {
        let all = measured(&[1.0, 2.0, 3.0], Stop::MaxBatch, 5.0);
        let ms = Span::from_ms;
        assert_eq!(all.clone().within(ms(5.0), 3), Some(all.clone()));
        assert_eq!(all.clone().within(ms(5.0), 4), None);
        assert_eq!(all.clone().within(ms(9.0), 3), Some(all.clone()));
        assert_eq!(all.clone().within(ms(2.0), 3), Some(measured(&[1.0, 2.0], Stop::Limit, 2.0)));
        assert_eq!(
            all.clone().within(ms(5.0), 2),
            Some(measured(&[1.0, 2.0], Stop::MaxBatch, 5.0))
        );
        assert_eq!(all.within(ms(0.5), 3), Some(measured(&[1.0], Stop::Limit, 0.5)));

        let cut = measured(&[1.0, 2.0], Stop::Limit, 2.5);
        assert_eq!(cut.clone().within(ms(2.5), 9), Some(cut.clone()));
        assert_eq!(cut.clone().within(ms(3.0), 9), None);
        assert_eq!(cut.clone().within(ms(3.0), 2), Some(cut));

        let failed = measured(&[1.0], Stop::Failed("no".to_owned()), 2.0);
        assert_eq!(failed.clone().within(ms(9.0), 9), Some(failed));
    }

    #[test]
    fn a_busy_machine_does_not_make_a_fast_model_hopeless() {
        let mut busy = measured(&[4.0, 8.0, 12.0], Stop::MaxBatch, 20.0);
        for latency in &mut busy.batches {
            latency.tail = latency.median * 10;
        }
        let profile = busy.profile(Planned::Tail);
        assert_eq!(
            (profile.latency(1), profile.latency(2)),
            (Span::from_ms(15.0), Span::from_ms(30.0))
        );
        busy.limit = Span::from_ms(3.0);
        assert_eq!(busy.profile(Planned::Tail).shortest(), Span::from_ms(4.0));
        busy.limit = Span::from_ms(1000.0);
        assert_eq!(busy.profile(Planned::Tail).shortest(), Span::from_ms(40.0));
        assert_eq!(busy.profile(Planned::Median).shortest(), Span::from_ms(4.0));
    }
}
