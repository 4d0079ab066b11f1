//! Any sequence of events: every request leaves once, no executor has too many batches, no wakeup
//! is in vain.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fermata_core::{
    ClassId, ExecutorId, Growth, KindId, ModelId, Profile, RequestId, Span, Spread, Time,
};
use fermata_dispatch::{Action, Actions, BATCHES_MAX, Dispatch, Event, ModelSpec, Network, Policy};
use proptest::prelude::*;

const POLICIES: [&str; 14] = [
    "clipper",
    "clockwork",
    "deferred",
    "deferred-prefix",
    "eager",
    "fermata",
    "fermata:fixed",
    "fermata:release",
    "fermata:release:fixed",
    "nexus",
    "orloj",
    "shepherd",
    "tfserving:3ms,4",
    "timeout:5ms",
];
const MODELS: u32 = 3;
const EXECUTORS: u32 = 4;

/// What a script says; it is skipped where it makes no sense, such as leaving twice.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u32),
    Arrive(u32, u8),
    Cancel(u16),
    Fail(u32),
    Join(u32, u16),
    Late(u8),
    Leave(u32),
    Profile(u32, u32),
    Remove(u32),
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..MODELS).prop_map(Step::Add),
        20 => (0..MODELS, 0u8..80).prop_map(|(model, ms)| Step::Arrive(model, ms)),
        2 => any::<u16>().prop_map(Step::Cancel),
        1 => (0..EXECUTORS).prop_map(Step::Fail),
        3 => (0..EXECUTORS, 0u16..2).prop_map(|(executor, class)| Step::Join(executor, class)),
        2 => (1u8..30).prop_map(Step::Late),
        1 => (0..EXECUTORS).prop_map(Step::Leave),
        1 => (0..MODELS, 0..MODELS).prop_map(|(model, like)| Step::Profile(model, like)),
        1 => (0..MODELS).prop_map(Step::Remove),
        10 => (0u8..20).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn every_request_leaves_once(steps in prop::collection::vec(step(), 1..150), far in 0..3) {
        for name in POLICIES {
            let network = match far {
                0 => Network::default(),
                1 => Network { ctrl: Span(100_000), data: Span(50_000), resp: Span(2_000_000) },
                // Farther away than most batches are long.
                _ => Network { ctrl: Span(8_000_000), data: Span(10_000), resp: Span::ZERO },
            };
            let mut world = World::new(name, network);
            steps.iter().for_each(|&step| world.step(step));
            world.run_until(Time::from_ms(100_000.0));
            prop_assert!(world.waiting.is_empty(), "{name} forgot {:?}", world.waiting);
            prop_assert!(world.executors.values().all(|executor| executor.batches.is_empty()));
            prop_assert_eq!(world.dispatcher.next_wakeup(), Time::NEVER);
        }
    }
}

struct World {
    name: &'static str,
    dispatcher: Box<dyn Dispatch>,
    now: Time,
    /// How much too late wakeups come.
    late: Span,
    models: BTreeSet<u32>,
    executors: BTreeMap<u32, Executor>,
    /// Who waits, with model and deadline.
    waiting: BTreeMap<RequestId, (ModelId, Time)>,
    requests: u64,
}

#[derive(Default)]
struct Executor {
    leaving: bool,
    ends: Option<Time>,
    batches: VecDeque<Batch>,
}

struct Batch {
    start: Time,
    latency: Span,
    model: ModelId,
    requests: Vec<(RequestId, Time)>,
}

