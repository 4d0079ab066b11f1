//! Awaits the batches that an executor has begun, in the order in which they were begun.
//!
//! A thread of its own: while it waits for one batch the executor's thread begins the next.

use std::convert::Infallible;
use std::io;

use crossbeam_channel::{Receiver, Sender, select_biased};

use crate::handle::{Begun, ExecutorHandle, STACK};
use crate::message::{Batch, Work};

/// The thread that awaits an executor's batches.
pub(crate) struct Ahead {
    begun: Sender<(Batch, Begun)>,
    /// Nothing ever comes: its other end is dropped when a batch is found lost.
    intact: Receiver<Infallible>,
    /// Comes when the thread ends.
    lost: Receiver<Vec<Batch>>,
}

impl Ahead {
    pub(crate) fn start(handle: &ExecutorHandle) -> io::Result<Self> {
        let (begun, received) = crossbeam_channel::unbounded();
        let (alive, intact) = crossbeam_channel::bounded(0);
        let name = format!("{}-{}-end", handle.context.pool, handle.executor);
        let handle = handle.clone();
        let (ended, lost) = crossbeam_channel::bounded(1);
        let runtime = handle.context.runtime.clone();
        let body = move || {
            // The executor takes it, unless the process ends.
            let _ = ended.send(await_all(&handle, &received, alive));
        };
        runtime.start(name, Some(STACK), Box::new(body))?;
        Ok(Self { begun, intact, lost })
    }

    /// One more batch, behind those before it.
    pub(crate) fn add(&self, batch: Batch, begun: Begun) {
        // The thread is there until this end is dropped, but for a panic, which ends the process.
        let _ = self.begun.send((batch, begun));
    }

    /// What the executor is to do next; `None` where there will be nothing, or it broke.
    pub(crate) fn next(&self, work: &Receiver<Work>) -> Option<Work> {
        select_biased! {
            recv(self.intact) -> _ => None,
            recv(work) -> work => work.ok(),
        }
    }

    /// Waits for what was begun. Gives the batches that were lost, in order.
    pub(crate) fn end(self) -> Vec<Batch> {
        drop(self.begun);
        self.lost.recv().expect("a panic ends the process")
    }
}

/// Answers batches until one is lost; what comes after it is lost as well.
fn await_all(
    handle: &ExecutorHandle,
    begun: &Receiver<(Batch, Begun)>,
    alive: Sender<Infallible>,
) -> Vec<Batch> {
    let lost = begun.iter().find_map(|(batch, begun)| handle.finish(batch, begun).err());
    drop(alive);
    lost.into_iter().chain(begun.iter().map(|(batch, _)| batch)).collect()
}
