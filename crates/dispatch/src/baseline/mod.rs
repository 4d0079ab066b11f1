//! The schedulers that ours is measured against: Clipper, Clockwork, Nexus, Orloj, Shepherd and TF
//! Serving, each after its own text, on the same events and actions.
//!
//! Only what decides is here. Their engines, model loading, caching, autoscaling and messages are
//! not: each baseline gets executors that hold every model, and a scheduler that costs no time.
//! Four of them are a [`Strategy`] over one queue per model; Nexus keeps its queues at the
//! executors, and Orloj has one for each batch size.

mod clipper;
mod clockwork;
mod executors;
mod nexus;
pub(crate) mod orloj;
mod packing;
mod pool;
#[cfg(test)]
mod script;
mod shepherd;
pub(crate) mod tf_serving;

use fermata_core::{ExecutorId, ModelId, Request, Time};

use self::pool::Pool;
use crate::event::{Actions, Dispatch, DropReason, Event, Network};

pub(crate) use self::clipper::Clipper;
pub(crate) use self::clockwork::Clockwork;
pub(crate) use self::nexus::Nexus;
pub(crate) use self::orloj::Orloj;
pub(crate) use self::shepherd::Shepherd;
pub(crate) use self::tf_serving::TfServing;

/// What is sent, and when. Its turn comes after the pool has been brought up to date.
pub(crate) trait Strategy: Send {
    /// A model was added to the pool.
    fn add_model(&mut self, _pool: &mut Pool, _model: ModelId) {}

    /// An executor is about to be relieved of its first batch, which ended now.
    fn measure(&mut self, _now: Time, _pool: &mut Pool, _executor: ExecutorId) {}

    /// An executor joined, left, failed, or finished a batch.
    fn executor_changed(&mut self, _pool: &Pool, _executor: ExecutorId) {}

    /// Sends what is to be sent now.
    fn dispatch(&mut self, now: Time, pool: &mut Pool, actions: &mut Actions);

    /// When it wants to be asked again, should nothing else happen first. Later than it was asked
    /// last.
    fn next_wakeup(&self, _pool: &Pool) -> Time {
        Time::NEVER
    }
}

/// A central scheduler: one queue per model, every executor open to every model, and a strategy.
#[derive(Clone, Debug)]
pub(crate) struct Central<S> {
    pool: Pool,
    strategy: S,
}

impl<S: Strategy> Central<S> {
    /// No models and no executors.
    pub(crate) fn new(strategy: S, network: Network) -> Self {
        Self { pool: Pool::new(network), strategy }
    }
}

impl<S: Strategy> Dispatch for Central<S> {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions) {
        let Self { pool, strategy } = self;
        match event {
            Event::Arrive { model, request, deadline, kind } => {
                let request = Request { deadline, id: request, arrival: now, kind };
                pool.push(now, model, request, DropReason::Late, actions);
            }
            Event::Done { executor } => {
                strategy.measure(now, pool, executor);
                pool.executors.done(now, executor);
                strategy.executor_changed(pool, executor);
            }
            // They do not hold to the last moment.
            Event::Late { .. } | Event::Wakeup => {}
            Event::AddModel { model, spec, .. } => {
                pool.add(model, &spec);
                strategy.add_model(pool, model);
            }
            Event::Cancel { model, request, deadline } => {
                pool.cancel(model, (deadline, request), actions);
            }
            Event::Fail { executor } => {
                pool.fail(now, executor, actions);
                strategy.executor_changed(pool, executor);
            }
            Event::Join { executor, class } => {
                pool.executors.join(executor, class);
                strategy.executor_changed(pool, executor);
            }
            Event::Leave { executor } => {
                pool.executors.leave(executor);
                strategy.executor_changed(pool, executor);
            }
            Event::Profile { model, spec } => {
                pool.set_profile(model, &spec);
                strategy.add_model(pool, model);
            }
            Event::RemoveModel { model } => pool.remove(model, actions),
        }
        pool.drop_hopeless(now, actions);
        strategy.dispatch(now, pool, actions);
        pool.grown.clear();
    }

    fn next_wakeup(&self) -> Time {
        self.pool.next_drop().min(self.strategy.next_wakeup(&self.pool))
    }
}
