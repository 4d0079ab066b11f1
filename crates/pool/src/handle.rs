//! An executor as its threads see it: its id and class, and the way of its news.

use std::fmt;
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, Span, Time};
use fermata_engine::{EngineError, Outputs, Running};
use fermata_scheduler::Runtime;

use crate::OnLost;
use crate::gauges::Gauges;
use crate::inbox::Inbox;
use crate::message::{Batch, Message, Ran};
use crate::roster::Roster;
use crate::ticket::{Finished, Refused};

/// Emulated executors come by the hundreds, and need little.
pub(crate) const STACK: usize = 1 << 20;

/// How far a batch has come that an executor took.
pub(crate) enum Begun {
    /// It runs, or will when those before it have ended.
    Running(Box<dyn Running>),
    /// It has run, or could not.
    Ended { began: Time, took: Span, outputs: Result<Vec<Outputs>, EngineError> },
}

/// What all executors of a pool share.
#[derive(Clone)]
pub(crate) struct ExecutorContext {
    pub(crate) pool: Arc<str>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) inbox: Inbox,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) on_lost: Option<Arc<OnLost>>,
}

impl fmt::Debug for ExecutorContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorContext").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// An executor's id and class, and what it shares with the others.
#[derive(Clone)]
pub(crate) struct ExecutorHandle {
    pub(crate) executor: ExecutorId,
    pub(crate) class: ClassId,
    pub(crate) context: ExecutorContext,
}

impl ExecutorHandle {
    /// Waits for a batch that was begun, tells its owners, and tells the pool. The batch is given
    /// back if the executor broke and the pool takes it back.
    pub(crate) fn finish(&self, mut batch: Batch, begun: Begun) -> Result<(), Batch> {
        let is_ahead = matches!(begun, Begun::Running(_));
        let (began, took, outputs) = match begun {
            Begun::Ended { began, took, outputs } => (began, took, outputs),
            Begun::Running(running) => {
                let ended = running.wait();
                let took = ended.as_ref().map_or(Span::ZERO, |ended| ended.took);
                // That it waited for others on the device was part of the queue.
                let began = self.context.runtime.now() - took;
                (began, took, ended.map(|ended| ended.outputs))
            }
        };
        let ExecutorContext { runtime, inbox, gauges, .. } = &self.context;
        if matches!(outputs, Err(EngineError::Lost(_))) && inbox.takes_back() {
            return Err(batch);
        }
        let (executor, class, model, latency) =
            (self.executor, self.class, batch.model, batch.latency);
        // One that failed tells nothing of how long batches take.
        let size = if outputs.is_ok() { batch.open().count() } else { 0 };
        if size > 0 {
            gauges.ran(executor, took);
            batch.tickets[0].owner.batch_ran(size, took, latency);
        }
        let planned = batch.start + if batch.spread { took } else { latency };
        let tell = || {
            let now = runtime.now();
            let overrun = now - planned;
            tracing::trace!(
                %executor, %model, size, ?now, ?planned, ?took, ?latency, "a batch ended"
            );
            inbox.send(Message::Ran(Ran { executor, class, model, size, took, latency, overrun }));
        };
        // Where the device goes on with the next batch already, dispatch must know of it as early
        // as possible.
        if is_ahead {
            tell();
        }
        match outputs {
            Ok(outputs) => {
                for (ticket, outputs) in batch.open().zip(outputs) {
                    ticket.leave(Ok(Finished { outputs, began }));
                }
            }
            Err(error) => {
                let reason = error.to_string();
                batch.tickets[0].owner.batch_failed(batch.tickets.len(), &reason);
                batch.open().for_each(|ticket| ticket.leave(Err(Refused::Failed(reason.clone()))));
            }
        }
        // Otherwise clients come first: their answers are ready, and the next batch is decided in
        // microseconds.
        if !is_ahead {
            tell();
        }
        // The tickets were kept until all is told, or the model's id could be another's before.
        Ok(())
    }
}
