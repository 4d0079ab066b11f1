//! The event loop: arrivals, executors and faults around a dispatcher, in virtual time.

use std::collections::VecDeque;
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Request, RequestId, Span, Time};
use fermata_dispatch::{Action, Actions, BATCHES_MAX, Dispatch, Event, MinTree};
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64Mcg;

use crate::control::{Control, Seen};
use crate::feed::{Drawn, Feed};
use crate::scenario::{Fault, FaultKind, Scenario, Sizes};
use crate::stats::{ModelStats, Stats};

/// Watches a run: a checker, a recorder, a picture.
pub trait Observer {
    /// Something happened to the dispatcher.
    fn event(&mut self, _now: Time, _event: &Event) {}
    /// The dispatcher asked for something; `batch` has the requests of a `Run`.
    fn action(&mut self, _now: Time, _action: &Action, _batch: &[Request]) {}
    /// A batch was run to its end.
    fn finished(&mut self, _run: &Run) {}
}

impl Observer for () {}

/// A batch on an executor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Where.
    pub executor: ExecutorId,
    /// Which model.
    pub model: ModelId,
    /// When it began.
    pub start: Time,
    /// When it ends.
    pub finish: Time,
    /// Its requests.
    pub requests: Vec<Request>,
}

/// Runs a scenario to its end, or until it is certain that some model loses more than `bad_max` of
/// its requests.
pub fn simulate(
    scenario: &Scenario,
    dispatcher: &mut impl Dispatch,
    observer: &mut impl Observer,
    bad_max: Option<f64>,
) -> Stats {
    // Far above what is expected, even where arrivals come in bursts (a Gamma shape of 0.05
    // deviates by 4.5 roots): such a run cannot recover.
    let limit = |expected: f64| match bad_max {
        Some(bad) => (bad * (expected + 20.0 * expected.sqrt())).ceil() as u64 + 1,
        None => u64::MAX,
    };
    let limits = scenario.expected().into_iter().map(limit).collect();
    run(scenario, Feed::live(scenario), limits, true, dispatcher, observer, &mut ())
}

/// Runs a scenario to its end, with a number of executors that is decided on the way. It begins
/// with those of the scenario; the ones that are added are of the first class.
pub fn simulate_controlled(
    scenario: &Scenario,
    dispatcher: &mut impl Dispatch,
    observer: &mut impl Observer,
    control: &mut impl Control,
) -> Stats {
    let limits = vec![u64::MAX; scenario.loads.len()];
    run(scenario, Feed::live(scenario), limits, true, dispatcher, observer, control)
}

/// The same for arrivals that were drawn before, with all rates multiplied by `factor`. Only counts
/// are kept, no latencies.
pub fn simulate_drawn(
    scenario: &Scenario,
    drawn: &Drawn,
    factor: f64,
    dispatcher: &mut impl Dispatch,
    bad_max: Option<f64>,
) -> Stats {
    let arrivals = drawn.before(scenario.end, factor);
    let mut limits = vec![u64::MAX; scenario.loads.len()];
    if let Some(bad) = bad_max {
        limits.fill(0);
        arrivals.iter().for_each(|&(_, model)| limits[model as usize] += 1);
        limits.iter_mut().for_each(|limit| *limit = (bad * *limit as f64) as u64);
    }
    let scenario = scenario.scaled(factor);
    run(&scenario, Feed::drawn(arrivals, factor), limits, false, dispatcher, &mut (), &mut ())
}

