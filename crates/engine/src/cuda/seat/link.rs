//! The line to a worker: questions go out, answers come back in any order, and all of them come to an end when the worker does.

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

/// The line to one worker process.
pub(super) struct Link {
    socket: Mutex<UnixStream>,
    asked: Mutex<HashMap<u64, Sender<Result<Reply>>>>,
    next: AtomicU64,
    lost: AtomicBool,
    child: Mutex<Child>,
}

/// A batch that takes longer than this has met a device that hangs. The first of a size may have to be compiled.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// An answer that will come.
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
    /// To a process that has the other end of the socket.
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

    /// Asks, and waits for the answer.
    pub(super) fn ask(&self, what: Question) -> Result<Reply> {
        self.ask_later(what)?.wait()
    }

    /// Waits for an answer that comes soon from a worker that is well; one that is not is ended.
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

    /// Asks; the answer can be waited for.
    pub(super) fn ask_later(&self, what: Question) -> Result<Pending> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = bounded(1);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let said = {
            let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
            wire::write(&mut *socket, &Ask { id, what })
        };
        // Whoever listens sees the end of the worker, and lets all questions go; but one may have come after that.
        if said.is_err() || self.is_lost() {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            return Err(lost());
        }
        Ok(Pending(receiver))
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Ends the worker.
    pub(super) fn end(&self) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = socket.shutdown(Shutdown::Both);
        drop(socket);
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // It may be stuck in the driver, where it hears nothing. If it has ended already, there is nothing to do.
        let _ = child.kill();
        let _ = child.wait();
    }

    fn listen(&self, answers: UnixStream) {
        let mut lines = BufReader::new(answers);
        let mut line = Vec::new();
        while let Ok(Some(Answer { id, what })) = wire::read(&mut lines, &mut line) {
            let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(asked) = asked {
                // Whoever asked may not wait for it.
                let _ = asked.send(what.map_err(|failure| EngineError::Run(failure.reason)));
            }
        }
        self.lost.store(true, Ordering::SeqCst);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.end();
    }
}

/// An answer to another question.
pub(super) fn unexpected(reply: &Reply) -> EngineError {
    EngineError::Run(format!("the worker gave an unexpected answer: {reply:?}"))
}
