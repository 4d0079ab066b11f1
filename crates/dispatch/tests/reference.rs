//! Symphony's algorithm 1, slow and obvious, beside the real dispatcher: the same events must give
//! the same actions, one for one.
//!
//! The reference keeps no candidate, no timer and no tree. At every step it looks at every request
//! of every model and at every executor. One class, no network, prefix gathering.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Profile, Request, RequestId, Span, Time};
use fermata_dispatch::{Action, Actions, Dispatch, DropReason, Event, ModelSpec, Network, Policy};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// The obvious dispatcher.
struct Reference {
    deferred: bool,
    models: BTreeMap<ModelId, Arc<ModelSpec>>,
    waiting: Vec<(ModelId, Request)>,
    idle: BTreeSet<ExecutorId>,
    /// What runs, so that it can come back.
    running: BTreeMap<ExecutorId, (ModelId, Vec<Request>)>,
    leaving: BTreeSet<ExecutorId>,
}

/// `(B, exec, latest)` of algorithm 1.
struct Candidate {
    batch: Vec<Request>,
    exec: Time,
    latest: Time,
}

impl Reference {
    fn new(deferred: bool) -> Self {
        Self {
            deferred,
            models: BTreeMap::new(),
            waiting: Vec::new(),
            idle: BTreeSet::new(),
            running: BTreeMap::new(),
            leaving: BTreeSet::new(),
        }
    }

    fn profile(&self, model: ModelId) -> &Profile {
        self.models[&model].profiles[0].as_ref().expect("one class runs everything")
    }

    /// The model's requests by deadline.
    fn queue(&self, model: ModelId) -> Vec<Request> {
        let own = self.waiting.iter().filter(|(of, _)| *of == model);
        let mut queue: Vec<Request> = own.map(|(_, request)| *request).collect();
        queue.sort_by_key(Request::key);
        queue
    }

    /// UpdateCandidate, lines 1 to 8.
    fn candidate(&self, now: Time, model: ModelId) -> Option<Candidate> {
        let (queue, profile) = (self.queue(model), self.profile(model));
        let deadline = queue.first()?.deadline;
        let mut size = 0;
        while size < queue.len() && now + profile.latency(size + 1) <= deadline {
            size += 1;
        }
        if size == 0 {
            return None;
        }
        let frontrun = deadline - profile.latency(size + 1);
        let exec = if self.deferred { frontrun.max(now) } else { now };
        let latest = deadline - profile.latency(size);
        Some(Candidate { batch: queue[..size].to_vec(), exec, latest })
    }

    fn is_hopeless(&self, now: Time, model: ModelId, request: &Request) -> bool {
        now + self.profile(model).latency(1) > request.deadline
    }

    fn forget(&mut self, request: RequestId) -> Option<(ModelId, Request)> {
        let at = self.waiting.iter().position(|(_, waiting)| waiting.id == request)?;
        Some(self.waiting.remove(at))
    }

    fn enter(
        &mut self,
        now: Time,
        model: ModelId,
        request: Request,
        why: DropReason,
        out: &mut Actions,
    ) {
        if !self.models.contains_key(&model) {
            out.drop(model, request, DropReason::NotLoaded);
        } else if self.is_hopeless(now, model, &request) {
            out.drop(model, request, why);
        } else {
            self.waiting.push((model, request));
        }
    }

    fn drop_hopeless(&mut self, now: Time, out: &mut Actions) {
        for model in self.models.keys().copied().collect::<Vec<_>>() {
            for request in self.queue(model) {
                if self.is_hopeless(now, model, &request) {
                    self.forget(request.id);
                    out.drop(model, request, DropReason::Overload);
                }
            }
        }
    }

    /// Lines 18 to 23: the lowest idle executor, and the ready candidate that must go first.
    fn dispatch(&mut self, now: Time, out: &mut Actions) -> bool {
        let Some(&executor) = self.idle.first() else { return false };
        let candidates = self.models.keys().filter_map(|&m| Some((m, self.candidate(now, m)?)));
        let ready = candidates.filter(|(_, candidate)| candidate.exec <= now);
        let Some((model, candidate)) = ready.min_by_key(|(m, candidate)| (candidate.latest, *m))
        else {
            return false;
        };
        let first = out.requests.len();
        out.requests.extend_from_slice(&candidate.batch);
        let latency = self.profile(model).latency(candidate.batch.len());
        out.run(executor, model, now, latency, first);
        for request in &candidate.batch {
            self.forget(request.id);
        }
        self.idle.remove(&executor);
        self.running.insert(executor, (model, candidate.batch));
        true
    }
}

