//! The executors of a pool, which come and go, and the models that each of them must be able to run.
//!
//! Changes take turns, and happen off the way of requests. An executor that comes has a session of every model before
//! it is given a batch; one that goes gets no more batches, finishes what it runs, and ends.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};
use std::thread::JoinHandle;

use fermata_core::{ExecutorId, ModelId};
use fermata_engine::{EngineError, Session};

use super::inbox::{Message, SessionOf};
use super::{Pool, executor};

/// Makes one more session of a model, ready to run.
pub(crate) type MakeSession = dyn Fn() -> Result<Box<dyn Session>, EngineError> + Send + Sync;

/// Who runs the batches, and with what.
#[derive(Default)]
pub(super) struct Crew {
    /// By id. The lowest are taken first and left last, as dispatch uses them.
    seats: Vec<Seat>,
    /// Models whose places were given up are forgotten when somebody looks.
    models: Vec<(ModelId, Weak<MakeSession>)>,
}

struct Seat {
    /// It takes batches.
    active: bool,
    thread: JoinHandle<()>,
}

/// Why a pool did not become as large as it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrowError {
    /// A model cannot be made ready once more.
    #[error("a session cannot be made: {0}")]
    Session(#[from] EngineError),
    /// The machine.
    #[error("a thread cannot be started: {0}")]
    Thread(#[from] io::Error),
}

impl Crew {
    /// The next executor in the order of ids is there.
    pub(super) fn take_seat(&mut self, thread: JoinHandle<()>) {
        self.seats.push(Seat { active: true, thread });
    }

    /// Those who take batches.
    pub(super) fn active(&self) -> impl Iterator<Item = ExecutorId> {
        let active = |(_, seat): &(usize, &Seat)| seat.active;
        self.seats.iter().enumerate().filter(active).map(|(at, _)| ExecutorId(at as u32))
    }

    /// Whoever comes needs a session of this model, for as long as it has its place.
    pub(super) fn learn(&mut self, model: ModelId, make: &Arc<MakeSession>) {
        self.models.push((model, Arc::downgrade(make)));
    }

    /// A session of each model.
    fn sessions(&mut self) -> Result<Vec<SessionOf>, EngineError> {
        self.models.retain(|(_, make)| make.strong_count() > 0);
        let there = self.models.iter().filter_map(|(model, make)| Some((*model, make.upgrade()?)));
        there.map(|(model, make)| Ok((model, make()?))).collect()
    }

    /// The lowest seat that nobody has. Who has left keeps it until its last batch is done: dispatch knows it by its id.
    fn vacant(&self, most: usize) -> Option<usize> {
        let left = |seat: &Seat| !seat.active && seat.thread.is_finished();
        let free = self.seats.iter().position(left);
        free.or_else(|| Some(self.seats.len()).filter(|&next| next < most))
    }
}

impl Pool {
    /// Executors come until there are `to`, or as many as there can be. Returns how many came.
    pub(crate) fn grow(&self, to: usize) -> Result<usize, GrowError> {
        let mut crew = self.crew();
        let mut came = 0;
        while self.executors() < to {
            let Some(at) = crew.vacant(self.executors_max) else { break };
            let executor = ExecutorId(at as u32);
            let sessions = crew.sessions()?;
            let (hand, work) = crossbeam_channel::unbounded();
            self.gauges.open(executor);
            let (inbox, gauges) = (self.inbox.clone(), self.gauges.clone());
            let thread = executor::start(&self.name, executor, work, self.clock, inbox, gauges)?;
            match crew.seats.get_mut(at) {
                Some(seat) => *seat = Seat { active: true, thread },
                None => crew.take_seat(thread),
            }
            self.active.fetch_add(1, Ordering::Relaxed);
            self.send(Message::Join { executor, hand, sessions });
            came += 1;
        }
        Ok(came)
    }

    /// Executors leave until there are `to`. Returns how many left.
    pub(crate) fn shrink(&self, to: usize) -> usize {
        let mut crew = self.crew();
        let leaving: Vec<ExecutorId> = crew.active().skip(to).collect();
        for &executor in leaving.iter().rev() {
            crew.seats[executor.index()].active = false;
            self.active.fetch_sub(1, Ordering::Relaxed);
            self.send(Message::Leave { executor });
        }
        leaving.len()
    }

    pub(super) fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().expect("nothing panics with it")
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("seats", &self.seats.len()).finish_non_exhaustive()
    }
}
