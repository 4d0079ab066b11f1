//! The event loop: arrivals, executors and faults around a dispatcher, in virtual time.

use fermata_core::{ExecutorId, ModelId, Request, RequestId, Span, Time};
use fermata_dispatch::{Action, Actions, Dispatch, Event, MinTree};
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64Mcg;

use crate::feed::{Drawn, Feed};
use crate::scenario::{Fault, FaultKind, Scenario};
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

/// Runs a scenario to its end, or until it is certain that some model loses more than `bad_max` of its
/// requests.
pub fn simulate(
    scenario: &Scenario,
    dispatcher: &mut impl Dispatch,
    observer: &mut impl Observer,
    bad_max: Option<f64>,
) -> Stats {
    // Far above what is expected, even where arrivals come in bursts (a Gamma shape of 0.05 deviates by 4.5
    // roots): such a run cannot recover.
    let limit = |expected: f64| match bad_max {
        Some(bad) => (bad * (expected + 20.0 * expected.sqrt())).ceil() as u64 + 1,
        None => u64::MAX,
    };
    let limits = scenario.expected().into_iter().map(limit).collect();
    run(scenario, Feed::live(scenario), limits, true, dispatcher, observer)
}

/// The same for arrivals that were drawn before, with all rates multiplied by `factor`. Only counts are kept,
/// no latencies.
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
    run(&scenario, Feed::drawn(arrivals, factor), limits, false, dispatcher, &mut ())
}

fn run(
    scenario: &Scenario,
    feed: Feed<'_>,
    bad_limits: Vec<u64>,
    keeps_times: bool,
    dispatcher: &mut impl Dispatch,
    observer: &mut impl Observer,
) -> Stats {
    let mut world = World::new(scenario, feed, bad_limits);
    world.keeps_times = keeps_times;
    let mut actions = Actions::default();
    let mut step = |world: &mut World<'_>, dispatcher: &mut _, now, event| {
        handle(world, dispatcher, observer, &mut actions, now, event);
    };
    for (model, load) in (0..).zip(&scenario.loads) {
        let gap =
            Some(load.rate()).filter(|&rate| rate > 0.0).map(|rate| Span::from_secs(1.0 / rate));
        let event = Event::AddModel { model: ModelId(model), spec: load.spec.clone(), gap };
        step(&mut world, dispatcher, Time::START, event);
    }
    for (executor, &class) in (0..).zip(&scenario.executors) {
        world.since[executor as usize] = Time::START;
        let event = Event::Join { executor: ExecutorId(executor), class };
        step(&mut world, dispatcher, Time::START, event);
    }
    while !world.stats.stopped {
        let Some((now, event)) = world.next(dispatcher.next_wakeup()) else { break };
        step(&mut world, dispatcher, now, event);
    }
    for executor in 0..world.executors.len() {
        world.end_presence(executor, world.stats.end);
    }
    world.stats
}

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

struct World<'a> {
    feed: Feed<'a>,
    slos: Vec<Span>,
    /// From the end of a batch to its clients.
    resp: Span,
    /// When each executor's running batch ends.
    finishes: MinTree,
    executors: Vec<Executor>,
    /// Since when each executor is there; never, if it is not.
    since: Vec<Time>,
    /// Faults by time, the next one last.
    faults: Vec<Fault>,
    next_request: u64,
    /// How many bad requests a model may have.
    bad_limits: Vec<u64>,
    spare: Vec<Vec<Request>>,
    /// Whether latencies are counted.
    keeps_times: bool,
    noise: Option<(f64, Pcg64Mcg)>,
    stats: Stats,
}

#[derive(Clone, Debug)]
struct Executor {
    running: Option<Run>,
    /// A batch that was sent before the running one ended, with its planned latency.
    next: Option<(Run, Span)>,
    slowness: f64,
}

/// The stream number of execution noise, far from those of the models.
const NOISE_STREAM: u64 = 1 << 40;

