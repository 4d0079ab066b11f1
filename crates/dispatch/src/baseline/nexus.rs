//! Nexus: models are placed on executors for a whole epoch, requests are routed when they come, and
//! each executor batches for itself.
//!
//! The placement follows the rates: those announced when models are added, later those measured.
//! One frontend routes by weighted turns. An executor runs its models in turns, back to back,
//! without waiting for the end of its duty cycle, and drops early (Nexus 6.3): a window of the
//! expected batch slides over the queue until its first request has time for all of it. Nothing is
//! moved between executors within an epoch, which is what this baseline shows. Its query analysis
//! and prefix batching are not here: both are of the planner.

use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, ModelId, Profile, Request, RequestId, Span, Table, Time};

use super::executors::{Booking, Executors};
use super::packing::{self, Session};
use super::pool::{Lane, lanes};
use crate::event::{Actions, Dispatch, DropReason, Event, ModelSpec, Network};
use crate::min_tree::MinTree;
use crate::queue::Queue;

/// Rates are measured anew at least this often.
const EPOCH: Span = Span(30_000_000_000);
/// A changed load is answered after this long at the earliest.
const EPOCH_SHORTEST: Span = Span(10_000_000_000);
/// A model is placed anew when its rate is above or below these shares of what was planned for.
const BAND: (f64, f64) = (0.8, 1.1);
/// A count within this many standard deviations of the expected one is no change of the load.
const SIGNIFICANCE: f64 = 3.0;
/// One turn takes at most so many nanoseconds, some minutes: the clock of the turns must not come
/// to its end.
const STRIDE_MAX: f64 = 1e12;

/// The frontend, the backends and their scheduler in one.
#[derive(Clone, Debug)]
pub(crate) struct Nexus {
    network: Network,
    models: Vec<Option<Model>>,
    executors: Executors,
    /// By executor.
    backends: Vec<Backend>,
    slots: Vec<Slot>,
    /// When the head of each slot becomes hopeless.
    hopeless: MinTree,
    /// The plan is not for these models and executors.
    stale: bool,
    /// When the counts of arrivals began; never, before the first.
    epoch: Time,
    next_check: Time,
}

/// One model as the frontend and the scheduler see it.
#[derive(Clone, Debug)]
struct Model {
    slo: Span,
    /// By class; `None` where it cannot run.
    lanes: Vec<Option<Lane>>,
    /// Requests per nanosecond, as planned for.
    rate: f64,
    /// Requests of this epoch.
    count: u64,
    /// The slots that serve it.
    routes: Vec<usize>,
    /// By route, when its next turn is on a clock that gives each slot its share.
    turns: MinTree,
}

/// One model's queue at one executor.
#[derive(Clone, Debug)]
struct Slot {
    model: ModelId,
    /// `None` if no executor can run the model: who waits here waits for a better plan.
    executor: Option<ExecutorId>,
    profile: Arc<Profile>,
    reach: Arc<Table>,
    /// The expected batch.
    batch: usize,
    /// How much of the clock one turn takes.
    stride: Span,
    queue: Queue,
}

/// The turns of one executor.
#[derive(Clone, Debug, Default)]
struct Backend {
    slots: Vec<usize>,
    /// Whose turn is next.
    turn: usize,
}

impl Nexus {
    /// No models and no executors.
    pub(crate) fn new(network: Network) -> Self {
        Self {
            network,
            models: Vec::new(),
            executors: Executors::default(),
            backends: Vec::new(),
            slots: Vec::new(),
            hopeless: MinTree::default(),
            stale: true,
            epoch: Time::NEVER,
            next_check: Time::NEVER,
        }
    }

    fn arrive(&mut self, now: Time, model: ModelId, request: Request, actions: &mut Actions) {
        if self.epoch == Time::NEVER {
            self.start_epoch(now);
        }
        let Some(state) = self.models.get_mut(model.index()).and_then(Option::as_mut) else {
            return actions.drop(model, request, DropReason::NotLoaded);
        };
        state.count += 1;
        if now >= self.next_check {
            self.check_rates(now);
        }
        if self.stale {
            self.plan(now, actions);
        }
        self.route(now, model, request, DropReason::Late, actions);
    }

