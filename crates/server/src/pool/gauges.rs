//! What a pool's executors did, for metrics: written by their threads, read by whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

use fermata_core::{ExecutorId, Span};

/// Busy time by executor.
#[derive(Debug)]
pub struct Gauges {
    executors: Vec<Lane>,
}

/// One executor's time, on a cache line of its own: the writers are different threads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lane {
    busy: AtomicU64,
}

impl Gauges {
    pub(super) fn new(executors: usize) -> Self {
        Self { executors: (0..executors).map(|_| Lane::default()).collect() }
    }

    pub(super) fn ran(&self, executor: ExecutorId, took: Span) {
        self.executors[executor.index()].busy.fetch_add(took.0, Ordering::Relaxed);
    }

    /// Nanoseconds that each executor was busy since the start.
    pub fn busy(&self) -> impl Iterator<Item = Span> {
        self.executors.iter().map(|lane| Span(lane.busy.load(Ordering::Relaxed)))
    }
}