impl<'a> World<'a> {
    fn new(scenario: &Scenario, feed: Feed<'a>, bad_limits: Vec<u64>) -> Self {
        let joins = scenario.faults.iter().map(|fault| fault.executor.index() + 1).max();
        let executors = scenario.executors.len().max(joins.unwrap_or(0));
        let idle = Executor { running: None, next: None, slowness: 1.0 };
        let mut faults = scenario.faults.clone();
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.at));
        Self {
            feed,
            slos: scenario.loads.iter().map(|load| load.spec.slo).collect(),
            resp: scenario.network.resp,
            finishes: MinTree::with_len(executors),
            executors: vec![idle; executors],
            since: vec![Time::NEVER; executors],
            faults,
            next_request: 0,
            bad_limits,
            spare: Vec::new(),
            keeps_times: true,
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

    /// What happens next: of things at the same moment first an executor that is done, then faults, then
    /// arrivals, then the dispatcher's own wakeup.
    #[inline]
    fn next(&mut self, wakeup: Time) -> Option<(Time, Event)> {
        let (done, arrival) = (self.finishes.earliest(), self.feed.next());
        let fault = self.faults.last().map_or(Time::NEVER, |fault| fault.at);
        let now = done.min(arrival).min(fault).min(wakeup);
        if now == Time::NEVER {
            return None;
        }
        let event = if now == done {
            Event::Done { executor: ExecutorId(self.finishes.first()? as u32) }
        } else if now == fault {
            self.fault(now)?
        } else if now == arrival {
            self.arrive(now)
        } else {
            return Some((now, Event::Wakeup));
        };
        self.stats.end = now;
        Some((now, event))
    }

    #[inline]
    fn arrive(&mut self, now: Time) -> Event {
        let model = self.feed.pop();
        self.stats.models[model.index()].offered += 1;
        let request = RequestId(self.next_request);
        self.next_request += 1;
        Event::Arrive { model, request, deadline: now + self.slos[model.index()] }
    }

    fn fault(&mut self, now: Time) -> Option<Event> {
        let Fault { executor, kind, .. } = self.faults.pop()?;
        let state = &mut self.executors[executor.index()];
        Some(match kind {
            FaultKind::Crash => {
                if let Some(run) = state.running.take() {
                    self.stats.busy[executor.index()] += now - run.start;
                }
                state.next = None;
                self.finishes.clear(executor.index());
                self.end_presence(executor.index(), now);
                Event::Fail { executor }
            }
            FaultKind::Join(class) => {
                state.slowness = 1.0;
                self.since[executor.index()] = now;
                Event::Join { executor, class }
            }
            FaultKind::Leave => {
                // It is there until it has finished what it runs.
                let end = state.running.as_ref().map_or(now, |run| run.finish);
                self.end_presence(executor.index(), end);
                Event::Leave { executor }
            }
            FaultKind::Slow(factor) => {
                state.slowness = factor;
                Event::Wakeup
            }
        })
    }

    fn end_presence(&mut self, executor: usize, end: Time) {
        let since = std::mem::replace(&mut self.since[executor], Time::NEVER);
        self.stats.present[executor] += end - since;
    }

    #[inline]
    fn apply(&mut self, now: Time, action: &Action, batch: &[Request]) {
        self.stats.end = now; // A wakeup by itself is nothing that happened.
        match *action {
            Action::Drop { model, reason, .. } => {
                self.stats.models[model.index()].drop(reason);
                self.check_limit(model);
            }
            Action::Run { executor, model, start, latency, .. } => {
                let mut requests = self.spare.pop().unwrap_or_default();
                requests.extend_from_slice(batch);
                let run = Run { executor, model, start, finish: Time::NEVER, requests };
                let state = &mut self.executors[executor.index()];
                if state.running.is_none() {
                    self.begin(run, latency);
                } else {
                    assert!(state.next.is_none(), "{executor} was given a third batch");
                    state.next = Some((run, latency));
                }
            }
            Action::Preempt { executor } => {
                let state = &mut self.executors[executor.index()];
                let mut run = state.running.take().expect("only a running batch is preempted");
                self.stats.busy[executor.index()] += now - run.start;
                self.finishes.clear(executor.index());
                run.requests.clear();
                self.spare.push(run.requests);
            }
        }
    }

    fn begin(&mut self, mut run: Run, planned: Span) {
        let at = run.executor.index();
        let state = &mut self.executors[at];
        let mut latency = planned;
        if let Some((deviation, random)) = &mut self.noise {
            let normal: f64 = StandardNormal.sample(random);
            latency = Span((latency.0 as f64 * (1.0 + *deviation * normal).max(0.1)) as u64);
        }
        if state.slowness != 1.0 {
            latency = Span((latency.0 as f64 * state.slowness) as u64);
        }
        run.finish = run.start + latency;
        self.finishes.set(at, run.finish);
        state.running = Some(run);
    }

    fn finish(&mut self, executor: ExecutorId, observer: &mut impl Observer) {
        let at = executor.index();
        self.finishes.clear(at);
        let mut run = self.executors[at].running.take().expect("a batch ran until it finished");
        observer.finished(&run);
        self.stats.busy[at] += run.finish - run.start;
        let model = &mut self.stats.models[run.model.index()];
        let answered = run.finish + self.resp;
        model.answer(&run.requests, answered);
        if self.keeps_times {
            model.answer_times(&run.requests, run.start, answered);
        }
        self.check_limit(run.model);
        let finish = run.finish;
        run.requests.clear();
        self.spare.push(run.requests);
        if let Some((mut next, latency)) = self.executors[at].next.take() {
            next.start = next.start.max(finish);
            self.begin(next, latency);
        }
    }

    #[inline]
    fn check_limit(&mut self, model: ModelId) {
        if self.stats.models[model.index()].bad() > self.bad_limits[model.index()] {
            self.stats.stopped = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fermata_core::{ClassId, Profile};
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
            loads: vec![Load { spec, arrivals: Arrivals::Recorded(times.into()) }],
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