    /// Queues a request at the executor whose turn it is, or drops it if it is hopeless there.
    fn route(
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
        let route = state.turns.first().expect("every model has a slot");
        let at = state.routes[route];
        let slot = &mut self.slots[at];
        state.turns.set(route, state.turns.get(route) + slot.stride);
        if now + slot.reach.shortest() > request.deadline - self.network.resp {
            return actions.drop(model, request, reason);
        }
        slot.queue.push(request);
        let executor = slot.executor;
        self.refresh(at);
        if let Some(executor) = executor {
            self.serve(now, executor, actions);
        }
    }

    /// Gives an executor, if it is idle, the batch of the first model in turn that has one.
    fn serve(&mut self, now: Time, executor: ExecutorId, actions: &mut Actions) {
        if !self.executors.is_idle(executor) {
            return;
        }
        let turns = self.backends[executor.index()].slots.len();
        for _ in 0..turns {
            let backend = &mut self.backends[executor.index()];
            let at = backend.slots[backend.turn];
            backend.turn = (backend.turn + 1) % turns;
            let slot = &mut self.slots[at];
            if slot.queue.is_empty() {
                continue;
            }
            let size = slot.drop_early(now, self.network.resp, actions);
            if size > 0 {
                let first = actions.requests.len();
                actions.requests.extend_from_slice(slot.queue.take(size));
                let start = now + self.network.lead(size);
                let latency = slot.profile.latency(size);
                let booking = Booking { start, expected: latency };
                let requests = &actions.requests[first..];
                self.executors.start(executor, slot.model, booking, requests);
                actions.run(executor, slot.model, start, latency, first);
            }
            self.refresh(at);
            if size > 0 {
                return;
            }
        }
    }

    fn drop_hopeless(&mut self, now: Time, actions: &mut Actions) {
        while self.hopeless.earliest() <= now {
            let Some(at) = self.hopeless.first() else { return };
            let slot = &mut self.slots[at];
            while let Some(&head) = slot.queue.head() {
                if now + slot.reach.shortest() <= head.deadline - self.network.resp {
                    break;
                }
                slot.queue.pop();
                actions.drop(slot.model, head, DropReason::Overload);
            }
            self.refresh(at);
        }
    }

    /// Brings the timer of a slot in line with its queue.
    fn refresh(&mut self, at: usize) {
        let slot = &self.slots[at];
        let last = |head: &Request| head.deadline - self.network.resp - slot.reach.shortest();
        let timer = slot.queue.head().map_or(Time::NEVER, |head| last(head).next());
        self.hopeless.set(at, timer);
    }

    fn cancel(&mut self, model: ModelId, key: (Time, RequestId), actions: &mut Actions) {
        let Some(state) = self.models.get(model.index()).and_then(Option::as_ref) else { return };
        let mut found = state.routes.iter().filter_map(|&at| {
            let request = self.slots[at].queue.remove(key)?;
            Some((at, request))
        });
        if let Some((at, request)) = found.next() {
            actions.drop(model, request, DropReason::Cancelled);
            self.refresh(at);
        }
    }

    fn fail(&mut self, now: Time, executor: ExecutorId, actions: &mut Actions) {
        self.executors.fail(executor);
        self.plan(now, actions);
        while let Some((model, requests)) = self.executors.take_back(executor) {
            for &request in &requests {
                self.route(now, model, request, DropReason::Overload, actions);
            }
        }
    }

    fn add(&mut self, model: ModelId, spec: &ModelSpec, gap: Option<Span>) {
        if model.index() >= self.models.len() {
            self.models.resize_with(model.index() + 1, || None);
        }
        let place = &mut self.models[model.index()];
        assert!(place.is_none(), "model {model} was added twice");
        *place = Some(Model {
            slo: spec.slo,
            lanes: lanes(spec, self.network),
            // Of an unknown rate only the first epoch will tell: until then, one request at a time.
            rate: 1.0 / gap.unwrap_or(spec.slo).max(Span(1)).0 as f64,
            count: 0,
            routes: Vec::new(),
            turns: MinTree::default(),
        });
        self.stale = true;
    }

