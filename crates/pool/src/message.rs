//! What passes between the threads of a pool.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use fermata_core::{ClassId, ExecutorId, ModelId, RequestId, Span, Spread, Time};
use fermata_dispatch::ModelSpec;
use fermata_engine::Session;

use crate::learner::Profiles;
use crate::ticket::Ticket;

/// A session of one model.
pub(crate) type SessionOf = (ModelId, Box<dyn Session>);

/// What the driver, or the threads of the models, are told.
pub(crate) enum Message {
    /// Serve a model.
    Add {
        model: ModelId,
        name: String,
        spec: Arc<ModelSpec>,
        /// For each executor.
        sessions: Vec<(ExecutorId, Box<dyn Session>)>,
        profiles: Profiles,
        /// It is served from now on. Dropped, if it is too late for that.
        reply: Sender<()>,
    },
    /// A request came.
    Arrive { model: ModelId, ticket: Ticket },
    /// The client of a request went away.
    Cancel { model: ModelId, request: RequestId, deadline: Time },
    /// An executor came, with a session of each model.
    Join { executor: ExecutorId, class: ClassId, sender: Sender<Work>, sessions: Vec<SessionOf> },
    /// An executor goes when it has finished what it runs.
    Leave { executor: ExecutorId },
    /// An executor broke.
    Lost(Lost),
    /// An executor finished a batch.
    Ran(Ran),
    /// Serve a model no longer. No request of it waits or runs.
    Remove { model: ModelId },
    /// A model has other profiles.
    Respec { model: ModelId, spec: Arc<ModelSpec> },
    /// What requests of a model take has become something else.
    Respread { model: ModelId, spread: Arc<Spread> },
    /// Finish what is there, then end.
    Stop,
}

/// What an executor is asked to do, in order.
pub(crate) enum Work {
    /// Keep a session: batches of this model will come.
    Install { model: ModelId, session: Box<dyn Session> },
    /// Run a batch.
    Run(Batch),
    /// Give a session back; no more batches of this model will come.
    Uninstall { model: ModelId },
}

/// A batch of one model's requests.
pub(crate) struct Batch {
    pub(crate) model: ModelId,
    /// Never empty. A ticket that has left already stays in its batch, because dispatch counts it,
    /// but does not run.
    pub(crate) tickets: Vec<Ticket>,
    /// When it should begin.
    pub(crate) start: Time,
    /// How long it should take.
    pub(crate) latency: Span,
    /// Its run time depends on the inputs, so it may well take longer than the mean.
    pub(crate) spread: bool,
}

impl Batch {
    /// The tickets that are to run.
    pub(crate) fn open(&mut self) -> impl Iterator<Item = &mut Ticket> {
        self.tickets.iter_mut().filter(|ticket| ticket.is_open())
    }
}

/// What an executor tells of a batch that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) executor: ExecutorId,
    pub(crate) class: ClassId,
    pub(crate) model: ModelId,
    /// None, if there was nothing to run.
    pub(crate) size: usize,
    pub(crate) took: Span,
    /// How long it should have taken.
    pub(crate) latency: Span,
    /// How much later than planned it was done. Where run times are spread, only the time lost
    /// outside the run counts: the distribution already says that a batch may take longer than the
    /// mean, and that must not come off every deadline.
    pub(crate) overrun: Span,
}

/// What an executor that broke gives back.
pub(crate) struct Lost {
    pub(crate) executor: ExecutorId,
    /// What it had taken, and has not answered.
    pub(crate) batches: Vec<Batch>,
    /// The queue of its work, where there may be more.
    pub(crate) work: Receiver<Work>,
}