fn run(
    scenario: &Scenario,
    feed: Feed<'_>,
    bad_limits: Vec<u64>,
    keeps_requests: bool,
    dispatcher: &mut impl Dispatch,
    observer: &mut impl Observer,
    control: &mut impl Control,
) -> Stats {
    let mut world = World::new(scenario, feed, bad_limits, control.most());
    world.set_control(control.next());
    world.keeps_requests = keeps_requests;
    let (world, actions) = (&mut world, &mut Actions::default());
    for (model, load) in (0..).zip(&scenario.loads) {
        let gap =
            Some(load.rate()).filter(|&rate| rate > 0.0).map(|rate| Span::from_secs(1.0 / rate));
        let event = Event::AddModel { model: ModelId(model), spec: load.spec.clone(), gap };
        handle(world, dispatcher, observer, actions, Time::START, event);
    }
    for (executor, &class) in (0..).zip(&scenario.executors) {
        world.since[executor as usize] = Time::START;
        let event = Event::Join { executor: ExecutorId(executor), class };
        handle(world, dispatcher, observer, actions, Time::START, event);
    }
    while !world.stats.stopped {
        let (now, next) = world.next(dispatcher.next_wakeup());
        match next {
            Next::Arrival => {
                let event = world.arrive(now);
                handle(world, dispatcher, observer, actions, now, event);
            }
            Next::Done => {
                let executor = world.finishes.first().expect("an executor is done");
                let executor = ExecutorId(executor as u32);
                handle(world, dispatcher, observer, actions, now, Event::Done { executor });
            }
            Next::Wakeup => handle(world, dispatcher, observer, actions, now, Event::Wakeup),
            Next::Fault if world.next_control <= now => {
                world.resize(now, control.executors(now, &world.seen(now)));
                assert!(control.next() > now, "decisions come one after the other");
                world.set_control(control.next());
            }
            Next::Fault => strike(world, dispatcher, observer, actions, now),
            Next::Nothing => break,
        }
    }
    world.end()
}

/// Compiled into each of its callers, so that they pay for their own kind of event only.
#[inline(always)]
fn handle(
    world: &mut World<'_>,
    dispatcher: &mut impl Dispatch,
    observer: &mut impl Observer,
    actions: &mut Actions,
    now: Time,
    event: Event,
) {
    observer.event(now, &event);
    if let Event::Done { executor } = event {
        world.finish(executor, observer);
    }
    dispatcher.handle(now, event, actions);
    if !actions.list.is_empty() {
        apply(world, observer, actions, now);
    }
}

#[cold]
fn strike(
    world: &mut World<'_>,
    dispatcher: &mut impl Dispatch,
    observer: &mut impl Observer,
    actions: &mut Actions,
    now: Time,
) {
    let event = world.fault(now);
    handle(world, dispatcher, observer, actions, now, event);
}

#[inline(never)]
fn apply(world: &mut World<'_>, observer: &mut impl Observer, actions: &mut Actions, now: Time) {
    world.stats.end = now; // A wakeup by itself is nothing that happened.
    for action in &actions.list {
        let batch = match *action {
            Action::Run { first, size, .. } => actions.batch(first, size),
            _ => &[],
        };
        observer.action(now, action, batch);
        world.apply(now, action, batch);
    }
    actions.clear();
}

/// What happens next.
enum Next {
    Done,
    Fault,
    Arrival,
    Wakeup,
    Nothing,
}

struct World<'a> {
    feed: Feed<'a>,
    /// By model. Side by side, and nothing else, since every arrival needs them.
    clients: Vec<Clients>,
    /// By model, the objective of each request; empty where all have their model's.
    own_slos: Vec<Option<Arc<[Span]>>>,
    /// By model, how long its requests run; empty where that never depends on the input.
    sizes: Vec<Option<Arc<Sizes>>>,
    /// By request, what it takes alone: only where `sizes` says so.
    alone: Vec<Span>,
    /// From the end of a batch to its clients.
    resp: Span,
    /// When each executor's running batch ends.
    finishes: MinTree,
    executors: Vec<Executor>,
    /// What each executor's latencies are multiplied by.
    slowness: Vec<f64>,
    /// Since when each executor is there; never, if it is not.
    since: Vec<Time>,
    /// Faults by time, the next one last.
    faults: Vec<Fault>,
    /// When the number of executors is decided anew.
    next_control: Time,
    /// The earlier of the two.
    next_fault: Time,
    next_request: u64,
    /// How many bad requests a model may have.
    bad_limits: Vec<u64>,
    /// Whether the requests of running batches are kept: for their latencies, and for who watches.
    keeps_requests: bool,
    noise: Option<(f64, Pcg64Mcg)>,
    stats: Stats,
}

/// Those who ask for one model.
#[derive(Clone, Copy, Debug)]
struct Clients {
    slo: Span,
    /// How many requests they have sent.
    offered: u64,
}

/// An executor, in one cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Executor {
    /// The batch that it runs, if any.
    running: Run,
    /// How many requests the running batch has: none, if nothing runs.
    size: u32,
    /// How many of them will be in time.
    in_time: u32,
    /// Batches that were sent before the running one ended, with their planned latencies.
    next: VecDeque<(Run, Span)>,
}