    fn remove(&mut self, model: ModelId, actions: &mut Actions) {
        let Some(state) = self.models.get_mut(model.index()).and_then(Option::take) else { return };
        for at in state.routes {
            while let Some(request) = self.slots[at].queue.pop() {
                actions.drop(model, request, DropReason::NotLoaded);
            }
            self.refresh(at);
        }
        self.stale = true;
    }

    fn start_epoch(&mut self, now: Time) {
        (self.epoch, self.next_check) = (now, now + EPOCH_SHORTEST);
        self.models.iter_mut().flatten().for_each(|model| model.count = 0);
    }

    /// Takes over the measured rates if some model's left the band it was planned for.
    fn check_rates(&mut self, now: Time) {
        let elapsed = (now - self.epoch).0 as f64;
        let changed = |model: &Model| {
            let (count, expected) = (model.count as f64, model.rate * elapsed);
            let outside = count < BAND.0 * expected || count > BAND.1 * expected;
            outside && (count - expected).abs() > SIGNIFICANCE * expected.max(1.0).sqrt()
        };
        if self.models.iter().flatten().any(changed) {
            for model in self.models.iter_mut().flatten() {
                model.rate = (model.count as f64).max(0.5) / elapsed;
            }
            self.stale = true;
            self.start_epoch(now);
        } else if now - self.epoch >= EPOCH {
            self.start_epoch(now);
        } else {
            self.next_check = now + EPOCH_SHORTEST;
        }
    }

    /// Places every model anew, and routes anew who waits.
    fn plan(&mut self, now: Time, actions: &mut Actions) {
        self.stale = false;
        let mut waiting: Vec<(ModelId, Request)> = Vec::new();
        for slot in &mut self.slots {
            while let Some(request) = slot.queue.pop() {
                waiting.push((slot.model, request));
            }
        }
        waiting.sort_by_key(|(_, request)| request.key());
        self.slots.clear();
        self.backends.iter_mut().for_each(|backend| backend.slots.clear());
        self.models.iter_mut().flatten().for_each(|model| model.routes.clear());
        for class in self.executors.classes() {
            self.plan_class(class);
        }
        self.park_the_unplaced();
        self.hopeless = MinTree::with_len(self.slots.len());
        for backend in &mut self.backends {
            backend.turn = 0;
        }
        for model in self.models.iter_mut().flatten() {
            model.turns = MinTree::with_len(model.routes.len());
            for (route, &at) in model.routes.iter().enumerate() {
                // Half a stride late, so that equal slots do not all have their first turn at once.
                model.turns.set(route, Time::START + Span(self.slots[at].stride.0 / 2));
            }
        }
        for (model, request) in waiting {
            self.route(now, model, request, DropReason::Overload, actions);
        }
    }

    fn plan_class(&mut self, class: ClassId) {
        let executors: Vec<ExecutorId> = self.executors.active(class).collect();
        let placed = (0..).zip(&self.models).filter_map(|(id, model)| {
            let model = model.as_ref()?;
            let lane = model.lanes.get(class.index())?.as_ref()?;
            Some((ModelId(id), model, lane))
        });
        let placed: Vec<(ModelId, &Model, &Lane)> = placed.collect();
        let sessions: Vec<Session<'_>> = placed
            .iter()
            .map(|(_, model, lane)| Session {
                rate: model.rate * self.share(model, class),
                budget: model.slo - self.network.resp,
                reach: &lane.reach,
            })
            .collect();
        let nodes = packing::pack(&sessions, executors.len());
        let mut slots = Vec::new();
        for (node, executor) in nodes.iter().zip(executors) {
            for member in &node.members {
                let (model, _, lane) = placed[member.session];
                slots.push(Slot {
                    model,
                    executor: Some(executor),
                    profile: lane.profile.clone(),
                    reach: lane.reach.clone(),
                    batch: member.batch,
                    stride: Span((1.0 / member.rate).min(STRIDE_MAX) as u64),
                    queue: Queue::default(),
                });
            }
        }
        slots.into_iter().for_each(|slot| self.add_slot(slot));
    }

