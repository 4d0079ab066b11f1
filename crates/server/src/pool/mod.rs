//! A pool in real time: one desk for the dispatcher, one thread for each executor.
//!
//! Requests come in at the desk and leave through their own reply. The dispatcher sees ids only; the
//! driver around it keeps the payloads by id and hands them to the executor that was granted.

mod clock;
mod desk;
mod driver;
mod executor;
mod gauges;
mod job;
mod margin;

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use fermata_core::{ExecutorId, ModelId, RequestId, Span, Time};
use fermata_dispatch::{ModelSpec, Network, Policy};
use fermata_engine::Session;

pub use clock::{Clock, span};
pub use gauges::Gauges;
pub(crate) use job::{Finished, Job, Refused};

use crate::profiler::Corrector;
use crate::recording::Recorder;
use desk::Desk;
use driver::{Driver, Message};
use margin::Margin;

/// What a pool is made of.
#[derive(Debug)]
pub struct PoolConfig {
    /// Its name, in logs and metrics.
    pub name: String,
    /// How many executors it has.
    pub executors: usize,
    /// How it decides.
    pub policy: Policy,
    /// What comes off every deadline at least, for the way back to the client.
    pub margin: Span,
    /// Where its events are written.
    pub recorder: Option<Recorder>,
}

/// A running pool. When the last handle and the last model are gone, its threads end.
#[derive(Debug)]
pub struct Pool {
    name: String,
    clock: Clock,
    executors: usize,
    desk: Arc<Desk>,
    gauges: Arc<Gauges>,
    margin: Arc<Margin>,
    next_request: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Pool {
    /// Starts the threads.
    pub fn start(config: PoolConfig, clock: Clock) -> io::Result<Arc<Self>> {
        let PoolConfig { name, executors, policy, margin, recorder } = config;
        let gauges = Arc::new(Gauges::new(executors));
        let (hands, work): (Vec<_>, Vec<_>) =
            (0..executors).map(|_| crossbeam_channel::unbounded()).unzip();
        let margin = Arc::new(Margin::new(margin));
        let dispatcher = policy.dispatcher(Network::default());
        let driver = Driver::new(dispatcher, clock, hands, recorder, margin.clone());
        let (desk, thread) = Desk::open(driver, clock, &name)?;
        for (executor, work) in (0..).map(ExecutorId).zip(work) {
            executor::start(&name, executor, work, desk.clone(), gauges.clone())?;
        }
        Ok(Arc::new(Self {
            name,
            clock,
            executors,
            desk,
            gauges,
            margin,
            next_request: AtomicU64::new(0),
            thread: Mutex::new(Some(thread)),
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

    /// How many executors it has: a model needs as many sessions.
    pub fn executors(&self) -> usize {
        self.executors
    }

    /// What its executors did.
    pub fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// Serves a model from now on, with one session for each executor.
    pub(crate) fn add(
        self: &Arc<Self>,
        name: &str,
        spec: ModelSpec,
        sessions: Vec<Box<dyn Session>>,
        corrector: Option<Corrector>,
    ) -> Result<Place, Stopping> {
        assert_eq!(sessions.len(), self.executors, "one session for each executor");
        let (reply, model) = crossbeam_channel::bounded(1);
        let (name, spec) = (name.to_owned(), Arc::new(spec));
        self.send(Message::Add { name, spec, sessions, corrector, reply });
        // A load may take so long that the pool is stopped meanwhile.
        let model = model.recv().map_err(|_| Stopping)?;
        Ok(Place { pool: self.clone(), model })
    }

    /// Finishes what is there, and ends the threads. Requests that come later are lost: stop them first.
    pub fn stop(&self) {
        self.send(Message::Stop);
        let thread = self.thread.lock().expect("nothing panics with it").take();
        if let Some(thread) = thread {
            // A panic of the driver ended the process already.
            let _ = thread.join();
        }
    }

    fn send(&self, message: Message) {
        self.desk.send(message);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.send(Message::Stop);
    }
}

/// A pool that takes no more models.
#[derive(Debug, thiserror::Error)]
#[error("the server is stopping")]
pub(crate) struct Stopping;

/// A model's place in a pool. Giving it up ends its service there.
#[derive(Debug)]
pub(crate) struct Place {
    pool: Arc<Pool>,
    model: ModelId,
}

impl Place {
    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
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

    #[test]
    fn a_pool_that_was_stopped_takes_no_more_models() {
        let (name, margin) = ("test".to_owned(), Span::ZERO);
        let policy = Policy::FERMATA;
        let config = PoolConfig { name, executors: 0, policy, margin, recorder: None };
        let pool = Pool::start(config, Clock::start()).unwrap();
        let profile = Profile::from_table([Span::from_ms(1.0)]).unwrap();
        let spec = ModelSpec::uniform(Span::from_ms(9.0), profile);
        assert!(pool.add("early", spec.clone(), Vec::new(), None).is_ok());
        pool.stop();
        let refused = pool.add("late", spec, Vec::new(), None);
        assert_eq!(refused.unwrap_err().to_string(), "the server is stopping");
    }
}
