//! What a pool's executors did, for metrics: written by their threads, read by whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

use fermata_core::{ExecutorId, Span};

/// Time and batches by executor.
#[derive(Debug)]
pub struct Gauges {
    executors: Vec<Lane>,
}

/// One executor's numbers, on a cache line of their own: their writers are different threads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lane {
    busy: AtomicU64,
    batches: AtomicU64,
}

impl Gauges {
    pub(super) fn new(executors: usize) -> Self {
        Self { executors: (0..executors).map(|_| Lane::default()).collect() }
    }

    pub(super) fn ran(&self, executor: ExecutorId, took: Span) {
        let lane = &self.executors[executor.index()];
        lane.busy.fetch_add(took.0, Ordering::Relaxed);
        lane.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// Nanoseconds that each executor was busy since the start.
    pub fn busy(&self) -> impl Iterator<Item = Span> {
        self.executors.iter().map(|lane| Span(lane.busy.load(Ordering::Relaxed)))
    }

    /// Batches of all executors since the start.
    pub fn batches(&self) -> u64 {
        self.executors.iter().map(|lane| lane.batches.load(Ordering::Relaxed)).sum()
    }
}
