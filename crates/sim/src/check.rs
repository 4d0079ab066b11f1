//! The invariants of DESIGN.md, asserted at every step of a run.
//!
//! The checker sees only what any observer sees, events and actions, and keeps its own books; it
//! shares no code with the dispatcher. The first broken promise panics with the moment and the
//! parties.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, ModelId, Request, RequestId, Span, Time};
use fermata_dispatch::{Action, BATCHES_MAX, DropReason, Event, ModelSpec, Network};

use crate::world::{Observer, Run};

/// So many wakeups in a row at one moment are a dispatcher that turns on the spot.
const WAKEUPS_MAX: u32 = 1000;

/// What a policy promises beyond the invariants that every policy keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// No batch starts that is known to be late.
    pub in_time: bool,
    /// What cannot be in time is dropped at the first nanosecond at which that is certain.
    pub drops_at_once: bool,
    /// Nothing else is dropped. Early drop does not promise this.
    pub drops_only_hopeless: bool,
}

impl Promises {
    /// A prefix gatherer's: all of them.
    pub const ALL: Self = Self { in_time: true, drops_at_once: true, drops_only_hopeless: true };
    /// Those of a policy that gives up requests for the sake of others.
    pub const EARLY_DROP: Self = Self { drops_only_hopeless: false, ..Self::ALL };
    /// Those of a policy that knows no more than how long a batch may take.
    pub const UNCERTAIN: Self = Self { in_time: false, ..Self::ALL };
    /// Those of a policy that does not look at deadlines.
    pub const NONE: Self =
        Self { in_time: false, drops_at_once: false, drops_only_hopeless: false };
}

/// Watches a run, and panics where an invariant breaks.
#[derive(Clone, Debug)]
pub struct Checker {
    network: Network,
    promises: Promises,
    now: Time,
    /// Consecutive wakeups at `now`.
    wakeups: u32,
    models: Vec<Option<Arc<ModelSpec>>>,
    executors: Vec<Executor>,
    /// Everything that entered and has not left.
    requests: BTreeMap<RequestId, Entry>,
    /// By when each waiting request must have left the queue.
    gone_by: BTreeSet<(Time, RequestId)>,
    log: Log,
}

/// What happened in a run: equal for equal runs, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Every action with its moment, as 64-bit words; empty unless it was asked for.
    pub bytes: Vec<u8>,
    /// A hash of the same.
    pub digest: u64,
    /// How many requests entered.
    pub entered: u64,
    /// How many were run to the end.
    pub answered: u64,
    /// How many were dropped.
    pub dropped: u64,
    record: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    model: ModelId,
    request: Request,
    /// As in `gone_by`, for a waiting request; `None` for one that is in a batch.
    gone_by: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct Executor {
    class: ClassId,
    takes_batches: bool,
    batches: VecDeque<(ModelId, Vec<RequestId>)>,
    /// When the last batch is planned to end.
    planned_end: Time,
    /// When the last batch that was run to its end did end.
    finish: Time,
}

impl Checker {
    /// A checker of runs with this network.
    pub fn new(network: Network, promises: Promises) -> Self {
        Self {
            network,
            promises,
            now: Time::START,
            wakeups: 0,
            models: Vec::new(),
            executors: Vec::new(),
            requests: BTreeMap::new(),
            gone_by: BTreeSet::new(),
            log: Log {
                bytes: Vec::new(),
                // The offset basis of FNV-1a.
                digest: 0xCBF2_9CE4_8422_2325,
                entered: 0,
                answered: 0,
                dropped: 0,
                record: false,
            },
        }
    }

    /// The same, keeping every byte of the log.
    pub fn recording(mut self) -> Self {
        self.log.record = true;
        self
    }

    /// The run is over, and nothing may be left.
    pub fn end(self) -> Log {
        self.settle();
        assert!(self.requests.is_empty(), "left at the end: {:?}", self.requests);
        let Log { entered, answered, dropped, .. } = self.log;
        assert_eq!(entered, answered + dropped, "a request left twice or never");
        self.log
    }

    /// All actions of the last step were seen: whoever had to leave has left.
    fn settle(&self) {
        if let Some(&(by, request)) = self.gone_by.first() {
            let entry = &self.requests[&request];
            assert!(by > self.now, "at {:?} {request} still waits: {entry:?}", self.now);
        }
    }

    fn spec(&self, model: ModelId) -> Option<&Arc<ModelSpec>> {
        self.models.get(model.index())?.as_ref()
    }