/// The stream number of execution noise, far from those of the models.
const NOISE_STREAM: u64 = 1 << 40;

impl<'a> World<'a> {
    fn new(scenario: &Scenario, feed: Feed<'a>, bad_limits: Vec<u64>, most: usize) -> Self {
        let joins = scenario.faults.iter().map(|fault| fault.executor.index() + 1).max();
        let executors = scenario.executors.len().max(joins.unwrap_or(0)).max(most);
        let loads = scenario.loads.iter();
        let own_slos: Vec<_> = loads.clone().map(|load| load.own_slos().cloned()).collect();
        let sizes: Vec<_> = loads.clone().map(|load| load.sizes.clone()).collect();
        let mut faults = scenario.faults.clone();
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.at));
        Self {
            feed,
            clients: loads.map(|load| Clients { slo: load.spec.slo, offered: 0 }).collect(),
            own_slos: if own_slos.iter().any(Option::is_some) { own_slos } else { Vec::new() },
            sizes: if sizes.iter().any(Option::is_some) { sizes } else { Vec::new() },
            alone: Vec::new(),
            resp: scenario.network.resp,
            finishes: MinTree::with_len(executors),
            executors: vec![Executor::default(); executors],
            slowness: vec![1.0; executors],
            since: vec![Time::NEVER; executors],
            next_fault: faults.last().map_or(Time::NEVER, |fault| fault.at),
            faults,
            next_control: Time::NEVER,
            next_request: 0,
            bad_limits,
            keeps_requests: true,
            noise: (scenario.noise > 0.0)
                .then(|| (scenario.noise, Pcg64Mcg::seed_from_u64(scenario.seed ^ NOISE_STREAM))),
            stats: Stats {
                models: vec![ModelStats::default(); scenario.loads.len()],
                busy: vec![Span::ZERO; executors],
                present: vec![Span::ZERO; executors],
                ..Stats::default()
            },
        }
    }

    /// What happens next: of things at the same moment first an executor that is done, then faults,
    /// then arrivals, then the dispatcher's own wakeup.
    #[inline]
    fn next(&mut self, wakeup: Time) -> (Time, Next) {
        let (done, arrival) = (self.finishes.earliest(), self.feed.next());
        let fault = self.next_fault;
        let (now, next) = if arrival < done && arrival < fault && arrival <= wakeup {
            (arrival, Next::Arrival)
        } else if done <= fault && done <= wakeup && done != Time::NEVER {
            (done, Next::Done)
        } else if fault <= wakeup && fault != Time::NEVER {
            (fault, Next::Fault)
        } else if wakeup != Time::NEVER {
            return (wakeup, Next::Wakeup);
        } else {
            return (wakeup, Next::Nothing);
        };
        self.stats.end = now;
        (now, next)
    }

    #[inline]
    fn arrive(&mut self, now: Time) -> Event {
        let model = self.feed.pop();
        let clients = &mut self.clients[model.index()];
        let mut slo = clients.slo;
        if let Some(Some(own)) = self.own_slos.get(model.index()) {
            slo = own[clients.offered as usize];
        }
        let number = clients.offered as usize;
        clients.offered += 1;
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let kind = if self.sizes.is_empty() { KindId(0) } else { self.draw(model, number) };
        Event::Arrive { model, request, deadline: now + slo, kind }
    }

    /// What the request is that came last, the model's `number`th.
    #[cold]
    fn draw(&mut self, model: ModelId, number: usize) -> KindId {
        let sizes = self.sizes[model.index()].as_ref();
        let drawn = sizes.map(|sizes| sizes.requests[number % sizes.requests.len()]);
        let (alone, kind) = drawn.unwrap_or_default();
        self.alone.push(alone);
        kind
    }

    /// How long a batch takes, if that depends on what its requests are.
    #[cold]
    fn drawn_latency(&self, model: ModelId, batch: &[Request]) -> Option<Span> {
        let sizes = self.sizes[model.index()].as_ref()?;
        let alone = batch.iter().map(|request| self.alone[request.id.0 as usize]).max()?;
        Some(sizes.growth.latency(batch.len(), alone))
    }

    fn fault(&mut self, now: Time) -> Event {
        let Fault { executor, kind, .. } = self.faults.pop().expect("a fault is due");
        self.set_control(self.next_control);
        let state = &mut self.executors[executor.index()];
        match kind {
            FaultKind::Crash => {
                state.next.clear();
                if state.is_busy() {
                    self.stop(now, executor);
                }
                self.end_presence(executor.index(), now);
                Event::Fail { executor }
            }
            FaultKind::Join(class) => {
                self.slowness[executor.index()] = 1.0;
                self.since[executor.index()] = now;
                Event::Join { executor, class }
            }
            FaultKind::Leave => {
                // It is there until it has finished what it runs.
                let end = if state.is_busy() { state.running.finish } else { now };
                self.end_presence(executor.index(), end);
                Event::Leave { executor }
            }
            FaultKind::Slow(factor) => {
                self.slowness[executor.index()] = factor;
                Event::Wakeup
            }
        }
    }

    /// When the number of executors is decided next; with the last arrival, that is over.
    fn set_control(&mut self, next: Time) {
        self.next_control = if self.feed.next() == Time::NEVER { Time::NEVER } else { next };
        let fault = self.faults.last().map_or(Time::NEVER, |fault| fault.at);
        self.next_fault = fault.min(self.next_control);
    }

    /// What there is to decide by.
    fn seen(&self, now: Time) -> Seen {
        let running = self.executors.iter().filter(|executor| executor.is_busy());
        let so_far = running.map(|executor| now - executor.running.start);
        let spans = self.stats.busy.iter().copied().chain(so_far);
        let models = self.stats.models.iter();
        Seen {
            executors: self.since.iter().filter(|&&since| since != Time::NEVER).count(),
            busy: spans.fold(Span::ZERO, |sum, span| sum + span),
            offered: self.clients.iter().map(|clients| clients.offered).collect(),
            in_time: models.clone().map(|model| model.in_time).collect(),
            bad: models.map(ModelStats::bad).collect(),
        }
    }

    /// Executors join or leave at once, so that there are so many; those with high ids come last
    /// and leave first.
    fn resize(&mut self, now: Time, wanted: usize) {
        let is_there = |at: &usize| self.since[*at] != Time::NEVER;
        let there = (0..self.executors.len()).filter(is_there).count();
        // One that has left may still be running its last batch.
        let free = |at: &usize| !is_there(at) && !self.executors[*at].is_busy();
        let joining = (0..self.executors.len()).filter(free).take(wanted.saturating_sub(there));
        let leaving = (0..self.executors.len()).rev().filter(is_there);
        let leaving = leaving.take(there.saturating_sub(wanted));
        let change = |at: usize, kind| Fault { at: now, executor: ExecutorId(at as u32), kind };
        let joining = joining.map(|at| change(at, FaultKind::Join(ClassId(0))));
        let leaving = leaving.map(|at| change(at, FaultKind::Leave));
        let changes: Vec<Fault> = joining.chain(leaving).collect();
        // The next fault is the last of the list.
        self.faults.extend(changes.into_iter().rev());
    }

    fn end_presence(&mut self, executor: usize, end: Time) {
        let since = std::mem::replace(&mut self.since[executor], Time::NEVER);
        self.stats.present[executor] += end - since;
    }

    #[inline]
    fn apply(&mut self, now: Time, action: &Action, batch: &[Request]) {
        match *action {
            Action::Drop { model, reason, .. } => {
                self.stats.models[model.index()].drop(reason);
                self.check_limit(model);
            }
            Action::Limit { .. } => {}
            Action::Run { executor, model, start, latency, .. } => {
                let state = &mut self.executors[executor.index()];
                if state.is_busy() {
                    let count = 1 + state.next.len();
                    assert!(count < BATCHES_MAX, "{executor} was given too many batches");
                    let requests = batch.to_vec();
                    let run = Run { executor, model, start, finish: Time::NEVER, requests };
                    state.next.push_back((run, latency));
                } else {
                    let run = &mut state.running;
                    (run.executor, run.model, run.start) = (executor, model, start);
                    if self.keeps_requests {
                        run.requests.extend_from_slice(batch);
                    }
                    self.begin(executor, latency, batch);
                }
            }
            Action::Preempt { executor } => {
                let state = &self.executors[executor.index()];
                assert!(state.is_busy(), "only a running batch is preempted");
                self.stop(now, executor);
            }
        }
    }

    /// The running batch of an executor begins.
    #[inline]
    fn begin(&mut self, executor: ExecutorId, planned: Span, batch: &[Request]) {
        let mut latency = planned;
        if !self.sizes.is_empty() {
            let model = self.executors[executor.index()].running.model;
            latency = self.drawn_latency(model, batch).unwrap_or(planned);
        }
        let state = &mut self.executors[executor.index()];
        if let Some((deviation, random)) = &mut self.noise {
            let normal: f64 = StandardNormal.sample(random);
            latency = Span((latency.0 as f64 * (1.0 + *deviation * normal).max(0.1)) as u64);
        }
        let slowness = self.slowness[executor.index()];
        if slowness != 1.0 {
            latency = Span((latency.0 as f64 * slowness) as u64);
        }
        let finish = state.running.start + latency;
        let answered = finish + self.resp;
        // Counted now, while the batch is at hand.
        let in_time = batch.iter().filter(|request| answered <= request.deadline).count();
        state.running.finish = finish;
        (state.size, state.in_time) = (batch.len() as u32, in_time as u32);
        self.finishes.set(executor.index(), finish);
    }

    /// The running batch of an executor ends before its time.
    fn stop(&mut self, now: Time, executor: ExecutorId) {
        let state = &mut self.executors[executor.index()];
        self.stats.busy[executor.index()] += now - state.running.start;
        state.running.requests.clear();
        state.size = 0;
        self.finishes.clear(executor.index());
    }

    fn finish(&mut self, executor: ExecutorId, observer: &mut impl Observer) {
        let at = executor.index();
        self.finishes.clear(at);
        let Executor { running: run, size, in_time, next } = &mut self.executors[at];
        observer.finished(run);
        self.stats.busy[at] += run.finish - run.start;
        let (model, finish) = (run.model, run.finish);
        let stats = &mut self.stats.models[model.index()];
        stats.answer(*size as usize, *in_time as usize);
        if self.keeps_requests {
            stats.answer_times(&run.requests, run.start, finish + self.resp);
            run.requests.clear();
        }
        *size = 0;
        if let Some((mut next, latency)) = next.pop_front() {
            let batch = std::mem::take(&mut next.requests);
            *run = next;
            run.start = run.start.max(finish);
            self.begin(executor, latency, &batch);
            self.executors[at].running.requests = batch;
        }
        self.check_limit(model);
    }

    /// The run is over.
    fn end(&mut self) -> Stats {
        for executor in 0..self.executors.len() {
            self.end_presence(executor, self.stats.end);
        }
        for (model, clients) in self.stats.models.iter_mut().zip(&self.clients) {
            model.offered = clients.offered;
        }
        std::mem::take(&mut self.stats)
    }

    #[inline]
    fn check_limit(&mut self, model: ModelId) {
        if self.stats.models[model.index()].bad() > self.bad_limits[model.index()] {
            self.stats.stopped = true;
        }
    }
}

