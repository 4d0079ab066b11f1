//! A pool's dispatcher on threads: some have the models, and one ranks what they have ready.
//!
//! Model `m` is the `m % N`-th thread's, which has its requests and hands its batches to the
//! executors. What passes between these threads and the rank thread is `fermata-scheduler`'s; here
//! are the channels into them, and their end.

mod model;
mod rank;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::Sender;
use fermata_core::{ExecutorId, ModelId};
use fermata_dispatch::{Hub, Network, Rules};
use fermata_scheduler::{Bell, RankSide, Room, Runtime, Started, link};

use self::model::ModelThread;
use self::rank::{RankThread, Report};
use crate::CLASS;
use crate::effects::Effects;
use crate::ids::Ids;
use crate::margin::{LATE_MIN, Learner};
use crate::message::{Message, Work};

/// How many models there is room for: what lies between the threads has a place for each from the
/// start.
pub(crate) const MODELS_MAX: usize = 4096;

/// Threads whose end can be waited for.
type StartedThreads = Vec<Box<dyn Started>>;

/// The ways into a pool's threads.
pub(crate) struct Threads {
    models: Vec<Door<Message>>,
    rank: Door<Report>,
}

/// The way into a thread.
struct Door<T> {
    sender: Sender<T>,
    bell: Arc<Bell>,
}

impl<T> Door<T> {
    /// Leaves something, and wakes the thread if it sleeps. Where the thread has ended it is
    /// dropped.
    fn send(&self, message: T) {
        let _ = self.sender.send(message);
        self.bell.ring();
    }
}

impl<T> Clone for Door<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bell: self.bell.clone() }
    }
}

impl Threads {
    /// Hands a message to the threads that need it.
    pub(crate) fn send(&self, message: Message) {
        match message {
            Message::Add { model, .. }
            | Message::Arrive { model, .. }
            | Message::Cancel { model, .. }
            | Message::Remove { model }
            | Message::Respec { model, .. }
            | Message::Respread { model, .. } => self.of(model).send(message),
            Message::Ran(ran) => {
                // The rank thread first: a batch may be waiting for the executor.
                let (executor, overrun, size) = (ran.executor, ran.overrun, ran.size);
                self.rank.send(Report::Done { executor, overrun, size });
                self.of(ran.model).send(message);
            }
            Message::Join { .. } | Message::Leave { .. } | Message::Lost { .. } => {
                unreachable!("a pool on threads keeps the executors that it began with")
            }
            Message::Stop => self.models.iter().for_each(|door| door.send(Message::Stop)),
        }
    }

    fn of(&self, model: ModelId) -> &Door<Message> {
        &self.models[model.index() % self.models.len()]
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("models", &self.models.len()).finish_non_exhaustive()
    }
}

/// When the threads of the models end: all together. One that has nothing left may still be
/// promised an executor, and until it gives that back, another that drains would miss it.
struct Closing {
    /// How many have requests left, or were not stopped.
    working: AtomicUsize,
    bells: Vec<Arc<Bell>>,
}

impl Closing {
    /// One has nothing left.
    fn leave(&self) {
        if self.working.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.bells.iter().for_each(|bell| bell.ring());
        }
    }

    fn is_over(&self) -> bool {
        self.working.load(Ordering::Acquire) == 0
    }
}

/// Starts `count` threads for the models of a pool, and one that ranks.
pub(crate) fn start(
    pool: &str,
    rules: Rules,
    count: usize,
    runtime: &Arc<dyn Runtime>,
    senders: &[Sender<Work>],
    ids: &Arc<Ids>,
    learner: Learner,
) -> io::Result<(Arc<Threads>, StartedThreads)> {
    let bells: Vec<Arc<Bell>> = (0..count).map(|_| Arc::default()).collect();
    let working = AtomicUsize::new(count);
    let closing = Arc::new(Closing { working, bells: bells.clone() });
    let (sender, reports) = crossbeam_channel::unbounded();
    let rank = Door { sender, bell: Arc::default() };
    let (mut models, mut ends, mut handles) = (Vec::new(), Vec::new(), Vec::new());
    for (index, bell) in bells.into_iter().enumerate() {
        let room = Room {
            index,
            shards: count,
            models: MODELS_MAX.div_ceil(count),
            classes: 1,
            executors: senders.len(),
        };
        let (end, hub_end) = link(&room, bell.clone(), rank.bell.clone());
        ends.push(hub_end);
        let (sender, inbox) = crossbeam_channel::unbounded();
        models.push(Door { sender, bell: bell.clone() });
        let effects = Effects::new(senders.to_vec(), ids.clone(), Arc::default());
        let (rank, closing) = (rank.clone(), closing.clone());
        let thread = ModelThread::new(
            &room,
            rules,
            end,
            inbox,
            bell,
            effects,
            rank,
            closing,
            runtime.clone(),
        );
        handles.push(runtime.start(
            format!("{pool}-m{index}"),
            None,
            Box::new(move || thread.drive()),
        )?);
    }
    let mut hub = Hub::new(Network::default());
    hub.set_slack(LATE_MIN);
    for executor in (0..senders.len() as u32).map(ExecutorId) {
        hub.join(runtime.now(), executor, CLASS);
    }
    let side = RankSide::new(hub, ends);
    let thread = RankThread::new(side, reports, rank.bell.clone(), count, learner, runtime.clone());
    handles.push(runtime.start(format!("{pool}-rank"), None, Box::new(move || thread.drive()))?);
    Ok((Arc::new(Threads { models, rank }), handles))
}
