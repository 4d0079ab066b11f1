//! Sends answers to the server.

use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use crate::EngineError;
use crate::cuda::wire::{self, Answer, Failure, Reply};

/// Writes answers, one line each. All threads share it.
pub(super) struct Responder(Mutex<UnixStream>);

impl Responder {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self(Mutex::new(socket))
    }

    pub(super) fn answer(&self, id: u64, what: Result<Reply, EngineError>) {
        let what = what.map_err(|error| Failure { reason: error.to_string() });
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // If the socket is closed, the reader sees that too and ends the process.
        let _ = wire::write(&mut *stream, &Answer { id, what });
    }
}
