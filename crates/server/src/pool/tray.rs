//! What lies before whoever decides: the requests that wait, the models they are for, the hands of the executors.
//!
//! Dispatch sees ids only. Here are the payloads by id, and what dispatch asks is done with them, whether it is in
//! one piece or on threads.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crossbeam_channel::Sender;
use fermata_core::{ExecutorId, ModelId, Profile, RequestId, Spread, Time};
use fermata_dispatch::{Action, Actions, ModelSpec};
use fermata_engine::Session;

use super::CLASS;
use super::executor::{Batch, Ran, Work};
use super::ids::Ids;
use super::inbox::SessionOf;
use super::job::{Job, Refused};
use crate::profiler::Correction;

pub(super) struct Tray {
    /// To the executors that take batches, by id.
    hands: Vec<Option<Sender<Work>>>,
    jobs: HashMap<RequestId, Job>,
    models: HashMap<ModelId, Model>,
    ids: Arc<Ids>,
    /// Batches.
    running: usize,
    stopping: bool,
}

struct Model {
    spec: Arc<ModelSpec>,
    correction: Option<Correction>,
}

impl Model {
    fn is_spread(&self) -> bool {
        self.spec.profile(CLASS).is_some_and(|profile| profile.spread().is_some())
    }

    fn set(&mut self, profile: Profile) -> Arc<ModelSpec> {
        self.spec = Arc::new(ModelSpec::uniform(self.spec.slo, profile));
        self.spec.clone()
    }
}

impl Tray {
    pub(super) fn new(hands: Vec<Sender<Work>>, ids: Arc<Ids>) -> Self {
        let hands = hands.into_iter().map(Some).collect();
        let (jobs, models) = (HashMap::new(), HashMap::new());
        Self { hands, jobs, models, ids, running: 0, stopping: false }
    }

    /// An executor came. It keeps a session of each model that is still here.
    pub(super) fn admit(
        &mut self,
        executor: ExecutorId,
        hand: Sender<Work>,
        sessions: Vec<SessionOf>,
    ) {
        for (model, session) in sessions {
            if self.models.contains_key(&model) {
                send(&hand, Work::Install { model, session });
            }
        }
        if executor.index() >= self.hands.len() {
            self.hands.resize(executor.index() + 1, None);
        }
        self.hands[executor.index()] = Some(hand);
    }

    /// An executor goes: it finishes what it was given, and then ends, since nobody can give it more.
    pub(super) fn release(&mut self, executor: ExecutorId) {
        self.hands[executor.index()] = None;
    }

    /// How many executors there are at the start.
    pub(super) fn executors(&self) -> usize {
        self.hands.len()
    }

    /// Keeps a request until it is run or dropped.
    pub(super) fn keep(&mut self, job: Job) {
        self.jobs.insert(job.id, job);
    }

    /// Whether a request is still here.
    pub(super) fn has(&self, request: RequestId) -> bool {
        self.jobs.contains_key(&request)
    }

    /// Gives each executor its session of a model, before its first batch can come.
    pub(super) fn install(
        &mut self,
        model: ModelId,
        spec: Arc<ModelSpec>,
        sessions: Vec<(ExecutorId, Box<dyn Session>)>,
        correction: Option<Correction>,
    ) {
        for (executor, session) in sessions {
            send(self.hand(executor), Work::Install { model, session });
        }
        self.models.insert(model, Model { spec, correction });
    }

    /// Takes the sessions of a model back, after its last batch. Its id may be another's then.
    pub(super) fn uninstall(&mut self, model: ModelId) {
        for hand in self.hands.iter().flatten() {
            send(hand, Work::Uninstall { model });
        }
        self.models.remove(&model);
        self.ids.free(model);
    }

    /// Does all that was asked for.
    pub(super) fn perform(&mut self, actions: &mut Actions) {
        for &action in &actions.list {
            match action {
                Action::Drop { request, reason, .. } => {
                    let job = self.take(request.id);
                    // A client that went away needs no answer.
                    let _ = job.reply.send(Err(Refused::Dropped(reason)));
                }
                Action::Run { executor, model, start, latency, first, size } => {
                    let requests = actions.batch(first, size).iter();
                    let jobs = requests.map(|request| self.take(request.id)).collect();
                    self.running += 1;
                    let spread = self.models.get(&model).is_some_and(Model::is_spread);
                    let batch = Batch { model, jobs, start, latency, spread };
                    send(self.hand(executor), Work::Run(batch));
                }
                Action::Preempt { .. } => unreachable!("policies that preempt are not served with"),
            }
        }
        actions.clear();
    }

    /// A batch has run. Learns from it how fast the model is now; says so, if that is news.
    pub(super) fn ran(&mut self, now: Time, ran: &Ran) -> Option<Arc<ModelSpec>> {
        self.running -= 1;
        let model = self.models.get_mut(&ran.model)?;
        let correction = model.correction.as_mut()?;
        let profile = correction.observe(now, ran.size, ran.latency, ran.took)?;
        Some(model.set(profile))
    }

    /// Requests of a model take something else than before. Says what is known of it now, if it is here.
    pub(super) fn respread(
        &mut self,
        model: ModelId,
        spread: Arc<Spread>,
    ) -> Option<Arc<ModelSpec>> {
        let model = self.models.get_mut(&model)?;
        let profile = match &mut model.correction {
            Some(correction) => correction.rebase(spread, model.spec.slo),
            None => Profile::spread_out(spread),
        };
        Some(model.set(profile))
    }

    /// Nothing more will come.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether it was stopped and all there was has left.
    pub(super) fn is_done(&self) -> bool {
        self.stopping && self.jobs.is_empty() && self.running == 0
    }

    /// Sends the executors home.
    pub(super) fn dismiss(&mut self) {
        self.hands.clear();
    }

    fn hand(&self, executor: ExecutorId) -> &Sender<Work> {
        self.hands[executor.index()].as_ref().expect("who has left is not asked")
    }

    fn take(&mut self, request: RequestId) -> Job {
        self.jobs.remove(&request).expect("a request leaves once")
    }
}

impl fmt::Debug for Tray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tray").field("waiting", &self.jobs.len()).finish_non_exhaustive()
    }
}

fn send(hand: &Sender<Work>, work: Work) {
    // Executors end after those who give them work, but for a panic, which ends the process.
    let _ = hand.send(work);
}
