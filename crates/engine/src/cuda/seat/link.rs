//! The connection to a worker. Questions go out, answers come back in any order, and every question
//! fails when the worker ends.

use std::collections::HashMap;
use std::io::BufReader;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::EngineError;
use crate::cuda::wire::{self, Answer, Ask, Question, Reply};

type Result<T> = std::result::Result<T, EngineError>;

/// The connection to one worker process.
pub(super) struct Link {
    socket: Mutex<UnixStream>,
    asked: Mutex<HashMap<u64, Sender<Result<Reply>>>>,
    next: AtomicU64,
    lost: AtomicBool,
    child: Mutex<Child>,
}

/// A batch that takes longer than this is on a device that hangs. The first batch of a size may
/// wait for a compiler.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// An answer that has not come yet.
pub(super) struct Pending(Receiver<Result<Reply>>);

impl Pending {
    fn wait(self) -> Result<Reply> {
        self.0.recv().unwrap_or_else(|_| Err(lost()))
    }
}

fn lost() -> EngineError {
    EngineError::Lost("the GPU worker has ended".to_owned())
}

impl Link {
    /// Connects to a process that has the other end of the socket.
    pub(super) fn new(socket: UnixStream, child: Child) -> std::io::Result<Arc<Self>> {
        let answers = socket.try_clone()?;
        let link = Arc::new(Self {
            socket: Mutex::new(socket),
            asked: Mutex::default(),
            next: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            child: Mutex::new(child),
        });
        let listener = link.clone();
        thread::Builder::new()
            .name("gpu-answers".to_owned())
            .spawn(move || listener.listen(answers))?;
        Ok(link)
    }

    /// Asks a question and waits for the answer.
    pub(super) fn ask(&self, what: Question) -> Result<Reply> {
        self.ask_later(what)?.wait()
    }

    /// Waits for an answer. A worker that does not answer within `patience` is killed.
    pub(super) fn wait_for(&self, pending: Pending, patience: Duration) -> Result<Reply> {
        match pending.0.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(lost()),
            Err(RecvTimeoutError::Timeout) => {
                self.end();
                Err(lost())
            }
        }
    }

    /// Asks a question, without waiting for the answer.
    pub(super) fn ask_later(&self, what: Question) -> Result<Pending> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = bounded(1);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let said = {
            let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
            wire::write(&mut *socket, &Ask { id, what })
        };
        // The listening thread fails all open questions when the worker ends, but this question may
        // have been added after that.
        if said.is_err() || self.is_lost() {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            return Err(lost());
        }
        Ok(Pending(receiver))
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Kills the worker.
    pub(super) fn end(&self) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = socket.shutdown(Shutdown::Both);
        drop(socket);
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // The worker may be stuck in the driver, where it does not read its socket. If it has ended
        // already, there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }

    fn listen(&self, answers: UnixStream) {
        let mut lines = BufReader::new(answers);
        let mut line = Vec::new();
        while let Ok(Some(Answer { id, what })) = wire::read(&mut lines, &mut line) {
            let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(asked) = asked {
                // The asking thread may have stopped waiting.
                let _ = asked.send(what.map_err(|failure| EngineError::Run(failure.reason)));
            }
        }
        self.lost.store(true, Ordering::SeqCst);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.end();
    }
}

/// The error for an answer of the wrong kind.
pub(super) fn unexpected(reply: &Reply) -> EngineError {
    EngineError::Run(format!("the worker gave an unexpected answer: {reply:?}"))
}
