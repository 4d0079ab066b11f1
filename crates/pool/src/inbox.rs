//! The way into a pool: to the shared driver, or to the threads of the models.

use std::sync::Arc;

use crate::message::Message;
use crate::shared_driver::SharedDriver;
use crate::threads::Threads;

/// What takes a pool's messages.
#[derive(Clone, Debug)]
pub(crate) enum Inbox {
    /// The thread that brings a message decides.
    Shared(Arc<SharedDriver>),
    /// Threads of the pool's own decide.
    Threads(Arc<Threads>),
}

impl Inbox {
    /// Whether executors may come, go and break: the driver takes back what they had.
    pub(crate) fn takes_back(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Hands a message in. One that comes after the end is dropped, and the owner of its ticket is
    /// told.
    pub(crate) fn send(&self, message: Message) {
        match self {
            Self::Shared(driver) => driver.send(message),
            Self::Threads(threads) => threads.send(message),
        }
    }
}
