//! A pool in real time: a dispatcher, and one thread for each executor.
//!
//! The dispatcher is at one desk, where whoever brings a message decides; or it is on threads, each with a share of the
//! models. Requests leave through their own reply. The dispatcher sees ids only; what is around it keeps the payloads
//! by id and hands them to the executor that was granted.

mod clock;
mod crew;
mod desk;
mod driver;
mod executor;
mod gauges;
mod ids;
mod inbox;
mod job;
mod margin;
mod threads;
mod tray;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use fermata_core::{ClassId, ExecutorId, ModelId, RequestId, Span, Spread, Time};
use fermata_dispatch::{ModelSpec, Network, Policy, Rules};
use fermata_engine::EngineError;

pub use clock::{Clock, span};
pub(crate) use crew::MakeSession;
pub use gauges::Gauges;
pub(crate) use job::{Finished, Job, Refused};

use crate::metrics::Advisor;
use crate::profiler::Correction;
use crate::recording::Recorder;
use crew::Crew;
use desk::Desk;
use driver::Driver;
use ids::Ids;
use inbox::{Inbox, Message};
use margin::{Learner, Margin};
use tray::Tray;

/// Every class of executor that a pool has: so far all are equal.
pub(crate) const CLASS: ClassId = ClassId(0);

/// What a pool is made of.
#[derive(Debug)]
pub struct PoolConfig {
    /// Its name, in logs and metrics.
    pub name: String,
    /// How many executors it has at the start.
    pub executors: usize,
    /// How many it may have later. They come and go only where dispatch is in one piece.
    pub executors_max: usize,
    /// How it decides.
    pub policy: Policy,
    /// What comes off every deadline at least, for the way back to the client.
    pub margin: Span,
    /// Where its events are written.
    pub recorder: Option<Recorder>,
    /// How many threads have its models, beside one that ranks them; with none, whoever brings a message decides.
    pub scheduler_threads: usize,
}

