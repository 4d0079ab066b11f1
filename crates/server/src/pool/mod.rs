//! A pool in real time: a dispatcher, and one thread for each executor.
//!
//! The dispatcher is at one desk, where whoever brings a message decides; or it is on threads, each with a share of the
//! models. Requests leave through their own reply. The dispatcher sees ids only; what is around it keeps the payloads
//! by id and hands them to the executor that was granted.

mod ahead;
mod clock;
mod crew;
mod desk;
mod driver;
mod executor;
mod gauges;
mod ids;
mod inbox;
mod job;
mod limits;
mod margin;
mod model;
mod roster;
mod threads;
mod tray;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use fermata_core::{ClassId, ExecutorId, ModelId, RequestId, Span, Spread, Time};
use fermata_dispatch::{ModelSpec, Network, Policy, Rules, Spare};
use fermata_engine::EngineError;
use fermata_recording::Recorder;

pub use clock::{Clock, span};
pub use crew::GrowError;
pub(crate) use crew::MakeSession;
pub use gauges::Gauges;
pub(crate) use job::{Finished, Job, Refused};
pub(crate) use model::Profiles;

use crate::metrics::Advisor;
use crate::spare::spare_of;
use crew::Crew;
use desk::Desk;
use driver::Driver;
use executor::Premises;
use ids::Ids;
use inbox::{Inbox, Message};
use limits::Limits;
use margin::{Learner, Margin};
use tray::Tray;

/// The class of executors where all are equal: of those that a pool begins with, and on which requests are run alone.
pub(crate) const CLASS: ClassId = ClassId(0);

/// Told that an executor of some origin broke.
pub type OnLost = dyn Fn(usize) + Send + Sync;

/// What a pool is made of.
pub struct PoolConfig {
    /// Its name, in logs and metrics.
    pub name: String,
    /// How many executors it has at the start. Each is of the first class, and its origin is its number.
    pub executors: usize,
    /// How many it may have later. They come and go only where dispatch is in one piece.
    pub executors_max: usize,
    /// How it decides.
    pub policy: Policy,
    /// What comes off every deadline at least, for the way back to the client.
    pub margin: Span,
    /// How long before a batch its executor must hear of it: the next one is on its way while one runs.
    pub network: Network,
    /// Called when an executor broke, on its thread, after what it had went back to the queue. Whoever can bring it back may let
    /// it join again from there.
    pub on_lost: Option<Arc<OnLost>>,
    /// Where its events are written.
    pub recorder: Option<Recorder>,
    /// How many threads have its models, beside one that ranks them; with none, whoever brings a message decides.
    pub scheduler_threads: usize,
}

