//! How the executors of a pool come and go, and the models that each of them must be able to run.
//!
//! Changes take turns, and happen off the way of requests. An executor that comes has a session of every model before
//! it is given a batch; one that goes gets no more batches, finishes what it runs, and ends. One that breaks is gone at once, and
//! what it had goes back to the queue.

use std::fmt;
use std::io;
use std::sync::{Arc, MutexGuard, Weak};

use fermata_core::{ClassId, ExecutorId, ModelId};
use fermata_engine::{EngineError, Session};

use crate::message::{Message, SessionOf};
use crate::{CLASS, Pool};

/// Makes one more session of a model, ready to run, for an executor of this origin: where it runs, in the words of whoever hires
/// executors.
pub type MakeSession = dyn Fn(usize) -> Result<Box<dyn Session>, EngineError> + Send + Sync;

/// What whoever comes must be able to run. Who has it changes who is there, one after the other.
#[derive(Default)]
pub(crate) struct Crew {
    /// Models whose places were given up are forgotten when somebody looks.
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

impl Crew {
    /// Whoever comes needs a session of this model, for as long as it has its place.
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
        let mut crew = self.crew();
        let mut came = 0;
        while self.executors() < to {
            let Some(executor) = self.premises.roster.vacant(self.executors_max) else { break };
            self.admit(&mut crew, executor, executor.index(), CLASS)?;
            came += 1;
        }
        Ok(came)
    }

    /// Executors leave until there are `to`. Returns how many left.
    pub fn shrink(&self, to: usize) -> usize {
        let crew = self.crew();
        let active = self.executors_list();
        let surplus = active.iter().skip(to).rev();
        surplus.filter(|&&(executor, ..)| self.let_go(&crew, executor)).count()
    }

    /// An executor comes, whose sessions are made for this origin, and whose batches take what profiles of this class say. It has
    /// the lowest id that is vacant.
    pub fn join(&self, origin: usize, class: ClassId) -> Result<ExecutorId, GrowError> {
        if !self.premises.inbox.takes_back() {
            return Err(GrowError::Fixed);
        }
        let mut crew = self.crew();
        let vacant = self.premises.roster.vacant(self.executors_max);
        let full = || GrowError::Full { pool: self.name().to_owned(), most: self.executors_max };
        let executor = vacant.ok_or_else(full)?;
        self.admit(&mut crew, executor, origin, class)?;
        Ok(executor)
    }

    /// An executor takes no more batches, finishes what it has, and ends. False, if it has left or broke before, or where
    /// executors do not come and go.
    pub fn leave(&self, executor: ExecutorId) -> bool {
        self.let_go(&self.crew(), executor)
    }

    /// Those who take batches: who, of which origin, of which class.
    pub fn executors_list(&self) -> Vec<(ExecutorId, usize, ClassId)> {
        self.premises.roster.active()
    }

    fn admit(
        &self,
        crew: &mut Crew,
        executor: ExecutorId,
        origin: usize,
        class: ClassId,
    ) -> Result<(), GrowError> {
        let sessions = crew.sessions(origin)?;
        let (hand, work) = crossbeam_channel::unbounded();
        self.premises.hire(executor, origin, class, work)?;
        self.send(Message::Join { executor, class, hand, sessions });
        Ok(())
    }

    /// While the crew is held nobody else can come in its place, so that the message is about the one it means.
    fn let_go(&self, _crew: &Crew, executor: ExecutorId) -> bool {
        let leaves = self.premises.inbox.takes_back() && self.premises.roster.leave(executor);
        if leaves {
            self.send(Message::Leave { executor });
        }
        leaves
    }

    pub(crate) fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().expect("nothing panics with it")
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("models", &self.models.len()).finish()
    }
}