/// A running pool. When the last handle and the last model are gone, its threads end.
#[derive(Debug)]
pub struct Pool {
    name: String,
    clock: Clock,
    executors_max: usize,
    /// Those that take batches.
    active: AtomicUsize,
    crew: Mutex<Crew>,
    advisor: Advisor,
    inbox: Inbox,
    ids: Arc<Ids>,
    gauges: Arc<Gauges>,
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
            recorder,
            scheduler_threads,
        } = config;
        let gauges = Arc::new(Gauges::new(executors_max));
        let (hands, work): (Vec<_>, Vec<_>) =
            (0..executors).map(|_| crossbeam_channel::unbounded()).unzip();
        let margin = Arc::new(Margin::new(margin));
        let learner = Learner::new(margin.clone());
        let (inbox, ids, threads) = if scheduler_threads == 0 {
            let ids = Arc::new(Ids::new(u32::MAX as usize));
            let tray = Tray::new(hands, ids.clone());
            let dispatcher = policy.dispatcher(Network::default());
            let driver = Driver::new(dispatcher, clock, tray, recorder, learner);
            let (desk, timer) = Desk::open(driver, clock, &name)?;
            (Inbox::Desk(desk), ids, vec![timer])
        } else {
            let rules = in_pieces(policy, recorder.is_some(), executors_max != executors)
                .map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?;
            let ids = Arc::new(Ids::new(threads::MODELS_MAX));
            let (inbox, threads) =
                threads::start(&name, rules, scheduler_threads, clock, &hands, &ids, learner)?;
            (Inbox::Threads(inbox), ids, threads)
        };
        let mut crew = Crew::default();
        for (executor, work) in (0..).map(ExecutorId).zip(work) {
            gauges.open(executor);
            let (inbox, gauges) = (inbox.clone(), gauges.clone());
            crew.take_seat(executor::start(&name, executor, work, clock, inbox, gauges)?);
        }
        Ok(Arc::new(Self {
            name,
            clock,
            executors_max,
            active: AtomicUsize::new(executors),
            crew: Mutex::new(crew),
            advisor: Advisor::default(),
            inbox,
            ids,
            gauges,
            margin,
            next_request: AtomicU64::new(0),
            threads: Mutex::new(threads),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The clock by which it decides.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// How long before a deadline a batch should be done, for answers to be in time.
    pub fn margin(&self) -> Span {
        self.margin.get()
    }

    /// How many executors it has.
    pub fn executors(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Keeps what is known of its load.
    pub fn advisor(&self) -> &Advisor {
        &self.advisor
    }

    /// What its executors did.
    pub fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// Serves a model from now on, with one session for each executor that there is or will be.
    pub(crate) fn add(
        self: &Arc<Self>,
        name: &str,
        spec: Arc<ModelSpec>,
        make: Arc<MakeSession>,
        correction: Option<Correction>,
    ) -> Result<Place, PlaceError> {
        let mut crew = self.crew();
        let sessions = crew.active().map(|executor| Ok((executor, make()?)));
        let sessions = sessions.collect::<Result<Vec<_>, EngineError>>()?;
        let full = || PlaceError::Full { pool: self.name.clone(), most: threads::MODELS_MAX };
        let model = self.ids.take().ok_or_else(full)?;
        let (reply, added) = crossbeam_channel::bounded(1);
        let name = name.to_owned();
        self.send(Message::Add { model, name, spec: spec.clone(), sessions, correction, reply });
        // A load may take so long that the pool is stopped meanwhile.
        added.recv().map_err(|_| PlaceError::Stopping)?;
        crew.learn(model, &make);
        Ok(Place { pool: self.clone(), model, spec, make })
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
        self.inbox.send(message);
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
        Policy::Rules(rules) => Ok(rules),
        _ => Err("this policy decides in one piece: it goes with 0 only"),
    }
}

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
}

/// A model's place in a pool. Giving it up ends its service there.
pub(crate) struct Place {
    pool: Arc<Pool>,
    model: ModelId,
    /// What dispatch was told of it when it came.
    spec: Arc<ModelSpec>,
    make: Arc<MakeSession>,
}

impl Place {
    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// How fast it is said to be.
    pub(crate) fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// A place for the same model in another pool.
    pub(crate) fn another_in(&self, pool: &Arc<Pool>, name: &str) -> Result<Self, PlaceError> {
        pool.add(name, self.spec.clone(), self.make.clone(), None)
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
            .field("pool", &self.pool.name)
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
mod tests {
    use fermata_core::Profile;

    use super::*;

    fn config(scheduler_threads: usize) -> PoolConfig {
        PoolConfig {
            name: "test".to_owned(),
            executors: 0,
            executors_max: 0,
            policy: Policy::FERMATA,
            margin: Span::ZERO,
            recorder: None,
            scheduler_threads,
        }
    }

    fn add(pool: &Arc<Pool>) -> Result<Place, PlaceError> {
        let profile = Profile::from_table([Span::from_ms(1.0)]).unwrap();
        let spec = Arc::new(ModelSpec::uniform(Span::from_ms(9.0), profile));
        pool.add("net", spec, Arc::new(|| unreachable!("there is no executor")), None)
    }

    #[test]
    fn a_pool_that_was_stopped_takes_no_more_models() {
        for threads in [0, 1, 3] {
            let pool = Pool::start(config(threads), Clock::start()).unwrap();
            let early = add(&pool);
            assert!(early.is_ok());
            pool.stop();
            assert_eq!(add(&pool).unwrap_err().to_string(), "the server is stopping");
        }
    }

    #[test]
    fn threads_refuse_one_model_more_than_they_have_room_for() {
        let pool = Pool::start(config(3), Clock::start()).unwrap();
        let mut places: Vec<_> = (0..threads::MODELS_MAX).map(|_| add(&pool).unwrap()).collect();
        assert!(add(&pool).unwrap_err().to_string().starts_with("too many models for"));
        places.pop();
        // Its id is free once its thread has forgotten it.
        while add(&pool).is_err() {
            std::thread::yield_now();
        }
        pool.stop();
    }

    #[test]
    fn what_needs_one_dispatcher_is_not_decided_on_threads() {
        assert!(in_pieces(Policy::FERMATA, false, false).is_ok());
        assert!(in_pieces(Policy::FERMATA, true, false).unwrap_err().contains("--record"));
        assert!(in_pieces(Policy::FERMATA, false, true).unwrap_err().contains("planning"));
        assert!(in_pieces(Policy::Clockwork, false, false).is_err());
        let refused =
            Pool::start(PoolConfig { policy: Policy::Clockwork, ..config(1) }, Clock::start());
        assert!(refused.is_err());
    }
}
