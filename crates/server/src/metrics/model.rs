//! What is counted of one version of a model. Written by many threads, without locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fermata_core::Span;

use crate::inference::Shed;

/// How a request left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered before its deadline.
    InTime,
    /// Answered, or given up, after it.
    Late,
    /// Not begun.
    Shed(Shed),
    /// Its client went away.
    Cancelled,
    /// The engine failed, or the model went away.
    Failed,
}

impl Outcome {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 6] = [
        Self::InTime,
        Self::Late,
        Self::Shed(Shed::Late),
        Self::Shed(Shed::Overload),
        Self::Cancelled,
        Self::Failed,
    ];

    /// Those that count against the objective.
    pub const BAD: [Self; 3] = [Self::Late, Self::Shed(Shed::Late), Self::Shed(Shed::Overload)];

    /// As the label of a metric.
    pub fn word(self) -> &'static str {
        match self {
            Self::InTime => "in_time",
            Self::Late => "late",
            Self::Shed(Shed::Late) => "dropped_late",
            Self::Shed(Shed::Overload) => "dropped_overload",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// The edges of latency buckets, as parts of the SLO: fine below it, where one looks for slack; the
/// SLO itself is an edge, so that the share in time can be read off.
const EDGES: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 3.0];

/// A batch that misses its plan by less than this part of it was foretold.
const FORETOLD: u64 = 10;

/// What is counted of one version of a model.
#[derive(Debug)]
pub struct ModelMetrics {
    edges: [Span; EDGES.len()],
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Answered requests by latency; the last one counts what is beyond all edges.
    latencies: [AtomicU64; EDGES.len() + 1],
    latency_sum: AtomicU64,
    /// Requests that came.
    arrived: AtomicU64,
    /// Rows that ran, whose model failed or not.
    rows: AtomicU64,
    /// Batches that took about as long as planned.
    foretold: AtomicU64,
    queue_sum: AtomicU64,
    /// The last answer, in milliseconds since 1970.
    last: AtomicU64,
    /// By batch size, from one.
    batches: Vec<Batches>,
}

#[derive(Debug, Default)]
struct Batches {
    count: AtomicU64,
    time: AtomicU64,
}

/// Executions of one batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCount {
    /// The size.
    pub size: usize,
    /// How many there were.
    pub count: u64,
    /// How long they took together.
    pub time: Duration,
}

/// The latency histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// The upper edge of each bucket, and how many answers were at most as slow.
    pub buckets: Vec<(Span, u64)>,
    /// All answers.
    pub count: u64,
    /// The sum of their latencies.
    pub sum: Span,
}

impl ModelMetrics {
    /// Nothing counted yet.
    pub fn new(slo: Span, max_batch: usize) -> Self {
        Self {
            edges: edges(slo),
            outcomes: Default::default(),
            latencies: Default::default(),
            latency_sum: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            foretold: AtomicU64::new(0),
            queue_sum: AtomicU64::new(0),
            last: AtomicU64::new(0),
            batches: (0..max_batch).map(|_| Batches::default()).collect(),
        }
    }

    /// Whether a model of this SLO and largest batch can go on with these counters.
    pub(crate) fn fits(&self, slo: Span, max_batch: usize) -> bool {
        self.batches.len() == max_batch && self.edges == edges(slo)
    }

    pub(crate) fn arrived(&self) {
        self.arrived.fetch_add(1, Relaxed);
    }

    /// A request left after `latency`; `queued` of which it waited, if it ran.
    pub(crate) fn left(&self, outcome: Outcome, latency: Span, queued: Span) {
        let at = Outcome::ALL.iter().position(|&other| other == outcome);
        self.outcomes[at.expect("all outcomes are listed")].fetch_add(1, Relaxed);
        if matches!(outcome, Outcome::InTime | Outcome::Late) {
            let bucket = self.edges.partition_point(|&edge| edge < latency);
            self.latencies[bucket].fetch_add(1, Relaxed);
            self.latency_sum.fetch_add(latency.0, Relaxed);
            self.queue_sum.fetch_add(queued.0, Relaxed);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.last.store(now.as_millis() as u64, Relaxed);
        }
    }

    /// A batch ran that was planned to take `latency`.
    pub(crate) fn ran(&self, size: usize, took: Span, latency: Span) {
        self.rows.fetch_add(size as u64, Relaxed);
        if took.0.abs_diff(latency.0) <= latency.0 / FORETOLD {
            self.foretold.fetch_add(1, Relaxed);
        }
        if let Some(batches) = self.batches.get(size - 1) {
            batches.count.fetch_add(1, Relaxed);
            batches.time.fetch_add(took.0, Relaxed);
        }
    }

    /// How many requests left this way.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        let at = Outcome::ALL.iter().position(|&other| other == outcome);
        self.outcomes[at.expect("all outcomes are listed")].load(Relaxed)
    }

    /// How many requests are in the server now. The counters are read one by one, so this may be
    /// off by those that come and go meanwhile.
    pub fn pending(&self) -> u64 {
        let left: u64 = self.outcomes.iter().map(|count| count.load(Relaxed)).sum();
        self.arrived.load(Relaxed).saturating_sub(left)
    }

    /// How many requests came.
    pub fn arrivals(&self) -> u64 {
        self.arrived.load(Relaxed)
    }

    /// How many rows ran.
    pub fn rows(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    /// How many rows an answered request has, on average; at least one.
    pub fn rows_each(&self) -> f64 {
        let answered = self.outcome(Outcome::InTime) + self.outcome(Outcome::Late);
        (self.rows() as f64 / answered.max(1) as f64).max(1.0)
    }

    /// How many batches took as long as planned, within 10 %.
    pub fn foretold(&self) -> u64 {
        self.foretold.load(Relaxed)
    }

    /// How long answered requests waited, together.
    pub fn queued(&self) -> Duration {
        Duration::from_nanos(self.queue_sum.load(Relaxed))
    }

    /// When the last answer was given, in milliseconds since 1970; zero, if never.
    pub fn last_ms(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// The latencies of answers.
    pub fn latencies(&self) -> Latencies {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(EDGES.len());
        for (&edge, bucket) in self.edges.iter().zip(&self.latencies) {
            count += bucket.load(Relaxed);
            buckets.push((edge, count));
        }
        count += self.latencies[EDGES.len()].load(Relaxed);
        Latencies { buckets, count, sum: Span(self.latency_sum.load(Relaxed)) }
    }

    /// Executions by batch size, those that there were.
    pub fn batches(&self) -> Vec<BatchCount> {
        let each = self.batches.iter().enumerate().map(|(at, batches)| BatchCount {
            size: at + 1,
            count: batches.count.load(Relaxed),
            time: Duration::from_nanos(batches.time.load(Relaxed)),
        });
        each.filter(|batches| batches.count > 0).collect()
    }
}

fn edges(slo: Span) -> [Span; EDGES.len()] {
    EDGES.map(|part| Span((part * slo.0 as f64) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slo_is_an_edge() {
        let metrics = ModelMetrics::new(Span::from_ms(25.0), 4);
        for ms in [5.0, 25.0, 25.1, 100.0] {
            metrics.arrived();
            let outcome = if ms <= 25.0 { Outcome::InTime } else { Outcome::Late };
            metrics.left(outcome, Span::from_ms(ms), Span::ZERO);
        }
        let latencies = metrics.latencies();
        let at_slo = latencies.buckets.iter().find(|(edge, _)| *edge == Span::from_ms(25.0));
        assert_eq!(at_slo.map(|&(_, count)| count), Some(2));
        assert_eq!((latencies.count, metrics.pending()), (4, 0));
    }
}
