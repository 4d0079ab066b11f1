//! What a run counted.

use fermata_core::{Request, Span, Time};
use fermata_dispatch::DropReason;

use crate::histogram::Histogram;

/// The counts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// By model.
    pub models: Vec<ModelStats>,
    /// How long each executor was busy.
    pub busy: Vec<Span>,
    /// How long each executor was there.
    pub present: Vec<Span>,
    /// When the last thing happened.
    pub end: Time,
    /// The run was given up because it had failed already.
    pub stopped: bool,
}

/// The counts of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelStats {
    /// Requests that came.
    pub offered: u64,
    /// Answered in time.
    pub in_time: u64,
    /// Answered late.
    pub late: u64,
    /// Not answered, except those that their clients cancelled.
    pub dropped: u64,
    /// Cancelled by their clients.
    pub cancelled: u64,
    /// From arrival to answer, of those answered.
    pub latency: Histogram,
    /// From arrival to the start of execution, of those answered.
    pub queueing: Histogram,
    /// `batches[b]` is how many batches of `b` were run to the end.
    pub batches: Vec<u64>,
}

impl ModelStats {
    /// A batch was answered, so many of it in time.
    #[inline]
    pub(crate) fn answer(&mut self, size: usize, in_time: usize) {
        self.in_time += in_time as u64;
        self.late += (size - in_time) as u64;
        if size >= self.batches.len() {
            self.batches.resize(size + 1, 0);
        }
        self.batches[size] += 1;
    }

    /// How long the requests of a batch that began at `start` waited, and were answered.
    pub(crate) fn answer_times(&mut self, batch: &[Request], start: Time, answered: Time) {
        for request in batch {
            self.latency.add(answered - request.arrival);
            self.queueing.add(start - request.arrival);
        }
    }

    pub(crate) fn drop(&mut self, reason: DropReason) {
        match reason {
            DropReason::Cancelled => self.cancelled += 1,
            DropReason::Late | DropReason::Overload | DropReason::NotLoaded => self.dropped += 1,
        }
    }

    /// Dropped and late.
    pub fn bad(&self) -> u64 {
        self.dropped + self.late
    }

    /// Dropped and late over all.
    pub fn bad_rate(&self) -> f64 {
        self.bad() as f64 / self.offered.max(1) as f64
    }

    /// The batch size that half of all requests had, or more.
    pub fn batch_p50(&self) -> usize {
        let requests: u64 = self.batches.iter().zip(0..).map(|(&count, size)| count * size).sum();
        let mut seen = 0;
        for (size, &count) in self.batches.iter().enumerate() {
            seen += count * size as u64;
            if 2 * seen >= requests && requests > 0 {
                return size;
            }
        }
        0
    }

    /// Adds another model's counts.
    pub fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.in_time += other.in_time;
        self.late += other.late;
        self.dropped += other.dropped;
        self.cancelled += other.cancelled;
        self.latency.merge(&other.latency);
        self.queueing.merge(&other.queueing);
        if other.batches.len() > self.batches.len() {
            self.batches.resize(other.batches.len(), 0);
        }
        for (mine, theirs) in self.batches.iter_mut().zip(&other.batches) {
            *mine += theirs;
        }
    }
}

impl Stats {
    /// All models together.
    pub fn total(&self) -> ModelStats {
        let mut total = ModelStats::default();
        self.models.iter().for_each(|model| total.merge(model));
        total
    }

    /// The highest bad rate of any model.
    pub fn worst_bad_rate(&self) -> f64 {
        self.models.iter().map(ModelStats::bad_rate).fold(0.0, f64::max)
    }

    /// The share of executor time that was busy.
    pub fn busy_fraction(&self) -> f64 {
        let busy: f64 = self.busy.iter().map(|span| span.as_secs()).sum();
        let time = self.executor_seconds();
        if time > 0.0 { busy / time } else { 0.0 }
    }

    /// How long all executors were there, added up.
    pub fn executor_seconds(&self) -> f64 {
        self.present.iter().map(|span| span.as_secs()).sum()
    }

    /// How many executors were there at some time.
    pub fn executors(&self) -> usize {
        self.present.iter().filter(|&&span| span > Span::ZERO).count()
    }

    /// How many executors ran anything.
    pub fn executors_used(&self) -> usize {
        self.busy.iter().filter(|&&span| span > Span::ZERO).count()
    }
}
