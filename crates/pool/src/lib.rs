//! A pool in real time: a dispatcher, and one thread for each executor.
//!
//! The pool sees tickets: a request's id, deadline and kind, and its owner ([`Owner`]). The owner
//! keeps the inputs and the reply, and is told once what became of the request. The dispatcher is
//! either shared by the threads that bring events (`shared_driver.rs`), or runs on threads of its
//! own, each with a share of the models (`threads/`). There is no HTTP here, no model repository
//! and no metric of a model.

mod ahead;
mod driver;
mod effects;
mod executor;
mod executors;
mod gauges;
mod handle;
mod ids;
mod inbox;
mod learner;
mod limits;
mod margin;
mod message;
mod model;
mod place;
mod roster;
mod shared_driver;
mod threads;
mod ticket;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use fermata_core::{ClassId, ExecutorId, Span};
use fermata_dispatch::{Network, Policy, Rules};
use fermata_recording::Recorder;
use fermata_scheduler::{Runtime, Started};

pub use executors::{GrowError, MakeSession};
pub use gauges::Gauges;
pub use learner::{ProfileLearner, Profiles};
pub use place::{Guard, Place, PlaceError};
pub use ticket::{Finished, Owner, Refused};

use driver::Driver;
use effects::Effects;
use executors::SessionMakers;
use handle::ExecutorContext;
use ids::Ids;
use inbox::Inbox;
use limits::Limits;
use margin::{Learner, Margin};
use message::Message;
use shared_driver::SharedDriver;

/// The first class of executors, and the only one where all executors are equal.
pub const CLASS: ClassId = ClassId(0);

/// Told that an executor of some origin broke.
pub type OnLost = dyn Fn(usize) + Send + Sync;

/// What a pool is made of.
pub struct PoolConfig {
    /// Its name, in logs and metrics.
    pub name: String,
    /// How many executors it has at the start. Each is of the first class, and its origin is its
    /// number.
    pub executors: usize,
    /// How many it may have later. They come and go only where dispatch is in one piece.
    pub executors_max: usize,
    /// How it decides.
    pub policy: Policy,
    /// What comes off every deadline at least, for the way back to the client.
    pub margin: Span,
    /// How long before a batch its executor must hear of it: the next one is on its way while one
    /// runs.
    pub network: Network,
    /// Called on the thread of an executor that broke, after its requests went back to the queue.
    /// The function may let another executor join.
    pub on_lost: Option<Arc<OnLost>>,
    /// Where its events are written.
    pub recorder: Option<Recorder>,
    /// How many threads share its models; one more ranks what they have ready. With zero, the
    /// thread that brings an event decides.
    pub scheduler_threads: usize,
}

/// A running pool. When the last handle and the last model are gone, its threads end.
#[derive(Debug)]
pub struct Pool {
    context: ExecutorContext,
    policy: Policy,
    executors_max: usize,
    makers: Mutex<SessionMakers>,
    ids: Arc<Ids>,
    limits: Arc<Limits>,
    margin: Arc<Margin>,
    next_request: AtomicU64,
    threads: Mutex<Vec<Box<dyn Started>>>,
}

impl Pool {
    /// Starts the threads.
    pub fn start(config: PoolConfig, runtime: Arc<dyn Runtime>) -> io::Result<Arc<Self>> {
        let PoolConfig {
            name,
            executors,
            executors_max,
            policy,
            margin,
            network,
            on_lost,
            recorder,
            scheduler_threads,
        } = config;
        let (senders, work): (Vec<_>, Vec<_>) =
            (0..executors).map(|_| crossbeam_channel::unbounded()).unzip();
        let margin = Arc::new(Margin::new(margin));
        let learner = Learner::new(margin.clone());
        let limits = Arc::<Limits>::default();
        let (inbox, ids, threads) = if scheduler_threads == 0 {
            let ids = Arc::new(Ids::new(u32::MAX as usize));
            let effects = Effects::new(senders, ids.clone(), limits.clone());
            let dispatcher = policy.dispatcher(network);
            let driver = Driver::new(dispatcher, runtime.clone(), effects, recorder, learner);
            let (driver, timer) = SharedDriver::open(driver, &runtime, &name)?;
            (Inbox::Shared(driver), ids, vec![timer])
        } else {
            let refused = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
            let rules = in_pieces(policy, recorder.is_some(), executors_max != executors)
                .map_err(refused)?;
            if network != Network::default() {
                return Err(refused(AHEAD_IN_PIECES));
            }
            let ids = Arc::new(Ids::new(threads::MODELS_MAX));
            let (inbox, threads) =
                threads::start(&name, rules, scheduler_threads, &runtime, &senders, &ids, learner)?;
            (Inbox::Threads(inbox), ids, threads)
        };
        let gauges = Arc::new(Gauges::new(executors_max));
        let roster = Arc::default();
        let context =
            ExecutorContext { pool: name.into(), runtime, inbox, gauges, roster, on_lost };
        for (executor, work) in (0..).map(ExecutorId).zip(work) {
            context.spawn_executor(executor, executor.index(), CLASS, work)?;
        }
        Ok(Arc::new(Self {
            context,
            policy,
            executors_max,
            makers: Mutex::default(),
            ids,
            limits,
            margin,
            next_request: AtomicU64::new(0),
            threads: Mutex::new(threads),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.context.pool
    }

    /// How it decides.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The time and the threads that it has.
    pub fn runtime(&self) -> &dyn Runtime {
        &*self.context.runtime
    }

    /// How long before a deadline a batch should be done, for answers to be in time.
    pub fn margin(&self) -> Span {
        self.margin.get()
    }

    /// How many executors it has that take batches.
    pub fn executors(&self) -> usize {
        self.context.roster.count()
    }

    /// What its executors did.
    pub fn gauges(&self) -> &Gauges {
        &self.context.gauges
    }

    /// Finishes what is there, and ends the threads. Requests that come later are lost: stop them
    /// first.
    pub fn stop(&self) {
        self.send(Message::Stop);
        let threads = std::mem::take(&mut *self.threads.lock().expect("nothing panics with it"));
        for thread in threads {
            thread.join();
        }
    }

    fn send(&self, message: Message) {
        self.context.inbox.send(message);
    }
}

impl fmt::Debug for PoolConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, executors, executors_max, policy, .. } = self;
        f.debug_struct("PoolConfig")
            .field("name", name)
            .field("executors", executors)
            .field("executors_max", executors_max)
            .field("policy", policy)
            .finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.send(Message::Stop);
    }
}

/// What can be decided on threads; else why it cannot.
pub fn in_pieces(policy: Policy, recorded: bool, resized: bool) -> Result<Rules, &'static str> {
    match policy {
        _ if resized => Err("executors come and go only where the dispatcher is in one piece: \
            planning goes with 0 only"),
        _ if recorded => {
            Err("a recording needs the dispatcher in one piece: --record goes with 0 only")
        }
        _ => policy.rules().ok_or("this policy decides in one piece: it goes with 0 only"),
    }
}

const AHEAD_IN_PIECES: &str =
    "batches are given ahead only where the dispatcher is in one piece: it goes with 0 only";

#[cfg(test)]
mod tests;
