//! The way into a pool: who takes its messages.

use std::sync::Arc;

use crate::desk::Desk;
use crate::message::Message;
use crate::threads::Threads;

/// Who takes a pool's messages.
#[derive(Clone, Debug)]
pub(crate) enum Inbox {
    /// Whoever brings one decides.
    Desk(Arc<Desk>),
    /// Threads of the pool's own decide.
    Threads(Arc<Threads>),
}

impl Inbox {
    /// Whether executors may come, go and break: whoever decides takes back what they had.
    pub(crate) fn takes_back(&self) -> bool {
        matches!(self, Self::Desk(_))
    }

    /// Hands a message in. One that comes after the end is dropped, with whatever waits for it.
    pub(crate) fn send(&self, message: Message) {
        match self {
            Self::Desk(desk) => desk.send(message),
            Self::Threads(threads) => threads.send(message),
        }
    }
}
