//! What a pool is told, and who takes it.

use std::sync::Arc;

use crossbeam_channel::Sender;
use fermata_core::{ClassId, ExecutorId, ModelId, RequestId, Spread, Time};
use fermata_dispatch::ModelSpec;
use fermata_engine::Session;

use super::desk::Desk;
use super::executor::{Lost, Ran, Work};
use super::job::Job;
use super::model::Profiles;
use super::threads::Threads;

/// A session of one model.
pub(super) type SessionOf = (ModelId, Box<dyn Session>);

/// What whoever decides is told.
pub(super) enum Message {
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
    Arrive { model: ModelId, job: Job },
    /// Nobody waits for a request any more.
    Cancel { model: ModelId, request: RequestId, deadline: Time },
    /// An executor came, with a session of each model.
    Join { executor: ExecutorId, class: ClassId, hand: Sender<Work>, sessions: Vec<SessionOf> },
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

/// Who takes a pool's messages.
#[derive(Clone, Debug)]
pub(super) enum Inbox {
    /// Whoever brings one decides.
    Desk(Arc<Desk>),
    /// Threads of the pool's own decide.
    Threads(Arc<Threads>),
}

impl Inbox {
    /// Whether executors may come, go and break: whoever decides takes back what they had.
    pub(super) fn takes_back(&self) -> bool {
        matches!(self, Self::Desk(_))
    }

    /// Hands a message in. One that comes after the end is dropped, with whatever waits for it.
    pub(super) fn send(&self, message: Message) {
        match self {
            Self::Desk(desk) => desk.send(message),
            Self::Threads(threads) => threads.send(message),
        }
    }
}