    /// The share of a model's requests that a class is to serve: by its number of executors, and by
    /// what each of them could do for it.
    fn share(&self, model: &Model, class: ClassId) -> f64 {
        let power = |class: ClassId| {
            let Some(lane) = model.lanes.get(class.index()).and_then(Option::as_ref) else {
                return 0.0;
            };
            let budget = model.slo - self.network.resp;
            let batch = Session { rate: 0.0, budget, reach: &lane.reach }.saturated_batch();
            self.executors.active(class).count() as f64 / lane.reach.cost(batch)
        };
        let all: f64 = self.executors.classes().map(power).sum();
        if all > 0.0 { power(class) / all } else { 0.0 }
    }

    /// A model that no executor can run waits in a slot of its own.
    fn park_the_unplaced(&mut self) {
        let never = Arc::new(Profile::from_table([Span::MAX]).expect("one batch size is enough"));
        for id in 0..self.models.len() {
            let Some(model) = self.models[id].as_ref().filter(|model| model.routes.is_empty())
            else {
                continue;
            };
            let lanes = model.lanes.iter().flatten();
            let fastest = lanes.min_by_key(|lane| lane.reach.shortest());
            let slot = Slot {
                model: ModelId(id as u32),
                executor: None,
                profile: never.clone(),
                reach: fastest
                    .map_or_else(|| Arc::new(never.table().clone()), |lane| lane.reach.clone()),
                batch: 1,
                stride: Span(1),
                queue: Queue::default(),
            };
            self.add_slot(slot);
        }
    }

    fn add_slot(&mut self, slot: Slot) {
        let at = self.slots.len();
        if let Some(executor) = slot.executor {
            if executor.index() >= self.backends.len() {
                self.backends.resize_with(executor.index() + 1, Backend::default);
            }
            self.backends[executor.index()].slots.push(at);
        }
        let model = self.models[slot.model.index()].as_mut();
        model.expect("only known models are placed").routes.push(at);
        self.slots.push(slot);
    }
}

impl Slot {
    /// Drops who stands in the way of the expected batch; the size of the batch that can go.
    fn drop_early(&mut self, now: Time, resp: Span, actions: &mut Actions) -> usize {
        loop {
            let window = self.batch.min(self.queue.len());
            let Some(&head) = self.queue.head() else { return 0 };
            if now + self.reach.latency(window) <= head.deadline - resp {
                return window;
            }
            self.queue.pop();
            actions.drop(self.model, head, DropReason::Overload);
        }
    }
}

impl Dispatch for Nexus {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions) {
        // Models and executors come one by one at the beginning: the first plan waits for a
        // request.
        let running = self.epoch != Time::NEVER;
        self.drop_hopeless(now, actions);
        match event {
            Event::Arrive { model, request, deadline, kind } => {
                let request = Request { deadline, id: request, arrival: now, kind };
                self.arrive(now, model, request, actions);
            }
            Event::Done { executor } => {
                self.executors.done(now, executor);
                if self.executors.is_idle(executor) {
                    self.serve(now, executor, actions);
                }
            }
            // It does not hold to the last moment.
            Event::Late { .. } | Event::Wakeup => {}
            Event::AddModel { model, spec, gap } => {
                self.add(model, &spec, gap);
                if running {
                    // What was counted before would speak of an epoch that the model was not there
                    // for.
                    self.start_epoch(now);
                }
            }
            Event::Cancel { model, request, deadline } => {
                self.cancel(model, (deadline, request), actions);
            }
            Event::Fail { executor } => self.fail(now, executor, actions),
            Event::Join { executor, class } => {
                self.executors.join(executor, class);
                self.stale = true;
            }
            Event::Leave { executor } => {
                self.executors.leave(executor);
                self.stale = true;
            }
            Event::Profile { model, spec } => {
                if let Some(state) = self.models.get_mut(model.index()).and_then(Option::as_mut) {
                    (state.slo, state.lanes) = (spec.slo, lanes(&spec, self.network));
                    self.stale = true;
                }
            }
            Event::RemoveModel { model } => self.remove(model, actions),
        }
        if self.stale && running {
            self.plan(now, actions);
        }
    }

    fn next_wakeup(&self) -> Time {
        self.hopeless.earliest()
    }
}

#[cfg(test)]
mod tests;