impl Executor {
    #[inline]
    fn is_busy(&self) -> bool {
        self.size > 0
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::Profile;
    use fermata_dispatch::{ModelSpec, Network, Policy};

    use super::*;
    use crate::check::{Checker, Promises};
    use crate::scenario::{Arrivals, End, Load};

    #[test]
    fn a_run_is_not_lengthened_by_the_arrival_after_its_last() {
        let ms = Span::from_ms;
        let profile = Profile::linear(ms(1.0), ms(5.0), ms(25.0)).unwrap();
        let spec = Arc::new(ModelSpec::uniform(ms(25.0), profile));
        let times = [Time::from_ms(1.0), Time::from_ms(1e6)];
        let scenario = Scenario {
            loads: vec![Load::new(spec, Arrivals::Recorded(times.into(), None))],
            executors: vec![ClassId(0)],
            network: Network::default(),
            end: End::At(Time::from_ms(10.0)),
            seed: 0,
            noise: 0.0,
            faults: Vec::new(),
        };
        let policy: Policy = "eager".parse().unwrap();
        let mut checker = Checker::new(scenario.network, Promises::EARLY_DROP);
        let mut dispatcher = policy.dispatcher(scenario.network);
        let stats = simulate(&scenario, &mut dispatcher, &mut checker, None);
        checker.end();
        assert_eq!(stats.end, Time::from_ms(7.0));
    }
}
