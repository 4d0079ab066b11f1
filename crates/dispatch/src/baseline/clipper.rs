//! Clipper: batches as large as have met the objective lately, and a request is dropped only when
//! its deadline has passed (Nexus 4.3 calls this lazy dropping).
//!
//! Its batch size knows neither a profile nor a deadline: it grows by one with every full batch
//! that was in time, and falls by a tenth when one was late. Among models the oldest request goes
//! first. Requests run that then end late: nothing here looks ahead.

use fermata_core::{ExecutorId, ModelId, Time};

use super::Strategy;
use super::pool::{Lane, Model, Pool};
use crate::event::Actions;

/// The largest batch of each model, as learnt so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clipper {
    limits: Vec<usize>,
}

impl Strategy for Clipper {
    fn add_model(&mut self, _pool: &mut Pool, model: ModelId) {
        if model.index() >= self.limits.len() {
            self.limits.resize(model.index() + 1, 1);
        }
        self.limits[model.index()] = 1;
    }

    fn measure(&mut self, now: Time, pool: &mut Pool, executor: ExecutorId) {
        let Some((model, requests)) = pool.executors.running(executor) else { return };
        let Some(state) = pool.model(model) else { return };
        let limit = &mut self.limits[model.index()];
        if requests.iter().any(|request| now > state.due(request)) {
            *limit = (*limit * 9 / 10).max(1);
        } else if requests.len() >= *limit {
            // A batch that was not full says nothing about a larger one.
            let largest = state.lanes.iter().flatten().map(|lane| lane.profile.max_batch()).max();
            *limit = (*limit + 1).min(largest.unwrap_or(1));
        }
    }

    fn dispatch(&mut self, now: Time, pool: &mut Pool, actions: &mut Actions) {
        let oldest = |_, model: &Model, _: &Lane| Some(model.queue.head()?.arrival);
        while let Some((_, choice)) = pool.pick(oldest) {
            pool.start_at_most(now, choice, self.limits[choice.0.index()], actions);
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
        Script::new(Central::new(Clipper::default(), Network::default()))
    }

    #[test]
    fn the_batch_grows_by_one_with_every_full_batch_in_time() {
        let mut script = script();
        script.model(0, 1.0, 5.0, 100.0).join(0);
        script.arrive(0.0, 0, 7).until(50.0);
        script.expect(&["0 x0 m0 r0", "6 x0 m0 r1 r2", "13 x0 m0 r3 r4 r5", "21 x0 m0 r6"]);
    }

    #[test]
    fn a_late_batch_costs_a_tenth_and_only_the_expired_are_dropped() {
        let mut script = script();
        script.model(0, 1.0, 9.0, 21.0).join(0);
        script.arrive(0.0, 0, 5).until(60.0);
        // The second batch ends at 21, in time; by then the rest is at its deadline, runs, and is
        // late.
        script.expect(&["0 x0 m0 r0", "10 x0 m0 r1 r2", "21 x0 m0 r3 r4"]);
        script.arrive(60.0, 0, 4).until(100.0);
        // A tenth less than three is two.
        script.expect(&["60 x0 m0 r5", "70 x0 m0 r6 r7", "81 x0 m0 r8"]);
    }

    #[test]
    fn the_oldest_request_goes_first_and_the_expired_go() {
        let mut script = script();
        script.model(0, 1.0, 9.0, 15.0).model(1, 1.0, 9.0, 30.0).join(0);
        script.arrive(0.0, 1, 1).arrive(1.0, 0, 2).arrive(2.0, 1, 1).until(40.0);
        script.expect(&["0 x0 m1 r0", "10 x0 m0 r1", "16.000001 drop r2", "20 x0 m1 r3"]);
    }
}
