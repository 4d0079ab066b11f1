//! What a pool's executors did, for metrics: written by their threads, read by any.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fermata_core::{ExecutorId, Span};

/// Busy time by executor.
#[derive(Debug)]
pub struct Gauges {
    executors: Vec<Lane>,
    /// How many of them there ever were.
    opened: AtomicUsize,
}

/// One executor's time, on a cache line of its own: the writers are different threads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lane {
    busy: AtomicU64,
}

impl Gauges {
    /// For at most this number of executors.
    pub(crate) fn new(executors: usize) -> Self {
        let executors = (0..executors).map(|_| Lane::default()).collect();
        Self { executors, opened: AtomicUsize::new(0) }
    }

    /// An executor came. What one of the same id did before counts on.
    pub(crate) fn open(&self, executor: ExecutorId) {
        self.opened.fetch_max(executor.index() + 1, Ordering::Relaxed);
    }

    pub(crate) fn ran(&self, executor: ExecutorId, took: Span) {
        self.executors[executor.index()].busy.fetch_add(took.0, Ordering::Relaxed);
    }

    /// How long each executor that there ever was has been busy since the start.
    pub fn busy(&self) -> impl Iterator<Item = Span> {
        let opened = self.opened.load(Ordering::Relaxed);
        self.executors[..opened].iter().map(|lane| Span(lane.busy.load(Ordering::Relaxed)))
    }
}
