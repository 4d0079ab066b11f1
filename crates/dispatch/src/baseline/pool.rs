//! One queue per model, and the executors that all models share: the state of a central scheduler.
//!
//! It keeps the books and the drop timers. Which batch goes where, and when, is a strategy's to
//! say.

use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, ModelId, Profile, Request, RequestId, Span, Table, Time};

use super::executors::{Booking, Executors};
use crate::event::{Actions, DropReason, ModelSpec, Network};
use crate::min_tree::MinTree;
use crate::queue::Queue;

/// Queues and executors.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(super) network: Network,
    pub(super) executors: Executors,
    /// The models whose queues grew since the strategy last looked.
    pub(super) grown: Vec<ModelId>,
    models: Vec<Option<Model>>,
    /// The models that have somebody waiting, in no order: choices break ties by id.
    waiting: Vec<ModelId>,
    /// When each model's head becomes hopeless.
    hopeless: MinTree,
}

/// One model and those that wait for it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) slo: Span,
    /// By class; `None` where the model cannot run.
    pub(super) lanes: Vec<Option<Lane>>,
    pub(super) queue: Queue,
    /// A request that is nearer than this to its due moment is hopeless.
    pub(super) margin: Span,
    resp: Span,
    /// Its place in `Pool::waiting`.
    place: Option<usize>,
}

/// A model on one class of executor.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) profile: Arc<Profile>,
    /// From the decision to the end of a batch on an idle executor, by size: the profile and the
    /// lead.
    pub(super) reach: Arc<Table>,
}

impl Pool {
    /// No executors and no models.
    pub(super) fn new(network: Network) -> Self {
        Self {
            network,
            executors: Executors::default(),
            grown: Vec::new(),
            models: Vec::new(),
            waiting: Vec::new(),
            hopeless: MinTree::default(),
        }
    }

    /// A model that was added, and not removed since.
    #[inline]
    pub(super) fn model(&self, model: ModelId) -> Option<&Model> {
        self.models.get(model.index())?.as_ref()
    }

    /// The models that have somebody waiting, in no order.
    #[inline]
    pub(super) fn waiting(&self) -> &[ModelId] {
        &self.waiting
    }

    /// When `drop_hopeless` has something to do again.
    #[inline]
    pub(super) fn next_drop(&self) -> Time {
        self.hopeless.earliest()
    }

    /// A model is served from now on.
    pub(super) fn add(&mut self, model: ModelId, spec: &ModelSpec) {
        if model.index() >= self.models.len() {
            self.models.resize_with(model.index() + 1, || None);
            self.hopeless.grow(model.index() + 1);
        }
        let place = &mut self.models[model.index()];
        assert!(place.is_none(), "model {model} was added twice");
        *place = Some(Model::new(spec, self.network));
    }

    /// A model is faster or slower than it was said to be.
    pub(super) fn set_profile(&mut self, model: ModelId, spec: &ModelSpec) {
        if let Some(state) = self.models.get_mut(model.index()).and_then(Option::as_mut) {
            (state.slo, state.lanes) = (spec.slo, lanes(spec, self.network));
            self.refresh(model);
        }
    }

    /// A model is no longer served: who waits for it is dropped.
    pub(super) fn remove(&mut self, model: ModelId, actions: &mut Actions) {
        let Some(state) = self.models.get_mut(model.index()).and_then(Option::as_mut) else {
            return;
        };
        while let Some(request) = state.queue.pop() {
            actions.drop(model, request, DropReason::NotLoaded);
        }
        self.refresh(model);
        self.models[model.index()] = None;
    }

    /// Queues a request, or drops it for `reason` if it is hopeless already.
    #[inline]
    pub(super) fn push(
        &mut self,
        now: Time,
        model: ModelId,
        request: Request,
        reason: DropReason,
        actions: &mut Actions,
    ) {
        let Some(state) = self.models.get_mut(model.index()).and_then(Option::as_mut) else {
            return actions.drop(model, request, DropReason::NotLoaded);
        };
        if state.is_hopeless(now, &request) {
            return actions.drop(model, request, reason);
        }
        state.queue.push(request);
        self.refresh(model);
        self.grown.push(model);
    }