/// The two doors of a dispatcher; the second one is told the time, since nothing is remembered.
impl Reference {
    fn handle(&mut self, now: Time, event: Event, out: &mut Actions) {
        match event {
            Event::AddModel { model, spec, .. } => _ = self.models.insert(model, spec),
            Event::Arrive { model, request, deadline, kind } => {
                let request = Request { deadline, id: request, arrival: now, kind };
                self.enter(now, model, request, DropReason::Late, out);
            }
            Event::Cancel { request, .. } => {
                if let Some((model, request)) = self.forget(request) {
                    out.drop(model, request, DropReason::Cancelled);
                }
            }
            Event::Done { executor } => {
                self.running.remove(&executor);
                if !self.leaving.contains(&executor) {
                    self.idle.insert(executor);
                }
            }
            Event::Fail { executor } => {
                self.idle.remove(&executor);
                if let Some((model, batch)) = self.running.remove(&executor) {
                    for request in batch {
                        self.enter(now, model, request, DropReason::Overload, out);
                    }
                }
            }
            Event::Join { executor, .. } => {
                self.leaving.remove(&executor);
                self.idle.insert(executor);
            }
            Event::Leave { executor } => {
                self.idle.remove(&executor);
                self.leaving.insert(executor);
            }
            Event::Profile { model, spec } => {
                if let Some(known) = self.models.get_mut(&model) {
                    *known = spec;
                }
            }
            Event::RemoveModel { model } => {
                for request in self.queue(model) {
                    self.forget(request.id);
                    out.drop(model, request, DropReason::NotLoaded);
                }
                self.models.remove(&model);
            }
            Event::Late { .. } => unreachable!("the reference wakes in time"),
            Event::Wakeup => {}
        }
        self.drop_hopeless(now, out);
        while self.dispatch(now, out) {}
    }

    /// The first moment after `now` at which anything could change by itself.
    fn next_moment(&self, now: Time) -> Time {
        let mut moments = Vec::new();
        for (model, request) in &self.waiting {
            moments.push((request.deadline - self.profile(*model).latency(1)).next());
        }
        for &model in self.models.keys() {
            if let Some(candidate) = self.candidate(now, model) {
                moments.extend([candidate.exec, candidate.latest.next()]);
            }
        }
        moments.into_iter().filter(|&moment| moment > now).min().unwrap_or(Time::NEVER)
    }
}

/// One thing that happens, a while after the one before.
#[derive(Clone, Debug)]
enum Step {
    Arrive { model: u32, slack: i32 },
    Cancel { back: usize },
    Fail(u32),
    Leave(u32),
    Add(u32),
    Remove(u32),
    Join(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (0u32..3, -4i32..80).prop_map(|(model, slack)| Step::Arrive { model, slack }),
        // The usual request has its model's SLO.
        40 => (0u32..3).prop_map(|model| Step::Arrive { model, slack: 48 }),
        2 => (0usize..6).prop_map(|back| Step::Cancel { back }),
        1 => (0u32..4).prop_map(Step::Fail),
        1 => (0u32..4).prop_map(Step::Leave),
        4 => (0u32..4).prop_map(Step::Join),
        1 => (0u32..3).prop_map(Step::Remove),
        4 => (0u32..3).prop_map(Step::Add),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference.regressions"),
        ))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_dispatcher_does_what_the_reference_does(
        deferred in any::<bool>(),
        // From a trickle to far too much.
        gap_us in prop_oneof![1u64..100, 100u64..2000, 2000u64..8000],
        steps in prop::collection::vec((0u64..3, step()), 1..150),
    ) {
        Both::new(deferred).play(gap_us, &steps);
    }
}

/// The two side by side in one world, in which executors finish when planned.
struct Both {
    real: Box<dyn Dispatch>,
    reference: Reference,
    now: Time,
    /// When each executor is done, for those that are there.
    executors: BTreeMap<ExecutorId, Option<Time>>,
    leaving: BTreeSet<ExecutorId>,
    sent: Vec<Event>,
}