    /// The last moment at which a batch of one could be decided, on the fastest class.
    fn hopeless_after(&self, model: ModelId, request: &Request) -> Option<Time> {
        let lead = self.network.lead(1) + self.network.resp;
        let profiles = self.spec(model)?.profiles.iter().flatten();
        let shortest = profiles.map(|profile| match profile.spread() {
            Some(spread) => spread.shortest(request.kind),
            None => profile.latency(1),
        });
        let shortest = lead + shortest.min()?;
        (request.deadline.0 >= shortest.0).then(|| request.deadline - shortest)
    }

    fn queue(&mut self, model: ModelId, request: Request) {
        let gone_by = match self.hopeless_after(model, &request) {
            _ if self.spec(model).is_none() => Time::START,
            _ if !self.promises.drops_at_once => Time::NEVER,
            Some(moment) => moment.next(),
            None => Time::START,
        };
        self.gone_by.insert((gone_by, request.id));
        let entry = Entry { model, request, gone_by: Some(gone_by) };
        self.requests.insert(request.id, entry);
    }

    /// Takes a request out of the queue's books; also says by when it had to leave.
    fn unqueue(&mut self, request: RequestId) -> (Time, &Entry) {
        let now = self.now;
        let entry = self.requests.get_mut(&request);
        let entry = entry.unwrap_or_else(|| panic!("at {now:?} {request} is not there"));
        let Some(by) = entry.gone_by.take() else {
            panic!("at {now:?} {request} is in a batch already: {entry:?}")
        };
        self.gone_by.remove(&(by, request));
        (by, entry)
    }

    /// Whoever waits and passes the test must leave in this step.
    fn must_leave(&mut self, test: impl Fn(&Entry) -> bool) {
        for (&id, entry) in &mut self.requests {
            if let Some(by) = entry.gone_by.filter(|_| test(entry)) {
                self.gone_by.remove(&(by, id));
                self.gone_by.insert((Time::START, id));
                entry.gone_by = Some(Time::START);
            }
        }
    }

    fn executor(&mut self, executor: ExecutorId) -> &mut Executor {
        if executor.index() >= self.executors.len() {
            self.executors.resize_with(executor.index() + 1, Executor::default);
        }
        &mut self.executors[executor.index()]
    }

    fn come_back(&mut self, model: ModelId, batch: Vec<RequestId>) {
        for id in batch {
            let request = self.requests[&id].request;
            self.queue(model, request);
        }
    }

    fn dropped(&mut self, model: ModelId, request: &Request, reason: DropReason) {
        let now = self.now;
        let (by, entry) = self.unqueue(request.id);
        assert_eq!((entry.model, entry.request), (model, *request), "at {now:?}");
        self.requests.remove(&request.id);
        self.log.dropped += 1;
        if by == Time::START {
            return; // It was cancelled, or its model is gone.
        }
        assert!(reason != DropReason::Cancelled, "at {now:?} nobody cancelled {request:?}");
        if self.promises.drops_only_hopeless {
            let hopeless = self.hopeless_after(model, request).is_none_or(|after| now > after);
            assert!(hopeless, "at {now:?} {request:?} was dropped with time left");
        }
    }

    fn started(&mut self, run: &Run, latency: Span) {
        let (now, network, promises) = (self.now, self.network, self.promises);
        let place = format!("at {now:?} {} {}", run.executor, run.model);
        assert!(!run.requests.is_empty(), "{place}: an empty batch");
        let spec = self.spec(run.model).cloned();
        let state = self.executor(run.executor);
        let profile = spec.as_ref().and_then(|spec| spec.profile(state.class));
        // Who has seen shorter runs of late than the profile says may plan with less. That batches
        // do not overlap when they run is asserted for everybody.
        let is_planned =
            promises.in_time && profile.is_none_or(|profile| profile.spread().is_none());
        assert!(state.takes_batches, "{place}: the executor is not there");
        assert!(state.batches.len() < BATCHES_MAX, "{place}: too many batches");
        assert!(
            !is_planned || run.start >= state.planned_end,
            "{place}: overlaps what ends {:?}",
            state.planned_end
        );
        state.planned_end = run.finish;
        let ids = run.requests.iter().map(|request| request.id).collect();
        state.batches.push_back((run.model, ids));
        let class = state.class;
        let size = run.requests.len();
        assert!(run.start >= now, "{place}: starts in the past");
        assert!(spec.is_some(), "{place}: the model is not there");
        let profile = profile.unwrap_or_else(|| panic!("{place}: cannot run on {class}"));
        assert!(size <= profile.max_batch(), "{place}: a batch of {size}");
        if promises.in_time {
            assert_eq!(latency, profile.latency(size), "{place}: not the profile's latency");
            assert!(run.start >= now + network.lead(size), "{place}: before its inputs are there");
        }
        for request in &run.requests {
            let (_, entry) = self.unqueue(request.id);
            assert_eq!((entry.model, &entry.request), (run.model, request), "{place}");
            if promises.in_time {
                let answered = run.finish + network.resp;
                assert!(answered <= request.deadline, "{place}: {request:?} late by plan");
            }
        }
    }
}

