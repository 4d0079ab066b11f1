//! A request on its way: what the pool knows of it, and the owner that has the rest.

use std::fmt;
use std::sync::Arc;

use fermata_core::{KindId, RequestId, Span, Time};
use fermata_dispatch::DropReason;
use fermata_engine::{Inputs, Outputs};

/// A request may be what breaks executors, and must not break them all.
const LOSSES_MAX: u8 = 2;

/// The owner of a request has all of it that the pool does not see: its inputs, its model, and the
/// client that waits. A place in the pool must outlive its requests, so an owner keeps its model.
pub trait Owner: Send + Sync {
    /// Gives the inputs to the executor that is about to run them.
    fn take_inputs(&self) -> Inputs;

    /// Takes the inputs back: they did not run, and may have to run elsewhere.
    fn give_back(&self, inputs: Inputs);

    /// Whether a client still waits for the answer.
    fn is_awaited(&self) -> bool;

    /// The request has left the pool. Called exactly once.
    fn leave(&self, result: Result<Finished, Refused>);

    /// The batch that the request was in has run. Called on one owner of each batch.
    fn batch_ran(&self, size: usize, took: Span, planned: Span);

    /// The batch that the request was in failed. Called on one owner of each batch.
    fn batch_failed(&self, size: usize, reason: &str);
}

/// A request that ran.
#[derive(Debug)]
pub struct Finished {
    /// What came out.
    pub outputs: Outputs,
    /// When its batch began.
    pub began: Time,
}

/// Why a request did not run, or gave nothing.
#[derive(Debug)]
pub enum Refused {
    /// Dispatch dropped it.
    Dropped(DropReason),
    /// The engine failed.
    Failed(String),
    /// The pool had stopped before it came.
    Stopped,
}

/// A request, or one row of one, that waits or runs. Its owner hears once what becomes of it.
pub(crate) struct Ticket {
    /// Its id in dispatch.
    pub(crate) id: RequestId,
    /// When its batch must be done.
    pub(crate) deadline: Time,
    /// What it runs like.
    pub(crate) kind: KindId,
    /// Held until the batch is told about: the model must not go before.
    pub(crate) owner: Arc<dyn Owner>,
    is_open: bool,
    /// How many executors broke while they had it.
    losses: u8,
}

impl Ticket {
    /// A request that has just come.
    pub(crate) fn new(id: RequestId, deadline: Time, kind: KindId, owner: Arc<dyn Owner>) -> Self {
        Self { id, deadline, kind, owner, is_open: true, losses: 0 }
    }

    /// Whether it has not left yet. Dispatch may not yet know of one that has.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// It leaves, if it has not yet.
    pub(crate) fn leave(&mut self, result: Result<Finished, Refused>) {
        if self.is_open {
            self.is_open = false;
            self.owner.leave(result);
        }
    }

    /// The executor that had it broke. Whether it is to run again: not for a client that went away,
    /// and not too often.
    pub(crate) fn come_back(&mut self) -> bool {
        self.losses += 1;
        if self.is_open && !self.owner.is_awaited() {
            self.leave(Err(Refused::Dropped(DropReason::Cancelled)));
        } else if self.losses >= LOSSES_MAX {
            let reason = format!("{LOSSES_MAX} executors broke while they ran it");
            self.leave(Err(Refused::Failed(reason)));
        }
        self.is_open
    }
}

impl Drop for Ticket {
    /// What reaches a pool that has ended is dropped there.
    fn drop(&mut self) {
        self.leave(Err(Refused::Stopped));
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("id", &self.id).finish_non_exhaustive()
    }
}