    /// A client waits no more.
    pub(super) fn cancel(&mut self, model: ModelId, key: (Time, RequestId), actions: &mut Actions) {
        let Some(state) = self.models.get_mut(model.index()).and_then(Option::as_mut) else {
            return;
        };
        if let Some(request) = state.queue.remove(key) {
            actions.drop(model, request, DropReason::Cancelled);
            self.refresh(model);
        }
    }

    /// An executor broke: what it ran is queued again, or dropped if it can no longer be in time.
    pub(super) fn fail(&mut self, now: Time, executor: ExecutorId, actions: &mut Actions) {
        self.executors.fail(executor);
        while let Some((model, requests)) = self.executors.take_back(executor) {
            self.come_back(now, model, requests, actions);
        }
    }

    /// Queues the requests of a batch that was not run to its end.
    pub(super) fn come_back(
        &mut self,
        now: Time,
        model: ModelId,
        requests: Vec<Request>,
        actions: &mut Actions,
    ) {
        for &request in &requests {
            self.push(now, model, request, DropReason::Overload, actions);
        }
    }

    /// Drops every request that can no longer be in time.
    #[inline]
    pub(super) fn drop_hopeless(&mut self, now: Time, actions: &mut Actions) {
        while self.hopeless.earliest() <= now {
            let Some(at) = self.hopeless.first() else { return };
            let model = ModelId(at as u32);
            if let Some(state) = self.models[at].as_mut() {
                while let Some(&head) = state.queue.head() {
                    if !state.is_hopeless(now, &head) {
                        break;
                    }
                    state.queue.pop();
                    actions.drop(model, head, DropReason::Overload);
                }
            }
            self.refresh(model);
        }
    }

    /// Changes when a model's requests become hopeless.
    pub(super) fn set_margin(&mut self, model: ModelId, margin: Span) {
        if let Some(state) = self.models[model.index()].as_mut() {
            state.margin = margin;
            self.refresh(model);
        }
    }

    /// Of the models that wait and could use an idle executor, the one with the least key, and the
    /// executor. The key is `None` for a model that would rather wait.
    #[inline]
    pub(super) fn pick<K: Ord>(
        &self,
        key: impl Fn(ModelId, &Model, &Lane) -> Option<K>,
    ) -> Option<(K, (ModelId, ExecutorId))> {
        if self.waiting.is_empty() {
            return None;
        }
        let mut best: Option<(K, ModelId, ExecutorId)> = None;
        for class in self.executors.classes() {
            let Some(executor) = self.executors.first_idle(class) else { continue };
            let Some((key, model)) = self.pick_for(class, &key) else { continue };
            if best.as_ref().is_none_or(|best| (&key, model) < (&best.0, best.1)) {
                best = Some((key, model, executor));
            }
        }
        best.map(|(key, model, executor)| (key, (model, executor)))
    }

    /// The same for an executor of a given class.
    #[inline]
    pub(super) fn pick_for<K: Ord>(
        &self,
        class: ClassId,
        key: impl Fn(ModelId, &Model, &Lane) -> Option<K>,
    ) -> Option<(K, ModelId)> {
        let keys = self.waiting.iter().filter_map(|&model| {
            let state = self.model(model)?;
            Some((key(model, state, state.lane(class)?)?, model))
        });
        keys.min()
    }

    /// Sends the most urgent requests of a model to an executor: as many as there are, the profile
    /// has, and `limit` allows.
    #[inline]
    pub(super) fn start_at_most(
        &mut self,
        now: Time,
        (model, executor): (ModelId, ExecutorId),
        limit: usize,
        actions: &mut Actions,
    ) {
        let state = self.model(model).expect("only a known model is started");
        let class = self.executors.get(executor).expect("only a known executor is used").class;
        let profile = &state.lane(class).expect("the model runs on this class").profile;
        let size = state.queue.len().min(limit).min(profile.max_batch());
        let expected = profile.latency(size);
        self.start(now, (model, executor), size, expected, actions);
    }

