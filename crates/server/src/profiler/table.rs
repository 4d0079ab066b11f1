//! What was measured: latencies by batch size, and the profile that is dispatched by.

use fermata_core::{Profile, Span};

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
}

impl Measured {
    /// What the dispatcher plans with: the tail, not the mean. A batch that takes longer than planned makes all of
    /// its requests late, and those behind it; one that takes less only leaves its executor idle for that little.
    pub fn profile(&self) -> Profile {
        // A clock that does not tick between two readings has seen no more than this.
        let least = Span(1);
        let tails = self.batches.iter().map(|latency| latency.tail.max(least));
        Profile::from_table(tails).expect("there is at least one size, and none is zero")
    }

    /// The largest batch.
    pub fn max_batch(&self) -> usize {
        self.batches.len()
    }

    /// The same under a lower limit, or for smaller batches; `None` if what was measured does not tell.
    pub(super) fn within(mut self, limit: Span, max_batch: usize) -> Option<Self> {
        let enough = match self.stop {
            Stop::Limit => self.limit >= limit || self.batches.len() >= max_batch,
            Stop::MaxBatch => self.batches.len() >= max_batch,
            Stop::Failed(_) => true,
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

    /// Leaves out the sizes whose tail is beyond the limit; never the first.
    pub(super) fn end_at(&mut self, limit: Span) {
        self.limit = limit;
        let fitting =
            self.batches.iter().take_while(|latency| latency.tail <= limit).count().max(1);
        if fitting < self.batches.len() || self.batches[fitting - 1].tail > limit {
            self.stop = Stop::Limit;
        }
        self.batches.truncate(fitting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(tails_ms: &[f64], stop: Stop, limit_ms: f64) -> Measured {
        let latency =
            |&ms: &f64| Latency { mean: Span::from_ms(ms), tail: Span::from_ms(ms), runs: 1 };
        Measured {
            batches: tails_ms.iter().map(latency).collect(),
            stop,
            limit: Span::from_ms(limit_ms),
        }
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
}