impl Observer for Checker {
    fn event(&mut self, now: Time, event: &Event) {
        // An arrival at the very moment of a timer comes before it: who is due has until the moment
        // has passed.
        if now > self.now || self.gone_by.first().is_some_and(|&(by, _)| by < self.now) {
            self.settle();
        }
        assert!(now >= self.now, "time went back from {:?} to {now:?}", self.now);
        if let Some(&(by, request)) = self.gone_by.first() {
            assert!(now <= by, "{request} had to leave at {by:?}, and it is {now:?}");
        }
        let turning = now == self.now && *event == Event::Wakeup;
        self.wakeups = if turning { self.wakeups + 1 } else { 0 };
        assert!(self.wakeups < WAKEUPS_MAX, "wakes at {now:?} for ever");
        self.now = now;
        match *event {
            Event::AddModel { model, ref spec, .. } => {
                if model.index() >= self.models.len() {
                    self.models.resize(model.index() + 1, None);
                }
                self.models[model.index()] = Some(spec.clone());
            }
            Event::Arrive { model, request, deadline, kind } => {
                assert!(!self.requests.contains_key(&request), "{request} came twice");
                self.log.entered += 1;
                self.queue(model, Request { deadline, id: request, arrival: now, kind });
            }
            Event::Cancel { model, request, deadline } => self.must_leave(|entry| {
                entry.model == model && entry.request.key() == (deadline, request)
            }),
            Event::Done { executor } => {
                let state = self.executor(executor);
                let batch = state.batches.pop_front();
                if state.batches.is_empty() {
                    state.planned_end = now;
                }
                let (_, batch) = batch.expect("an executor is done only with a batch");
                for request in batch {
                    assert!(self.requests.remove(&request).is_some(), "{request} left twice");
                    self.log.answered += 1;
                }
            }
            Event::Fail { executor } => {
                let state = self.executor(executor);
                state.takes_batches = false;
                for (model, batch) in std::mem::take(&mut state.batches) {
                    self.come_back(model, batch);
                }
            }
            Event::Join { executor, class } => {
                let state = self.executor(executor);
                assert!(state.batches.is_empty(), "{executor} joined with batches");
                (state.class, state.takes_batches, state.planned_end) = (class, true, now);
            }
            Event::Leave { executor } => self.executor(executor).takes_batches = false,
            Event::Profile { model, ref spec } => {
                self.models[model.index()] = Some(spec.clone());
            }
            Event::RemoveModel { model } => {
                self.models[model.index()] = None;
                self.must_leave(|entry| entry.model == model);
            }
            Event::Late { .. } | Event::Wakeup => {}
        }
    }

    fn action(&mut self, now: Time, action: &Action, batch: &[Request]) {
        assert_eq!(now, self.now, "an action at another moment than its event");
        self.log.write(now, action, batch);
        match *action {
            Action::Drop { model, ref request, reason } => self.dropped(model, request, reason),
            Action::Limit { model, by } => assert_ne!(model, by, "no model is in its own way"),
            Action::Preempt { executor } => {
                let state = self.executor(executor);
                let (model, batch) = state.batches.pop_front().expect("only a batch is preempted");
                state.planned_end = now;
                self.come_back(model, batch);
            }
            Action::Run { executor, model, start, latency, .. } => {
                let requests = batch.to_vec();
                let run = Run { executor, model, start, finish: start + latency, requests };
                self.started(&run, latency);
            }
        }
    }

    fn finished(&mut self, run: &Run) {
        let state = self.executor(run.executor);
        assert!(run.start >= state.finish, "two batches overlapped on {}: {run:?}", run.executor);
        state.finish = run.finish;
    }
}