impl World {
    fn new(name: &'static str, network: Network) -> Self {
        let dispatcher = name.parse::<Policy>().unwrap().dispatcher(network);
        Self {
            name,
            dispatcher,
            now: Time::START,
            late: Span::ZERO,
            models: BTreeSet::new(),
            executors: BTreeMap::new(),
            waiting: BTreeMap::new(),
            requests: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Add(model) if self.models.insert(model) => {
                self.handle(Event::AddModel {
                    model: ModelId(model),
                    spec: spec(model),
                    gap: None,
                });
            }
            Step::Arrive(model, ms) => {
                let deadline = self.now + Span::from_ms(f64::from(ms));
                let (model, request) = (ModelId(model), RequestId(self.requests));
                self.requests += 1;
                self.waiting.insert(request, (model, deadline));
                self.handle(Event::Arrive {
                    model,
                    request,
                    deadline,
                    kind: KindId(request.0 as u16 % 3),
                });
            }
            Step::Cancel(pick) => {
                let at = usize::from(pick) % self.waiting.len().max(1);
                if let Some((&request, &(model, deadline))) = self.waiting.iter().nth(at) {
                    self.handle(Event::Cancel { model, request, deadline });
                    assert!(!self.waiting.contains_key(&request), "a cancelled request waits");
                }
            }
            Step::Fail(executor) => {
                if let Some(state) = self.executors.remove(&executor) {
                    state.batches.into_iter().for_each(|batch| self.bring_back(batch));
                    self.handle(Event::Fail { executor: ExecutorId(executor) });
                }
            }
            Step::Join(executor, class) if !self.executors.contains_key(&executor) => {
                self.executors.insert(executor, Executor::default());
                let class = ClassId(class);
                self.handle(Event::Join { executor: ExecutorId(executor), class });
            }
            // From now on wakeups come late, as on a busy machine.
            Step::Late(ms) => {
                self.late = Span::from_ms(f64::from(ms) / 5.0);
                if ms % 2 == 0 {
                    self.handle(Event::Late { by: self.late });
                }
            }
            Step::Leave(executor) => {
                let Some(state) = self.executors.get_mut(&executor) else { return };
                if !std::mem::replace(&mut state.leaving, true) {
                    if state.batches.is_empty() {
                        self.executors.remove(&executor);
                    }
                    self.handle(Event::Leave { executor: ExecutorId(executor) });
                }
            }
            // A model becomes as fast as another one is at first.
            Step::Profile(model, like) => {
                self.handle(Event::Profile { model: ModelId(model), spec: spec(like) });
            }
            Step::Remove(model) if self.models.remove(&model) => {
                self.handle(Event::RemoveModel { model: ModelId(model) });
                assert!(self.waiting.values().all(|&(other, _)| other != ModelId(model)));
            }
            Step::Wait(ms) => self.run_until(self.now + Span::from_ms(f64::from(ms))),
            Step::Add(_) | Step::Join(..) | Step::Remove(_) => {}
        }
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let ends = self.executors.iter().filter_map(|(&id, state)| Some((state.ends?, id)));
            let (done, executor) = ends.min().unwrap_or((Time::NEVER, 0));
            let due = self.dispatcher.next_wakeup();
            assert!(due >= self.now || self.late > Span::ZERO, "a moment was slept through");
            let wakeup = due.max(self.now) + self.late;
            let next = done.min(wakeup);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            if done > wakeup {
                self.handle(Event::Wakeup);
                assert!(
                    self.dispatcher.next_wakeup() > self.now,
                    "{} wakes for nothing at {:?}",
                    self.name,
                    self.now
                );
                continue;
            }
            let state = self.executors.get_mut(&executor).unwrap();
            state.batches.pop_front();
            state.ends = state.batches.front().map(|next| next.start.max(done) + next.latency);
            if state.leaving && state.batches.is_empty() {
                self.executors.remove(&executor);
            }
            self.handle(Event::Done { executor: ExecutorId(executor) });
        }
    }

    fn handle(&mut self, event: Event) {
        let mut actions = Actions::default();
        self.dispatcher.handle(self.now, event, &mut actions);
        for action in &actions.list {
            match *action {
                Action::Drop { request, .. } => {
                    assert!(
                        self.waiting.remove(&request.id).is_some(),
                        "{} left twice",
                        request.id
                    );
                }
                Action::Limit { model, by } => assert_ne!(model, by),
                Action::Preempt { executor } => {
                    let state = self.executors.get_mut(&executor.0).unwrap();
                    assert!(state.batches.len() == 1 && !state.leaving);
                    state.ends = None;
                    let batch = state.batches.pop_front().unwrap();
                    self.bring_back(batch);
                }
                Action::Run { executor, model, start, latency, first, size } => {
                    assert!(start >= self.now);
                    let mut requests = Vec::new();
                    for request in actions.batch(first, size) {
                        assert!(self.waiting.remove(&request.id).is_some(), "{}", request.id);
                        requests.push((request.id, request.deadline));
                    }
                    let state = self.executors.get_mut(&executor.0).unwrap();
                    assert!(!state.leaving && !requests.is_empty());
                    assert!(state.batches.len() < BATCHES_MAX);
                    state.ends = state.ends.or(Some(start + latency));
                    state.batches.push_back(Batch { start, latency, model, requests });
                }
            }
        }
    }

    fn bring_back(&mut self, batch: Batch) {
        for (id, deadline) in batch.requests {
            self.waiting.insert(id, (batch.model, deadline));
        }
    }
}

/// Model 1 runs on the first class only, model 2 on the second only. How long model 0 takes depends
/// on the request.
fn spec(model: u32) -> Arc<ModelSpec> {
    let slo = Span::from_ms(40.0);
    if model == 0 {
        let profiles = [1.0, 1.6].map(|slower| Some(Arc::new(uncertain(slower))));
        return Arc::new(ModelSpec::new(slo, profiles.into()));
    }
    let profile = |beta: f64| {
        Arc::new(Profile::linear(Span::from_ms(1.0), Span::from_ms(beta), slo).unwrap())
    };
    let profiles = vec![(model != 2).then(|| profile(5.0)), (model != 1).then(|| profile(9.0))];
    Arc::new(ModelSpec::new(slo, profiles))
}

/// Short requests of one kind, long ones of another, and none of a third that come nevertheless.
fn uncertain(slower: f64) -> Profile {
    let runs = |from: f64, to: f64| {
        let at = move |step: u32| from + (to - from) * f64::from(step) / 20.0;
        (0..=20).map(|step| Span::from_ms(slower * at(step))).collect()
    };
    let growth = Growth { fixed: 5e5, base: 0.8, each: 0.2 };
    let measured = vec![(0.7, runs(3.0, 6.0)), (0.3, runs(8.0, 20.0))];
    Profile::spread_out(Arc::new(Spread::new(&measured, growth, 6).unwrap()))
}
