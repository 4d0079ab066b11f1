//! TF Serving: a batch goes when it is full, or when its oldest request has waited for a timeout.
//!
//! Neither number knows of deadlines, as in the original; they are the operator's to tune. A
//! request is dropped only when its deadline has passed, so that every request leaves. Among models
//! that are ready the oldest request goes first.

use fermata_core::{Span, Time};

use super::Strategy;
use super::pool::{Lane, Model, Pool};
use crate::event::Actions;

/// A fixed timeout and a fixed largest batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TfServing {
    timeout: Span,
    max_batch: usize,
    /// When the next timeout ends that an idle executor could use.
    wakeup: Time,
}

/// Its guide has operators try 1 to 10 ms. The upper end gives the largest batches, and is still
/// what a model with the tightest SLO of the zoos (20 ms, half of it execution) can just stand.
pub(crate) const TIMEOUT: Span = Span(10_000_000);
/// Past the knee of most models of the zoos. The original has no useful default: it is the
/// operator's to tune.
pub(crate) const MAX_BATCH: usize = 32;

impl TfServing {
    /// Batches of at most `max_batch`, or of what the profile ends with, whichever is less.
    pub(crate) fn new(timeout: Span, max_batch: usize) -> Self {
        assert!(max_batch > 0, "a batch has at least one request");
        Self { timeout, max_batch, wakeup: Time::NEVER }
    }

    fn is_full(&self, model: &Model, lane: &Lane) -> bool {
        model.queue.len() >= self.max_batch.min(lane.profile.max_batch())
    }
}

impl Strategy for TfServing {
    fn dispatch(&mut self, now: Time, pool: &mut Pool, actions: &mut Actions) {
        let this = *self;
        while let Some((_, choice)) = pool.pick(|_, model, lane| {
            let oldest = model.queue.head()?.arrival;
            let ready = oldest + this.timeout <= now || this.is_full(model, lane);
            ready.then_some(oldest)
        }) {
            pool.start_at_most(now, choice, self.max_batch, actions);
        }
        self.wakeup = Time::NEVER;
        if pool.executors.any_idle() {
            for &model in pool.waiting() {
                let head = pool.model(model).and_then(|model| model.queue.head());
                let ready = head.map_or(Time::NEVER, |head| head.arrival + self.timeout);
                // Who is ready already waits for an executor of another class.
                if ready > now {
                    self.wakeup = self.wakeup.min(ready);
                }
            }
        }
    }

    fn next_wakeup(&self, _pool: &Pool) -> Time {
        self.wakeup
    }
}

#[cfg(test)]
mod tests {
    use super::super::Central;
    use super::super::script::Script;
    use super::*;
    use crate::event::Network;

    fn script(max_batch: usize) -> Script {
        let strategy = TfServing::new(Span::from_ms(10.0), max_batch);
        Script::new(Central::new(strategy, Network::default()))
    }

    #[test]
    fn a_batch_goes_after_its_timeout_or_when_it_is_full() {
        let mut script = script(3);
        script.model(0, 1.0, 5.0, 100.0).join(0);
        script.arrive(0.0, 0, 2).until(50.0);
        script.expect(&["10 x0 m0 r0 r1"]);
        script.arrive(50.0, 0, 2).arrive(51.0, 0, 2).until(90.0);
        script.expect(&["51 x0 m0 r2 r3 r4", "61 x0 m0 r5"]);
    }

    #[test]
    fn no_deadline_is_looked_at_until_it_has_passed() {
        let mut script = script(4);
        script.model(0, 1.0, 5.0, 15.0).model(1, 1.0, 20.0, 60.0).join(0);
        script.arrive(0.0, 1, 4).arrive(1.0, 0, 1).arrive(10.0, 0, 1).until(60.0);
        script.expect(&["0 x0 m1 r0 r1 r2 r3", "16.000001 drop r4", "24 x0 m0 r5"]);
    }
}
