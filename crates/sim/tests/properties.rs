//! Any sequence of events keeps the invariants: no panic, no livelock, nobody lost.
//!
//! The world here is rougher than the simulator's: batches end early and late, deadlines are random
//! or past, and executors and models come and go in the middle of everything.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Profile, RequestId, Span, Time};
use fermata_dispatch::{Action, Actions, Dispatch, Event, ModelSpec, Network, Policy};
use fermata_sim::{Checker, Log, Observer, Promises, Run};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const POLICIES: [&str; 10] = [
    "deferred",
    "deferred-prefix",
    "eager",
    "eager-prefix",
    "fermata",
    "fermata:release",
    "orloj",
    "timeout:10%",
    "timeout:3ms-prefix",
    "timeout:40%-prefix",
];
const MODELS: u32 = 3;
const EXECUTORS: u32 = 4;
/// Far more steps than any sequence needs.
const STEPS_MAX: usize = 20_000;

/// One thing that happens, in small numbers that shrink well.
#[derive(Clone, Debug)]
enum Step {
    Add(u32),
    Arrive {
        model: u32,
        slack: i32,
    },
    Cancel {
        back: usize,
    },
    Fail(u32),
    Join {
        executor: u32,
        class: u16,
    },
    Leave(u32),
    Remove(u32),
    /// What starts from now on takes this many percent of its planned time.
    Speed(u64),
    Wake,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (0..MODELS, -3i32..60).prop_map(|(model, slack)| Step::Arrive { model, slack }),
        3 => (0usize..6).prop_map(|back| Step::Cancel { back }),
        1 => (0..EXECUTORS).prop_map(Step::Fail),
        3 => (0..EXECUTORS, 0u16..2).prop_map(|(executor, class)| Step::Join { executor, class }),
        1 => (0..EXECUTORS).prop_map(Step::Leave),
        2 => (0..MODELS).prop_map(Step::Add),
        1 => (0..MODELS).prop_map(Step::Remove),
        1 => prop_oneof![Just(100u64), 50u64..200].prop_map(Step::Speed),
        1 => Just(Step::Wake),
    ]
}

