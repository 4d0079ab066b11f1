//! Orloj: batches of requests whose run time is not known, only how it is distributed.
//!
//! For each batch size there is a queue of the requests that can be in time in such a batch, by a
//! priority that changes with time ([`score`]). The size whose queue has the earliest deadline is
//! sent, with the requests of the highest priority (algorithm 1).
//!
//! How the text was read, where it leaves something open. Where several readings are possible, the
//! one was taken that comes nearest to the finish rates of its two-modal load; `sim/tests/orloj.rs`
//! has them.
//! - Algorithm 1 takes sizes in descending order of (deadline, size), its text the earliest
//!   deadline first. The text is followed, the larger size first where deadlines are equal: so it
//!   is the largest batch that the most urgent request is feasible for. (In descending order it
//!   would be the largest that anybody is feasible for.) A size that has fewer requests than it
//!   needs is passed over, and batches are of exactly that size.
//! - The sizes are powers of two up to 16, as in Clockwork, which it was built on.
//! - Equation 2's h is a density (see [`score`]).
//! - Which distribution L has, before it is known who is in the batch (4.3): the request itself is
//!   of its own kind, its companions are of any, in the shares that the model's requests have.
//! - `EstimateBatchLatency(r, bs)` is equation 3 for as long as requests of r's kind take on
//!   average: nothing else is known of the batch when a request is judged. A request leaves a
//!   size's queue when its deadline is nearer than that, stays in those of the smaller sizes, and
//!   is dropped when it has left the last.
//! - Several models share the executors: that with the earliest deadline goes first. Where classes
//!   of executors differ, each has its own queues.

mod hull;
mod model;
mod score;
mod shelf;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use fermata_core::{ClassId, ExecutorId, ModelId, Request, Time};

use self::model::Model;
use super::executors::{Booking, Executors};
use crate::event::{Actions, Dispatch, DropReason, Event, ModelSpec, Network};
use crate::min_tree::MinTree;

pub use self::hull::{HullQueue, Point};

/// The parameter of the anticipated delay, per millisecond: the authors' choice.
pub(crate) const DELAY_RATE: f64 = 1e-4;
/// The values it may have: beyond these an exponential of a second is nothing, or the difference of
/// two is.
pub(crate) const DELAY_RATES: RangeInclusive<f64> = 1e-9..=1.0;

/// A batch that could be sent: its earliest deadline, its size, its model, and the model's shelf.
/// The least goes first.
type Choice = (Time, Reverse<usize>, ModelId, usize);

/// Queues and executors.
#[derive(Clone, Debug)]
pub(crate) struct Orloj {
    network: Network,
    /// The parameter of the anticipated delay, per nanosecond.
    rate: f64,
    executors: Executors,
    models: Vec<Option<Model>>,
    /// The models that have somebody waiting.
    waiting: BTreeSet<ModelId>,
    /// When the next request of each model becomes hopeless.
    hopeless: MinTree,
}

impl Orloj {
    /// No models and no executors. The anticipated delay is exponential with this rate, per
    /// millisecond.
    pub(crate) fn new(rate_per_ms: f64, network: Network) -> Self {
        Self {
            network,
            rate: rate_per_ms / 1e6,
            executors: Executors::default(),
            models: Vec::new(),
            waiting: BTreeSet::new(),
            hopeless: MinTree::default(),
        }
    }

    fn add(&mut self, model: ModelId, spec: &ModelSpec) {
        if model.index() >= self.models.len() {
            self.models.resize_with(model.index() + 1, || None);
            self.hopeless.grow(model.index() + 1);
        }
        let place = &mut self.models[model.index()];
        assert!(place.is_none(), "model {model} was added twice");
        *place = Some(Model::new(spec, self.network, self.rate));
    }

    fn remove(&mut self, model: ModelId, actions: &mut Actions) {
        if let Some(state) = self.models.get_mut(model.index()).and_then(Option::take) {
            for request in state.into_requests() {
                actions.drop(model, request, DropReason::NotLoaded);
            }
            self.refresh(model);
        }
    }

    fn set_profile(&mut self, now: Time, model: ModelId, spec: &ModelSpec, actions: &mut Actions) {
        if let Some(state) = self.models.get_mut(model.index()).and_then(Option::take) {
            self.models[model.index()] = Some(Model::new(spec, self.network, self.rate));
            for request in state.into_requests() {
                self.push(now, model, request, DropReason::Overload, actions);
            }
            self.refresh(model);
        }
    }

    /// Queues a request, or drops it for `reason` if it is hopeless already.
    fn push(
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
        if !state.push(now, request) {
            return actions.drop(model, request, reason);
        }
        self.refresh(model);
    }

