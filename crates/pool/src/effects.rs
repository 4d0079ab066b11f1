//! What dispatch asks for is done here, whether it is in one piece or on threads.
//!
//! Dispatch sees ids only. This keeps the tickets, the models and the executors by their ids.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crossbeam_channel::Sender;
use fermata_core::{ClassId, ExecutorId, ModelId, RequestId, Spread, Time};
use fermata_dispatch::{Action, Actions, ModelSpec};
use fermata_engine::Session;

use crate::CLASS;
use crate::ids::Ids;
use crate::learner::Profiles;
use crate::limits::Limits;
use crate::message::{Batch, Lost, Ran, SessionOf, Work};
use crate::model::Model;
use crate::ticket::{Refused, Ticket};

pub(crate) struct Effects {
    /// To the executors that take batches, by executor.
    senders: Vec<Option<ExecutorSender>>,
    tickets: HashMap<RequestId, Ticket>,
    models: HashMap<ModelId, Model>,
    ids: Arc<Ids>,
    limits: Arc<Limits>,
    /// How many batches the executors have.
    running: usize,
    stopping: bool,
}

/// The way of work to an executor. When it is dropped, the executor finishes what it has and ends.
struct ExecutorSender {
    work: Sender<Work>,
    class: ClassId,
}

impl ExecutorSender {
    fn send(&self, work: Work) {
        // An executor ends after its sender is dropped. One that broke gives back what is still in
        // the queue.
        let _ = self.work.send(work);
    }
}

/// A request that dispatch has, and that is not to run: its model, its id, and its deadline.
type Unwanted = (ModelId, RequestId, Time);

impl Effects {
    pub(crate) fn new(senders: Vec<Sender<Work>>, ids: Arc<Ids>, limits: Arc<Limits>) -> Self {
        let senders =
            senders.into_iter().map(|work| Some(ExecutorSender { work, class: CLASS })).collect();
        let (tickets, models) = (HashMap::new(), HashMap::new());
        Self { senders, tickets, models, ids, limits, running: 0, stopping: false }
    }

    /// An executor came. It keeps a session of each model that is still here.
    pub(crate) fn admit(
        &mut self,
        executor: ExecutorId,
        class: ClassId,
        work: Sender<Work>,
        sessions: Vec<SessionOf>,
    ) {
        let sender = ExecutorSender { work, class };
        for (model, session) in sessions {
            if self.models.contains_key(&model) {
                sender.send(Work::Install { model, session });
            }
        }
        if executor.index() >= self.senders.len() {
            self.senders.resize_with(executor.index() + 1, || None);
        }
        self.senders[executor.index()] = Some(sender);
    }

    /// An executor goes: it finishes what it was given, and then ends.
    pub(crate) fn release(&mut self, executor: ExecutorId) {
        self.senders[executor.index()] = None;
    }

    /// Whether an executor takes batches.
    pub(crate) fn has_executor(&self, executor: ExecutorId) -> bool {
        self.senders.get(executor.index()).is_some_and(Option::is_some)
    }

    /// An executor broke: keeps its tickets again. Dispatch queues them all again, and must then
    /// cancel the ones returned here.
    pub(crate) fn take_back(&mut self, lost: Lost) -> Vec<Unwanted> {
        let Lost { executor, batches, work } = lost;
        // It is given nothing more from here on.
        self.release(executor);
        let given = work.try_iter().filter_map(|work| match work {
            Work::Run(batch) => Some(batch),
            Work::Install { .. } | Work::Uninstall { .. } => None,
        });
        let mut unwanted = Vec::new();
        for Batch { model, tickets, .. } in batches.into_iter().chain(given) {
            self.running -= 1;
            for mut ticket in tickets {
                if !ticket.come_back() {
                    unwanted.push((model, ticket.id, ticket.deadline));
                }
                self.keep(ticket);
            }
        }
        unwanted
    }

    /// How many executors there are at the start.
    pub(crate) fn executors(&self) -> usize {
        self.senders.len()
    }

    /// Keeps a request until it is run or dropped.
    pub(crate) fn keep(&mut self, ticket: Ticket) {
        self.tickets.insert(ticket.id, ticket);
    }

    /// Whether a request is still here.
    pub(crate) fn has(&self, request: RequestId) -> bool {
        self.tickets.contains_key(&request)
    }

    /// Gives each executor its session of a model, before its first batch can come.
    pub(crate) fn install(
        &mut self,
        model: ModelId,
        spec: Arc<ModelSpec>,
        sessions: Vec<(ExecutorId, Box<dyn Session>)>,
        profiles: Profiles,
    ) {
        for (executor, session) in sessions {
            // It may have broken since its session was asked for.
            if let Some(sender) = &self.senders[executor.index()] {
                sender.send(Work::Install { model, session });
            }
        }
        self.models.insert(model, Model::new(spec, profiles));
    }

    /// Takes the sessions of a model back, after its last batch. Its id may be another's then.
    pub(crate) fn uninstall(&mut self, model: ModelId) {
        for sender in self.senders.iter().flatten() {
            sender.send(Work::Uninstall { model });
        }
        self.models.remove(&model);
        self.limits.forget(model);
        self.ids.free(model);
    }

    /// Does all that was asked for.
    pub(crate) fn perform(&mut self, actions: &mut Actions) {
        for &action in &actions.list {
            match action {
                Action::Drop { request, reason, .. } => {
                    self.take(request.id).leave(Err(Refused::Dropped(reason)));
                }
                Action::Limit { model, by } => self.limits.note(model, by),
                Action::Run { executor, model, start, latency, first, size } => {
                    let requests = actions.batch(first, size).iter();
                    let tickets = requests.map(|request| self.take(request.id)).collect();
                    self.running += 1;
                    let sender = self.senders[executor.index()].as_ref();
                    let sender =
                        sender.expect("dispatch gives no batch to an executor that has left");
                    let spread = self.models.get(&model).is_some_and(|m| m.is_spread(sender.class));
                    let batch = Batch { model, tickets, start, latency, spread };
                    sender.send(Work::Run(batch));
                }
                Action::Preempt { .. } => unreachable!("policies that preempt are not served with"),
            }
        }
        actions.clear();
    }

    /// A batch has run. Learns from it how fast the model is now; says so, if that is news.
    pub(crate) fn ran(&mut self, now: Time, ran: &Ran) -> Option<Arc<ModelSpec>> {
        self.running -= 1;
        self.models.get_mut(&ran.model)?.observe(now, ran)
    }

    /// A model has other profiles. Says what is known of it now, if it is here.
    pub(crate) fn respec(
        &mut self,
        model: ModelId,
        spec: &Arc<ModelSpec>,
    ) -> Option<Arc<ModelSpec>> {
        Some(self.models.get_mut(&model)?.respec(spec))
    }

    /// Requests of a model take something else than before. Says what is known of it now, if it is
    /// here.
    pub(crate) fn respread(
        &mut self,
        model: ModelId,
        spread: Arc<Spread>,
    ) -> Option<Arc<ModelSpec>> {
        self.models.get_mut(&model)?.respread(spread)
    }

    /// Nothing more will come.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether it was stopped and all there was has left.
    pub(crate) fn is_done(&self) -> bool {
        self.stopping && self.tickets.is_empty() && self.running == 0
    }

    /// Stops the executors: each ends when it has finished what it was given.
    pub(crate) fn stop_executors(&mut self) {
        self.senders.clear();
    }

    fn take(&mut self, request: RequestId) -> Ticket {
        self.tickets.remove(&request).expect("a request leaves once")
    }
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects").field("waiting", &self.tickets.len()).finish_non_exhaustive()
    }
}