impl Both {
    fn new(deferred: bool) -> Self {
        let policy = if deferred { "deferred-prefix" } else { "eager-prefix" };
        Self {
            real: policy.parse::<Policy>().unwrap().dispatcher(Network::default()),
            reference: Reference::new(deferred),
            now: Time::START,
            executors: BTreeMap::new(),
            leaving: BTreeSet::new(),
            sent: Vec::new(),
        }
    }

    fn play(mut self, gap_us: u64, steps: &[(u64, Step)]) {
        (0..3).for_each(|model| self.take(&Step::Add(model)));
        (0..2).for_each(|executor| self.take(&Step::Join(executor)));
        for (gaps, step) in steps {
            let at = self.now + Span(gap_us * 1000 * gaps);
            self.advance(at);
            self.now = at;
            self.take(step);
        }
        self.advance(Time::NEVER);
        assert!(self.reference.waiting.is_empty());
    }

    fn advance(&mut self, until: Time) {
        loop {
            let ends = self.executors.iter().filter_map(|(&id, end)| Some(((*end)?, id)));
            let done = ends.min();
            let done_at = done.map_or(Time::NEVER, |(at, _)| at);
            let wakeup = self.real.next_wakeup().min(self.reference.next_moment(self.now));
            let next = done_at.min(wakeup);
            if next == Time::NEVER || next > until {
                return;
            }
            assert!(next >= self.now, "asked to be woken in the past");
            self.now = next;
            let Some((_, executor)) = done.filter(|_| done_at == next) else {
                self.handle(Event::Wakeup);
                continue;
            };
            self.executors.insert(executor, None);
            if self.leaving.remove(&executor) {
                self.executors.remove(&executor);
            }
            self.handle(Event::Done { executor });
        }
    }

    fn take(&mut self, step: &Step) {
        let id = |executor| ExecutorId(executor);
        match *step {
            Step::Add(model) => {
                let model = ModelId(model);
                if !self.reference.models.contains_key(&model) {
                    self.handle(Event::AddModel { model, spec: Arc::new(spec(model)), gap: None });
                }
            }
            Step::Arrive { model, slack } => {
                let (model, request) = (ModelId(model), RequestId(self.sent.len() as u64));
                let deadline = Time(self.now.0.saturating_add_signed(i64::from(slack) * 250_000));
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
                let executor = id(executor);
                if self.executors.remove(&executor).is_some() {
                    self.leaving.remove(&executor);
                    self.handle(Event::Fail { executor });
                }
            }
            Step::Join(executor) => {
                let executor = id(executor);
                if let Entry::Vacant(place) = self.executors.entry(executor) {
                    place.insert(None);
                    self.handle(Event::Join { executor, class: ClassId(0) });
                }
            }
            Step::Leave(executor) => {
                let executor = id(executor);
                let Some(&end) = self.executors.get(&executor) else { return };
                if self.leaving.contains(&executor) {
                    return;
                }
                match end {
                    Some(_) => _ = self.leaving.insert(executor),
                    None => _ = self.executors.remove(&executor),
                }
                self.handle(Event::Leave { executor });
            }
            Step::Remove(model) => {
                let model = ModelId(model);
                if self.reference.models.contains_key(&model) {
                    self.handle(Event::RemoveModel { model });
                }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        let (mut real, mut reference) = (Actions::default(), Actions::default());
        self.real.handle(now, event.clone(), &mut real);
        self.reference.handle(now, event.clone(), &mut reference);
        assert_eq!(real, reference, "left: real, right: reference, at {now:?} after {event:?}");
        for action in &real.list {
            if let Action::Run { executor, start, latency, .. } = *action {
                self.executors.insert(executor, Some(start + latency));
            }
        }
    }
}

fn spec(model: ModelId) -> ModelSpec {
    let ms = Span::from_ms;
    let (alpha, beta, slo) = [(1.0, 5.0, 12.0), (0.25, 3.0, 12.0), (3.0, 0.5, 12.0)][model.index()];
    let profile = Profile::linear(ms(alpha), ms(beta), ms(slo)).unwrap();
    ModelSpec::uniform(ms(slo), profile)
}