fn network() -> impl Strategy<Value = Network> {
    let us = |max: u64| (0..=max).prop_map(|us| Span(us * 1000));
    prop_oneof![
        Just(Network::default()),
        (us(3000), us(1000), us(3000)).prop_map(|(ctrl, data, resp)| Network { ctrl, data, resp }),
        // Round numbers meet more often.
        (0u64..3, 0u64..3, 0u64..2).prop_map(|(ctrl, data, resp)| {
            let ms = |n| Span(n * 1_000_000);
            Network { ctrl: ms(ctrl), data: ms(data), resp: ms(resp) }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties.regressions"),
        ))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_events_keep_the_invariants(
        policy in prop::sample::select(&POLICIES[..]),
        network in network(),
        classes in 1u16..3,
        steps in prop::collection::vec((0u64..20, step()), 1..250),
    ) {
        let play = || Rough::new(policy, network, classes).play(&steps);
        prop_assert_eq!(play(), play());
    }
}

/// A dispatcher, a checker, and a world that does what it is told.
struct Rough {
    dispatcher: Box<dyn Dispatch>,
    checker: Checker,
    actions: Actions,
    now: Time,
    classes: u16,
    speed: u64,
    models: BTreeMap<ModelId, Arc<ModelSpec>>,
    executors: BTreeMap<ExecutorId, Executor>,
    sent: Vec<Event>,
}

#[derive(Default)]
struct Executor {
    leaving: bool,
    batches: VecDeque<(Run, Span)>,
}

impl Rough {
    fn new(policy: &str, network: Network, classes: u16) -> Self {
        let keeps_all = policy.ends_with("-prefix") || policy == "orloj";
        let promises = if keeps_all { Promises::ALL } else { Promises::EARLY_DROP };
        let policy: Policy = policy.parse().unwrap();
        Self {
            dispatcher: policy.dispatcher(network),
            checker: Checker::new(network, promises).recording(),
            actions: Actions::default(),
            now: Time::START,
            classes,
            speed: 100,
            models: BTreeMap::new(),
            executors: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    fn play(mut self, steps: &[(u64, Step)]) -> Log {
        for model in 0..MODELS {
            self.take(&Step::Add(model));
        }
        self.take(&Step::Join { executor: 0, class: 0 });
        self.take(&Step::Join { executor: 1, class: 1 });
        for (gap, step) in steps {
            // Half the gaps are none, and quarters of a millisecond meet the deadlines now and
            // then.
            let at = self.now + Span(gap.saturating_sub(9) * 250_000);
            self.advance(at);
            self.now = at;
            self.take(step);
        }
        self.advance(Time::NEVER);
        self.checker.end()
    }

    /// Everything that happens by itself until then.
    fn advance(&mut self, until: Time) {
        for _ in 0..STEPS_MAX {
            let ends = |(&id, state): (&ExecutorId, &Executor)| {
                Some((state.batches.front()?.0.finish, id))
            };
            let done = self.executors.iter().filter_map(ends).min();
            let (done_at, wakeup) =
                (done.map_or(Time::NEVER, |d| d.0), self.dispatcher.next_wakeup());
            let next = done_at.min(wakeup);
            if next == Time::NEVER || next > until {
                return;
            }
            assert!(next >= self.now, "asked to be woken in the past");
            self.now = next;
            match done.filter(|_| done_at == next) {
                Some((_, executor)) => self.done(executor),
                None => self.handle(Event::Wakeup),
            }
        }
        panic!("no end of it at {:?}", self.now);
    }

    fn done(&mut self, executor: ExecutorId) {
        let state = self.executors.get_mut(&executor).unwrap();
        let (run, _) = state.batches.pop_front().unwrap();
        if let Some((next, latency)) = state.batches.front_mut() {
            next.start = next.start.max(run.finish);
            next.finish = next.start + *latency;
        }
        if state.leaving && state.batches.is_empty() {
            self.executors.remove(&executor);
        }
        self.checker.finished(&run);
        self.handle(Event::Done { executor });
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Add(model) => {
                let id = ModelId(model);
                if self.models.contains_key(&id) {
                    return;
                }
                let spec = Arc::new(spec(model, self.classes));
                self.models.insert(id, spec.clone());
                self.handle(Event::AddModel { model: id, spec, gap: None });
            }
            Step::Arrive { model, slack } => {
                let model = ModelId(model);
                let (request, slack_ns) = (RequestId(self.sent.len() as u64), 500_000 * slack);
                let deadline = Time(self.now.0.saturating_add_signed(slack_ns.into()));
                let event = Event::Arrive { model, request, deadline, kind: KindId(0) };
                self.sent.push(event.clone());
                self.handle(event);
            }
            Step::Cancel { back } => {
                let Some(at) = self.sent.len().checked_sub(back + 1) else { return };
                if let Event::Arrive { model, request, deadline, .. } = self.sent[at] {
                    self.handle(Event::Cancel { model, request, deadline });
                }
            }
            Step::Fail(executor) => {
                let executor = ExecutorId(executor);
                if self.executors.remove(&executor).is_some() {
                    self.handle(Event::Fail { executor });
                }
            }
            Step::Join { executor, class } => {
                let (executor, class) = (ExecutorId(executor), ClassId(class % self.classes));
                if let Entry::Vacant(place) = self.executors.entry(executor) {
                    place.insert(Executor::default());
                    self.handle(Event::Join { executor, class });
                }
            }
            Step::Leave(executor) => {
                let executor = ExecutorId(executor);
                match self.executors.get_mut(&executor) {
                    Some(state) if !state.leaving => {
                        state.leaving = true;
                        if state.batches.is_empty() {
                            self.executors.remove(&executor);
                        }
                        self.handle(Event::Leave { executor });
                    }
                    _ => {}
                }
            }
            Step::Remove(model) => {
                let model = ModelId(model);
                if self.models.remove(&model).is_some() {
                    self.handle(Event::RemoveModel { model });
                }
            }
            Step::Speed(percent) => self.speed = percent,
            Step::Wake => self.handle(Event::Wakeup),
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        self.checker.event(now, &event);
        self.dispatcher.handle(now, event, &mut self.actions);
        for action in &self.actions.list {
            let mut requests = &[][..];
            if let Action::Run { executor, model, start, latency, first, size } = *action {
                requests = self.actions.batch(first, size);
                let latency = Span(latency.0 * self.speed / 100);
                let state = self.executors.get_mut(&executor).unwrap();
                // A batch behind another one starts once that has ended: see `done`.
                let finish = if state.batches.is_empty() { start + latency } else { Time::NEVER };
                let run = Run { executor, model, start, finish, requests: requests.to_vec() };
                state.batches.push_back((run, latency));
            }
            self.checker.action(now, action, requests);
        }
        self.actions.clear();
    }
}

/// Three models of different shape; the last one runs on the second class alone, where there is
/// one.
fn spec(model: u32, classes: u16) -> ModelSpec {
    let ms = Span::from_ms;
    let slo = ms([12.0, 25.0, 18.0][model as usize]);
    let profile = |class: u16| {
        let slower = if class == 0 { 1.0 } else { 1.5 };
        let (alpha, beta) = [(1.0, 5.0), (0.25, 8.0), (4.0, 0.5)][model as usize];
        Profile::linear(ms(alpha * slower), ms(beta * slower), slo).unwrap()
    };
    let on = |class| (classes == 1 || model != 2 || class == 1).then(|| Arc::new(profile(class)));
    ModelSpec::new(slo, (0..classes).map(on).collect())
}