    fn cancel(&mut self, model: ModelId, key: shelf::Key, actions: &mut Actions) {
        let state = self.models.get_mut(model.index()).and_then(Option::as_mut);
        if let Some(request) = state.and_then(|state| state.remove(key)) {
            actions.drop(model, request, DropReason::Cancelled);
            self.refresh(model);
        }
    }

    fn fail(&mut self, now: Time, executor: ExecutorId, actions: &mut Actions) {
        self.executors.fail(executor);
        while let Some((model, requests)) = self.executors.take_back(executor) {
            for &request in &requests {
                self.push(now, model, request, DropReason::Overload, actions);
            }
        }
    }

    /// Drops every request that has left the last of its queues.
    fn drop_hopeless(&mut self, now: Time, actions: &mut Actions) {
        while self.hopeless.earliest() <= now {
            let Some(at) = self.hopeless.first() else { return };
            let model = ModelId(at as u32);
            if let Some(state) = self.models[at].as_mut() {
                while let Some(request) = state.pop_hopeless(now) {
                    actions.drop(model, request, DropReason::Overload);
                }
            }
            self.refresh(model);
        }
    }

    /// Sends batches as long as an executor is idle that somebody waits for.
    fn dispatch(&mut self, now: Time, actions: &mut Actions) {
        while let Some((model, shelf, executor)) = self.choose(now) {
            let state = self.models[model.index()].as_mut().expect("a model that waits is there");
            let first = actions.requests.len();
            let latency = state.pop_batch(now, shelf, &mut actions.requests);
            let start = now + self.network.lead(actions.requests.len() - first);
            let booking = Booking { start, expected: latency };
            self.executors.start(executor, model, booking, &actions.requests[first..]);
            actions.run(executor, model, start, latency, first);
            self.refresh(model);
        }
    }

    /// Of all batches that an idle executor could run, that with the earliest deadline: its model,
    /// its shelf, and the executor.
    fn choose(&mut self, now: Time) -> Option<(ModelId, usize, ExecutorId)> {
        if self.waiting.is_empty() || !self.executors.any_idle() {
            return None;
        }
        let mut best: Option<(Choice, ExecutorId)> = None;
        for class in self.executors.classes() {
            let Some(executor) = self.executors.first_idle(class) else { continue };
            let Some(choice) = self.choose_for(now, class) else { continue };
            if best.is_none_or(|best| choice < best.0) {
                best = Some((choice, executor));
            }
        }
        let ((_, _, model, shelf), executor) = best?;
        Some((model, shelf, executor))
    }

    fn choose_for(&mut self, now: Time, class: ClassId) -> Option<Choice> {
        let models = &mut self.models;
        let choices = self.waiting.iter().filter_map(|&model| {
            let state = models[model.index()].as_mut()?;
            let (deadline, size, shelf) = state.candidate(now, class)?;
            Some((deadline, Reverse(size), model, shelf))
        });
        choices.min()
    }

    /// Brings the timer of a model, and whether it waits, in line with its requests.
    fn refresh(&mut self, model: ModelId) {
        let state = self.models[model.index()].as_ref();
        self.hopeless.set(model.index(), state.map_or(Time::NEVER, Model::next_hopeless));
        match state.is_some_and(|state| !state.is_empty()) {
            true => self.waiting.insert(model),
            false => self.waiting.remove(&model),
        };
    }
}

impl Dispatch for Orloj {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions) {
        match event {
            Event::Arrive { model, request, deadline, kind } => {
                let request = Request { deadline, id: request, arrival: now, kind };
                self.push(now, model, request, DropReason::Late, actions);
            }
            Event::Done { executor } => self.executors.done(now, executor),
            // It does not hold to the last moment.
            Event::Late { .. } | Event::Wakeup => {}
            Event::AddModel { model, spec, .. } => self.add(model, &spec),
            Event::Cancel { model, request, deadline } => {
                self.cancel(model, (deadline, request), actions);
            }
            Event::Fail { executor } => self.fail(now, executor, actions),
            Event::Join { executor, class } => self.executors.join(executor, class),
            Event::Leave { executor } => self.executors.leave(executor),
            Event::Profile { model, spec } => self.set_profile(now, model, &spec, actions),
            Event::RemoveModel { model } => self.remove(model, actions),
        }
        self.drop_hopeless(now, actions);
        self.dispatch(now, actions);
    }

    fn next_wakeup(&self) -> Time {
        self.hopeless.earliest()
    }
}

#[cfg(test)]
mod tests;
