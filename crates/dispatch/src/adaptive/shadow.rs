//! A copy of a dispatcher in which requests are played that could come: its batches take exactly as
//! long as their profiles say, and nobody is answered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fermata_core::{ExecutorId, RequestId, Time};

use super::arrivals::Arrival;
use crate::dispatcher::Dispatcher;
use crate::event::{Action, Actions, Dispatch, Event};
use crate::tuning::Learned;
use crate::variant::Variant;

/// Ids of played requests begin here, far from those of real ones.
const FIRST_ID: u64 = 1 << 63;

/// A dispatcher and the executors that it seems to have.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    dispatcher: Dispatcher,
    /// When batches end, and on which executor.
    ends: BinaryHeap<Reverse<(Time, ExecutorId)>>,
    actions: Actions,
    /// By model, how many requests were dropped of those from this one on.
    lost: Vec<u32>,
    first: RequestId,
    played: u64,
}

impl Shadow {
    /// A copy of `live` as it is now, under the rules of `variant` and with what it learned under
    /// them before. The losses of the first `warm_up` requests do not count.
    pub(super) fn new(
        live: &Dispatcher,
        now: Time,
        variant: &Variant,
        learned: &[Learned],
        warm_up: usize,
    ) -> Self {
        let mut dispatcher = live.clone();
        dispatcher.adopt(now, variant, learned);
        let ends = live.ends().map(|(at, executor)| Reverse((at.max(now), executor)));
        Self {
            ends: ends.collect(),
            lost: vec![0; dispatcher.models()],
            first: RequestId(FIRST_ID + warm_up as u64),
            actions: Actions::default(),
            dispatcher,
            played: 0,
        }
    }

    /// What each model learned of its losses.
    pub(super) fn learned(&self) -> Vec<Learned> {
        self.dispatcher.learned()
    }

    /// By model, how many requests were dropped so far.
    pub(super) fn lost(&self) -> &[u32] {
        &self.lost
    }

    /// The next request comes. Before it, what else is due happens.
    pub(super) fn play(&mut self, arrival: &Arrival) {
        self.advance(arrival.at);
        let Arrival { at, slack, model, kind } = *arrival;
        let request = RequestId(FIRST_ID + self.played);
        self.played += 1;
        self.apply(at, Event::Arrive { model, request, deadline: at + slack, kind });
    }

    fn advance(&mut self, until: Time) {
        loop {
            let wakeup = self.dispatcher.next_wakeup();
            let end = self.ends.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
            if end <= until && end <= wakeup {
                if let Some(Reverse((at, executor))) = self.ends.pop() {
                    self.apply(at, Event::Done { executor });
                }
            } else if wakeup < until {
                self.apply(wakeup, Event::Wakeup);
            } else {
                return;
            }
        }
    }

    fn apply(&mut self, now: Time, event: Event) {
        self.dispatcher.handle(now, event, &mut self.actions);
        for action in &self.actions.list {
            match *action {
                Action::Drop { model, request, .. } => {
                    self.lost[model.index()] += u32::from(request.id >= self.first);
                }
                Action::Run { executor, start, latency, .. } => {
                    self.ends.push(Reverse((start + latency, executor)));
                }
                Action::Limit { .. } => {}
                Action::Preempt { .. } => unreachable!("only Shepherd preempts"),
            }
        }
        self.actions.clear();
    }
}
