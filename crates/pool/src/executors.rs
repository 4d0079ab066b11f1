//! How the executors of a pool come and go, and the models that each of them must be able to run.
//!
//! Changes happen one at a time, and no request waits for them. An executor that comes has a
//! session of every model before it is given a batch. One that goes gets no more batches, finishes
//! what it runs, and ends. One that breaks is gone at once, and its requests go back to the queue.

use std::fmt;
use std::io;
use std::sync::{Arc, MutexGuard, Weak};

use fermata_core::{ClassId, ExecutorId, ModelId};
use fermata_engine::{EngineError, Session};

use crate::message::{Message, SessionOf};
use crate::{CLASS, Pool};

/// Makes one more session of a model, ready to run, for an executor of this origin. The origin says
/// where the executor runs; its meaning is the caller's.
pub type MakeSession = dyn Fn(usize) -> Result<Box<dyn Session>, EngineError> + Send + Sync;

/// Makes the sessions that a new executor needs. Its lock is held while executors come or go.
#[derive(Default)]
pub(crate) struct SessionMakers {
    /// A model whose place was given up is forgotten at the next look.
    models: Vec<(ModelId, Weak<MakeSession>)>,
}

/// Why a pool did not become as large as it should.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// A model cannot be made ready once more.
    #[error("a session cannot be made: {0}")]
    Session(#[from] EngineError),
    /// The machine.
    #[error("a thread cannot be started: {0}")]
    Thread(#[from] io::Error),
    /// There are as many as there can be.
    #[error("pool '{pool}' has room for {most} executors")]
    Full {
        /// The pool.
        pool: String,
        /// How many that is.
        most: usize,
    },
    /// It keeps those that it began with.
    #[error("executors come and go only where the dispatcher is in one piece, not on threads")]
    Fixed,
}

impl SessionMakers {
    /// New executors need a session of this model for as long as it has its place.
    pub(crate) fn learn(&mut self, model: ModelId, make: &Arc<MakeSession>) {
        self.models.push((model, Arc::downgrade(make)));
    }

    /// A session of each model.
    fn sessions(&mut self, origin: usize) -> Result<Vec<SessionOf>, EngineError> {
        self.models.retain(|(_, make)| make.strong_count() > 0);
        let there = self.models.iter().filter_map(|(model, make)| Some((*model, make.upgrade()?)));
        there.map(|(model, make)| Ok((model, make(origin)?))).collect()
    }
}

impl Pool {
    /// Executors come until there are `to`, or as many as there can be. Returns how many came.
    pub fn grow(&self, to: usize) -> Result<usize, GrowError> {
        let mut makers = self.session_makers();
        let mut came = 0;
        while self.executors() < to {
            let Some(executor) = self.context.roster.vacant(self.executors_max) else { break };
            self.admit(&mut makers, executor, executor.index(), CLASS)?;
            came += 1;
        }
        Ok(came)
    }

    /// Executors leave until there are `to`. Returns how many left.
    pub fn shrink(&self, to: usize) -> usize {
        let makers = self.session_makers();
        let active = self.executors_list();
        let surplus = active.iter().skip(to).rev();
        surplus.filter(|&&(executor, ..)| self.let_go(&makers, executor)).count()
    }

    /// An executor comes. Its sessions are made for this origin, and its batches take as long as
    /// the profiles of this class say. It gets the lowest vacant id.
    pub fn join(&self, origin: usize, class: ClassId) -> Result<ExecutorId, GrowError> {
        if !self.context.inbox.takes_back() {
            return Err(GrowError::Fixed);
        }
        let mut makers = self.session_makers();
        let vacant = self.context.roster.vacant(self.executors_max);
        let full = || GrowError::Full { pool: self.name().to_owned(), most: self.executors_max };
        let executor = vacant.ok_or_else(full)?;
        self.admit(&mut makers, executor, origin, class)?;
        Ok(executor)
    }

    /// An executor takes no more batches, finishes what it has, and ends. False if it left or broke
    /// before, or where executors do not come and go.
    pub fn leave(&self, executor: ExecutorId) -> bool {
        self.let_go(&self.session_makers(), executor)
    }

    /// The executors that take batches, each with its origin and its class.
    pub fn executors_list(&self) -> Vec<(ExecutorId, usize, ClassId)> {
        self.context.roster.active()
    }

    fn admit(
        &self,
        makers: &mut SessionMakers,
        executor: ExecutorId,
        origin: usize,
        class: ClassId,
    ) -> Result<(), GrowError> {
        let sessions = makers.sessions(origin)?;
        let (sender, work) = crossbeam_channel::unbounded();
        self.context.spawn_executor(executor, origin, class, work)?;
        self.send(Message::Join { executor, class, sender, sessions });
        Ok(())
    }

    /// While the makers are locked no other executor can get its id, so the message is about the
    /// right one.
    fn let_go(&self, _makers: &SessionMakers, executor: ExecutorId) -> bool {
        let leaves = self.context.inbox.takes_back() && self.context.roster.leave(executor);
        if leaves {
            self.send(Message::Leave { executor });
        }
        leaves
    }

    pub(crate) fn session_makers(&self) -> MutexGuard<'_, SessionMakers> {
        self.makers.lock().expect("nothing panics with it")
    }
}

impl fmt::Debug for SessionMakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionMakers").field("models", &self.models.len()).finish()
    }
}