    /// Sends the `size` most urgent requests of a model to an executor, which is expected to need
    /// `expected` for them.
    #[inline]
    pub(super) fn start(
        &mut self,
        now: Time,
        (model, executor): (ModelId, ExecutorId),
        size: usize,
        expected: Span,
        actions: &mut Actions,
    ) {
        let state = self.models[model.index()].as_mut().expect("only a known model is started");
        let target = self.executors.get(executor).expect("only a known executor is used");
        let lane =
            state.lanes[target.class.index()].as_ref().expect("the model runs on this class");
        let latency = lane.profile.latency(size);
        let start = (now + self.network.lead(size)).max(target.free_at());
        let first = actions.requests.len();
        actions.requests.extend_from_slice(state.queue.take(size));
        let booking = Booking { start, expected };
        self.executors.start(executor, model, booking, &actions.requests[first..]);
        actions.run(executor, model, start, latency, first);
        self.refresh(model);
    }

    /// Brings the timer and the place among those who wait in line with the queue.
    #[inline]
    fn refresh(&mut self, model: ModelId) {
        let Some(state) = self.models[model.index()].as_mut() else {
            return self.hopeless.clear(model.index());
        };
        let head = state.queue.head();
        let timer = head.map_or(Time::NEVER, |head| (state.due(head) - state.margin).next());
        self.hopeless.set(model.index(), timer);
        match (state.place, state.queue.is_empty()) {
            (None, false) => {
                state.place = Some(self.waiting.len());
                self.waiting.push(model);
            }
            (Some(place), true) => {
                state.place = None;
                self.waiting.swap_remove(place);
                if let Some(&moved) = self.waiting.get(place) {
                    let moved = self.models[moved.index()].as_mut();
                    moved.expect("only known models wait").place = Some(place);
                }
            }
            _ => {}
        }
    }
}

impl Model {
    fn new(spec: &ModelSpec, network: Network) -> Self {
        Self {
            slo: spec.slo,
            lanes: lanes(spec, network),
            queue: Queue::default(),
            margin: network.lead(1),
            resp: network.resp,
            place: None,
        }
    }

    /// The model on a class, if it can run there.
    #[inline]
    pub(super) fn lane(&self, class: ClassId) -> Option<&Lane> {
        self.lanes.get(class.index())?.as_ref()
    }

    /// From the decision to the end of a batch of one on the fastest class.
    pub(super) fn shortest(&self) -> Span {
        let reaches = self.lanes.iter().flatten().map(|lane| lane.reach.shortest());
        reaches.min().unwrap_or(Span::MAX)
    }

    /// When a batch with this request must have ended.
    #[inline]
    pub(super) fn due(&self, request: &Request) -> Time {
        request.deadline - self.resp
    }

    /// The most requests that fit into a batch decided now whose head is the queue's.
    #[inline]
    pub(super) fn fitting(&self, now: Time, lane: &Lane) -> usize {
        let Some(head) = self.queue.head() else { return 0 };
        lane.reach.largest_within_at_most(self.due(head) - now, self.queue.len())
    }

    #[inline]
    fn is_hopeless(&self, now: Time, request: &Request) -> bool {
        now + self.margin > self.due(request)
    }
}

/// A model on each class, where it can run.
pub(super) fn lanes(spec: &ModelSpec, network: Network) -> Vec<Option<Lane>> {
    let lane = |profile: &Option<Arc<Profile>>| Some(Lane::new(profile.clone()?, network));
    spec.profiles.iter().map(lane).collect()
}

impl Lane {
    fn new(profile: Arc<Profile>, network: Network) -> Self {
        let reach = network.reach(&profile);
        Self { profile, reach: Arc::new(reach) }
    }
}