/// A running pool. When the last handle and the last model are gone, its threads end.
#[derive(Debug)]
pub struct Pool {
    premises: Premises,
    policy: Policy,
    executors_max: usize,
    crew: Mutex<Crew>,
    advisor: Advisor,
    ids: Arc<Ids>,
    limits: Arc<Limits>,
    margin: Arc<Margin>,
    next_request: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// Starts the threads.
    pub fn start(config: PoolConfig, clock: Clock) -> io::Result<Arc<Self>> {
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
        let (hands, work): (Vec<_>, Vec<_>) =
            (0..executors).map(|_| crossbeam_channel::unbounded()).unzip();
        let margin = Arc::new(Margin::new(margin));
        let learner = Learner::new(margin.clone());
        let limits = Arc::<Limits>::default();
        let (inbox, ids, threads) = if scheduler_threads == 0 {
            let ids = Arc::new(Ids::new(u32::MAX as usize));
            let tray = Tray::new(hands, ids.clone(), limits.clone());
            let dispatcher = policy.dispatcher(network);
            let driver = Driver::new(dispatcher, clock, tray, recorder, learner);
            let (desk, timer) = Desk::open(driver, clock, &name)?;
            (Inbox::Desk(desk), ids, vec![timer])
        } else {
            let refused = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
            let rules = in_pieces(policy, recorder.is_some(), executors_max != executors)
                .map_err(refused)?;
            if network != Network::default() {
                return Err(refused(AHEAD_IN_PIECES));
            }
            let ids = Arc::new(Ids::new(threads::MODELS_MAX));
            let (inbox, threads) =
                threads::start(&name, rules, scheduler_threads, clock, &hands, &ids, learner)?;
            (Inbox::Threads(inbox), ids, threads)
        };
        let gauges = Arc::new(Gauges::new(executors_max));
        let roster = Arc::default();
        let premises = Premises { pool: name.into(), clock, inbox, gauges, roster, on_lost };
        for (executor, work) in (0..).map(ExecutorId).zip(work) {
            premises.hire(executor, executor.index(), CLASS, work)?;
        }
        Ok(Arc::new(Self {
            premises,
            policy,
            executors_max,
            crew: Mutex::default(),
            advisor: Advisor::default(),
            ids,
            limits,
            margin,
            next_request: AtomicU64::new(0),
            threads: Mutex::new(threads),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.premises.pool
    }

    /// What its spare executors are for, where its policy knows of them.
    pub fn spare(&self) -> Option<Spare> {
        spare_of(self.policy)
    }

    /// The clock by which it decides.
    pub fn clock(&self) -> Clock {
        self.premises.clock
    }

    /// How long before a deadline a batch should be done, for answers to be in time.
    pub fn margin(&self) -> Span {
        self.margin.get()
    }

    /// How many executors it has that take batches.
    pub fn executors(&self) -> usize {
        self.premises.roster.count()
    }

    /// Keeps what is known of its load.
    pub fn advisor(&self) -> &Advisor {
        &self.advisor
    }

    /// What its executors did.
    pub fn gauges(&self) -> &Gauges {
        &self.premises.gauges
    }

    /// Serves a model from now on, with one session for each executor that there is or will be.
    pub(crate) fn add(
        self: &Arc<Self>,
        name: &str,
        spec: Arc<ModelSpec>,
        make: Arc<MakeSession>,
        profiles: Profiles,
    ) -> Result<Place, PlaceError> {
        self.check_classes(&spec)?;
        let mut crew = self.crew();
        let active = self.executors_list().into_iter();
        let sessions = active.map(|(executor, origin, _)| Ok((executor, make(origin)?)));
        let sessions = sessions.collect::<Result<Vec<_>, EngineError>>()?;
        let full = || {
            let pool = self.name().to_owned();
            PlaceError::Full { pool, most: threads::MODELS_MAX }
        };
        let model = self.ids.take().ok_or_else(full)?;
        let (reply, added) = crossbeam_channel::bounded(1);
        let name = name.to_owned();
        self.send(Message::Add { model, name, spec: spec.clone(), sessions, profiles, reply });
        // A load may take so long that the pool is stopped meanwhile.
        added.recv().map_err(|_| PlaceError::Stopping)?;
        crew.learn(model, &make);
        Ok(Place { pool: self.clone(), model, spec: ArcSwap::new(spec), make })
    }

    /// Finishes what is there, and ends the threads. Requests that come later are lost: stop them first.
    pub fn stop(&self) {
        self.send(Message::Stop);
        let threads = std::mem::take(&mut *self.threads.lock().expect("nothing panics with it"));
        for thread in threads {
            // A panic of one ended the process already.
            let _ = thread.join();
        }
    }

    fn send(&self, message: Message) {
        self.premises.inbox.send(message);
    }

    /// On threads there is room for one class.
    fn check_classes(&self, spec: &ModelSpec) -> Result<(), PlaceError> {
        match self.premises.inbox.takes_back() || spec.profiles.len() <= 1 {
            true => Ok(()),
            false => Err(PlaceError::Classes { pool: self.name().to_owned() }),
        }
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

/// Why a pool does not take a model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// A model that cannot be made ready.
    #[error(transparent)]
    Session(#[from] EngineError),
    /// It takes no more.
    #[error("the server is stopping")]
    Stopping,
    /// It has too many.
    #[error(
        "too many models for the scheduler threads of pool '{pool}', which have room for {most}"
    )]
    Full { pool: String, most: usize },
    /// It has one class of executors.
    #[error("the scheduler threads of pool '{pool}' have room for one class of executors only")]
    Classes { pool: String },
}

/// A model's place in a pool. Giving it up ends its service there.
pub(crate) struct Place {
    pool: Arc<Pool>,
    model: ModelId,
    /// How fast it is, as it was measured.
    spec: ArcSwap<ModelSpec>,
    make: Arc<MakeSession>,
}

impl Place {
    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Whether this is the place that dispatch knows by this id in this pool.
    pub(crate) fn is_at(&self, pool: &Arc<Pool>, model: ModelId) -> bool {
        self.model == model && Arc::ptr_eq(&self.pool, pool)
    }

    /// The models of the same pool that its batches were kept short for, and how many batches.
    pub(crate) fn limits(&self) -> Vec<(ModelId, u64)> {
        self.pool.limits.of(self.model)
    }

    /// How fast it is said to be.
    pub(crate) fn spec(&self) -> Arc<ModelSpec> {
        self.spec.load_full()
    }

    /// A place for the same model in another pool.
    pub(crate) fn another_in(&self, pool: &Arc<Pool>, name: &str) -> Result<Self, PlaceError> {
        pool.add(name, self.spec(), self.make.clone(), Profiles::True)
    }

    /// Tells dispatch of other profiles: of one more class, say, or of one less. What was learned of those that stay is kept.
    pub(crate) fn respec(&self, spec: Arc<ModelSpec>) -> Result<(), PlaceError> {
        self.pool.check_classes(&spec)?;
        self.spec.store(spec.clone());
        self.pool.send(Message::Respec { model: self.model, spec });
        Ok(())
    }

    /// Tells dispatch that requests take something else than before.
    pub(crate) fn respread(&self, spread: Arc<Spread>) {
        self.pool.send(Message::Respread { model: self.model, spread });
    }

    /// Sends a request on its way; the guard cancels it when dropped.
    pub(crate) fn submit(&self, make: impl FnOnce(RequestId) -> Job) -> Guard<'_> {
        let id = RequestId(self.pool.next_request.fetch_add(1, Ordering::Relaxed));
        let job = make(id);
        let deadline = job.deadline;
        self.pool.send(Message::Arrive { model: self.model, job });
        Guard { place: self, id, deadline, left: false }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.send(Message::Remove { model: self.model });
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("pool", &self.pool.name())
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// A request that is on its way. Dropping this tells dispatch that nobody waits for it any more.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    place: &'a Place,
    id: RequestId,
    deadline: Time,
    left: bool,
}

impl Guard<'_> {
    /// It has left by itself.
    pub(crate) fn left(&mut self) {
        self.left = true;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.left {
            let (model, request, deadline) = (self.place.model, self.id, self.deadline);
            self.place.pool.send(Message::Cancel { model, request, deadline });
        }
    }
}

#[cfg(test)]
mod tests;
