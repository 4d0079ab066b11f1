//! Executors that are nothing but the moments at which they will be done.

use fermata_core::{ExecutorId, Span, Time};
use fermata_dispatch::MinTree;
use fermata_scheduler::Executors;

#[derive(Debug)]
pub(super) struct Emulated {
    ends: MinTree,
}

impl Emulated {
    pub(super) fn new(executors: usize) -> Self {
        Self { ends: MinTree::with_len(executors) }
    }

    /// When the next will have finished.
    pub(super) fn next(&self) -> Time {
        self.ends.earliest()
    }
}

impl Executors for Emulated {
    #[inline]
    fn finished(&mut self, now: Time, into: &mut Vec<(ExecutorId, Time)>) {
        while self.ends.earliest() <= now {
            let end = self.ends.earliest();
            let Some(first) = self.ends.first() else { return };
            self.ends.clear(first);
            into.push((ExecutorId(first as u32), end));
        }
    }

    #[inline]
    fn started(&mut self, executor: ExecutorId, start: Time, latency: Span) {
        self.ends.set(executor.index(), start + latency);
    }
}