impl Log {
    fn write(&mut self, now: Time, action: &Action, batch: &[Request]) {
        self.word(now.0);
        match *action {
            Action::Drop { model, request, reason } => {
                self.word(1);
                self.word(u64::from(model.0));
                self.word(request.id.0);
                self.word(reason as u64);
            }
            Action::Preempt { executor } => {
                self.word(2);
                self.word(u64::from(executor.0));
            }
            Action::Limit { model, by } => {
                self.word(4);
                self.word(u64::from(model.0));
                self.word(u64::from(by.0));
            }
            Action::Run { executor, model, start, latency, size, .. } => {
                self.word(3);
                self.word(u64::from(executor.0));
                self.word(u64::from(model.0));
                self.word(start.0);
                self.word(latency.0);
                self.word(u64::from(size));
                batch.iter().for_each(|request| self.word(request.id.0));
            }
        }
    }

    fn word(&mut self, word: u64) {
        // FNV-1a, a word at a time.
        self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01B3);
        self.digest ^= self.digest >> 29;
        if self.record {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::{KindId, Profile};

    use super::*;

    const MODEL: ModelId = ModelId(0);
    const EXECUTOR: ExecutorId = ExecutorId(0);

    /// A checker that has seen one model, `l(b) = b + 5`, one executor, and one request due at 12.
    fn checker() -> (Checker, Request) {
        let mut checker = Checker::new(Network::default(), Promises::ALL);
        let ms = Span::from_ms;
        let profile = Profile::linear(ms(1.0), ms(5.0), ms(12.0)).unwrap();
        let spec = Arc::new(ModelSpec::uniform(ms(12.0), profile));
        checker.event(Time::START, &Event::AddModel { model: MODEL, spec, gap: None });
        let class = ClassId(0);
        checker.event(Time::START, &Event::Join { executor: EXECUTOR, class });
        let request = arrive(&mut checker, 1);
        (checker, request)
    }

    fn request(id: u64) -> Request {
        Request {
            deadline: Time::from_ms(12.0),
            id: RequestId(id),
            arrival: Time::START,
            kind: KindId(0),
        }
    }

    fn arrive(checker: &mut Checker, id: u64) -> Request {
        let request = request(id);
        let Request { deadline, id, .. } = request;
        checker.event(
            Time::START,
            &Event::Arrive { model: MODEL, request: id, deadline, kind: KindId(0) },
        );
        request
    }

    fn run(checker: &mut Checker, ms: f64, request: Request) {
        let (start, latency) = (Time::from_ms(ms), Span::from_ms(6.0));
        checker.event(start, &Event::Wakeup);
        let (executor, model) = (EXECUTOR, MODEL);
        let action = Action::Run { executor, model, start, latency, first: 0, size: 1 };
        checker.action(start, &action, &[request]);
    }

    #[test]
    fn a_run_in_time_passes() {
        let (mut checker, request) = checker();
        run(&mut checker, 6.0, request);
        checker.event(Time::from_ms(12.0), &Event::Done { executor: EXECUTOR });
        let log = checker.end();
        assert_eq!((log.entered, log.answered, log.dropped), (1, 1, 0));
    }

    #[test]
    #[should_panic(expected = "left at the end")]
    fn a_lost_request_is_found() {
        let (mut checker, request) = checker();
        run(&mut checker, 1.0, request);
        checker.end();
    }

    #[test]
    #[should_panic(expected = "is in a batch already")]
    fn a_request_that_runs_twice_is_found() {
        let (mut checker, request) = checker();
        run(&mut checker, 0.0, request);
        run(&mut checker, 6.0, request);
    }

    #[test]
    #[should_panic(expected = "overlaps")]
    fn an_overlap_is_found() {
        let (mut checker, request) = checker();
        let other = arrive(&mut checker, 2);
        run(&mut checker, 0.0, request);
        run(&mut checker, 5.0, other);
    }

    #[test]
    #[should_panic(expected = "is not there")]
    fn an_executor_that_left_is_found() {
        let (mut checker, request) = checker();
        checker.event(Time::START, &Event::Leave { executor: EXECUTOR });
        run(&mut checker, 0.0, request);
    }

    #[test]
    #[should_panic(expected = "late by plan")]
    fn a_late_batch_is_found() {
        let (mut checker, request) = checker();
        run(&mut checker, 6.000001, request);
    }

    #[test]
    #[should_panic(expected = "had to leave at")]
    fn a_late_drop_is_found() {
        let (mut checker, _) = checker();
        checker.event(Time::from_ms(6.000002), &Event::Wakeup);
    }

    #[test]
    #[should_panic(expected = "with time left")]
    fn a_hasty_drop_is_found() {
        let (mut checker, request) = checker();
        let now = Time::from_ms(6.0);
        checker.event(now, &Event::Wakeup);
        let reason = DropReason::Overload;
        checker.action(now, &Action::Drop { model: MODEL, request, reason }, &[]);
    }
}
