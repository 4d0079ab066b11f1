//! Shepherd's Flex: the largest batch goes first, and a much larger one stops a smaller one.
//!
//! Each model has one candidate: from its most urgent request on, as many as that one's deadline
//! allows. When an executor is free the largest candidate goes, at once. When none is free, a
//! candidate that just grew preempts the smallest running batch if it is [`PREEMPTION`] times as
//! large; what was stopped is queued again and starts from nothing. Its planner (Herd), which
//! groups models and GPUs, is not here: the pool is one group.

use std::cmp::Reverse;

use fermata_core::{ClassId, ExecutorId, ModelId, Time};

use super::Strategy;
use super::pool::Pool;
use crate::event::{Action, Actions};
use crate::min_tree::MinTree;

/// A batch is stopped for one that is at least this many hundredths as large: 3.03, the authors'
/// value.
const PREEMPTION: u64 = 303;

/// The sizes of what runs: what else it needs to know is in the pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shepherd {
    /// By class, the size of each executor's batch, as a moment for the tree's sake.
    running: Vec<MinTree>,
}

impl Shepherd {
    fn start(
        &mut self,
        now: Time,
        pool: &mut Pool,
        (model, executor): (ModelId, ExecutorId),
        size: usize,
        actions: &mut Actions,
    ) {
        pool.start_at_most(now, (model, executor), size, actions);
        self.executor_changed(pool, executor);
    }

    /// The executor whose batch the candidate of a model is to replace, and the candidate's size.
    fn victim(&self, now: Time, pool: &Pool, model: ModelId) -> Option<(ExecutorId, usize)> {
        let state = pool.model(model)?;
        let victims = (0..).zip(&self.running).filter_map(|(class, running)| {
            let size = state.fitting(now, state.lane(ClassId(class))?);
            let smallest = running.earliest();
            // An empty tree says never, which no batch is three times as large as.
            let worth = size as u64 * 100 >= smallest.0.saturating_mul(PREEMPTION);
            Some((running.first()?, size)).filter(|_| worth)
        });
        let (executor, size) = victims.max_by_key(|&(executor, size)| (size, Reverse(executor)))?;
        Some((ExecutorId(executor as u32), size))
    }
}

impl Strategy for Shepherd {
    fn add_model(&mut self, pool: &mut Pool, model: ModelId) {
        if let Some(shortest) = pool.model(model).map(|state| state.shortest()) {
            pool.set_margin(model, shortest);
        }
    }

    fn executor_changed(&mut self, pool: &Pool, executor: ExecutorId) {
        let state = pool.executors.get(executor).filter(|state| !state.leaving);
        let classes = pool.executors.classes().count();
        if classes > self.running.len() {
            self.running.resize_with(classes, MinTree::default);
        }
        for (class, running) in (0..).zip(&mut self.running) {
            let here = state.is_some_and(|state| state.class == ClassId(class));
            let batch = pool.executors.running(executor).filter(|_| here);
            running.grow(executor.index() + 1);
            running.set(
                executor.index(),
                batch.map_or(Time::NEVER, |(_, requests)| Time(requests.len() as u64)),
            );
        }
    }

    fn dispatch(&mut self, now: Time, pool: &mut Pool, actions: &mut Actions) {
        while let Some((Reverse(size), choice)) = pool.pick(|_, model, lane| {
            let size = model.fitting(now, lane);
            (size > 0).then_some(Reverse(size))
        }) {
            self.start(now, pool, choice, size, actions);
        }
        let mut at = 0;
        while let Some(&model) = pool.grown.get(at) {
            at += 1;
            while let Some((executor, size)) = self.victim(now, pool, model) {
                let (stopped, requests) = pool.executors.preempt(executor);
                actions.list.push(Action::Preempt { executor });
                // Only then are the stopped ones queued: the candidate was formed without them.
                self.start(now, pool, (model, executor), size, actions);
                pool.come_back(now, stopped, requests, actions);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Central;
    use super::super::script::Script;
    use super::*;
    use crate::event::Network;

    fn script() -> Script {
        Script::new(Central::new(Shepherd::default(), Network::default()))
    }

    #[test]
    fn the_largest_candidate_goes_first() {
        let mut script = script();
        script.model(0, 1.0, 5.0, 50.0).model(1, 1.0, 5.0, 50.0).join(0);
        script.arrive(0.0, 0, 1).arrive(1.0, 0, 1).arrive(2.0, 1, 2).until(40.0);
        script.expect(&["0 x0 m0 r0", "6 x0 m1 r2 r3", "13 x0 m0 r1"]);
    }

    #[test]
    fn a_candidate_three_times_as_large_preempts() {
        let mut script = script();
        script.model(0, 1.0, 5.0, 50.0).model(1, 1.0, 5.0, 50.0).join(0);
        script.arrive(0.0, 0, 1).arrive(1.0, 1, 3);
        script.expect(&["0 x0 m0 r0"]);
        script.arrive(2.0, 1, 1).until(40.0);
        script.expect(&["2 preempt x0", "2 x0 m1 r1 r2 r3 r4", "11 x0 m0 r0"]);
    }

    #[test]
    fn what_is_preempted_too_late_is_dropped() {
        let mut script = script();
        script.model(0, 1.0, 5.0, 10.0).model(1, 1.0, 5.0, 50.0).join(0);
        script.arrive(0.0, 0, 1).arrive(4.5, 1, 4).until(40.0);
        script.expect(&["0 x0 m0 r0", "4.5 preempt x0", "4.5 x0 m1 r1 r2 r3 r4", "4.5 drop r0"]);
    }
}
