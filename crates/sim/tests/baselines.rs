//! Every policy through the simulator, under faults and overload, with a checker of the invariants.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, Profile, Request, RequestId, Span, Time};
use fermata_dispatch::{Action, Event, ModelSpec, Network, Policy};
use fermata_sim::{End, Fault, FaultKind, Load, Observer, Run, Scenario, Stats, simulate};
use fermata_workload::Process;

const BASELINES: [&str; 7] =
    ["clipper", "clockwork", "nexus", "orloj", "shepherd", "tfserving", "tfserving:2ms,8"];
const OTHERS: [&str; 5] = ["deferred", "eager", "fermata", "fermata:release", "timeout:5ms-prefix"];

#[test]
fn a_steady_load() {
    check_all(&scenario(4, 400.0));
}

#[test]
fn an_overload() {
    check_all(&scenario(2, 3000.0));
}

#[test]
fn a_crash_a_join_and_a_leave() {
    let mut scenario = scenario(4, 700.0);
    let fault = |ms, executor, kind| {
        let at = Time::from_ms(ms);
        Fault { at, executor: ExecutorId(executor), kind }
    };
    scenario.faults = vec![
        fault(500.0, 1, FaultKind::Crash),
        fault(700.0, 0, FaultKind::Leave),
        fault(900.0, 7, FaultKind::Join(ClassId(0))),
        fault(1200.0, 1, FaultKind::Join(ClassId(0))),
        fault(1500.0, 7, FaultKind::Crash),
        fault(2000.0, 2, FaultKind::Slow(3.0)),
    ];
    check_all(&scenario);
}

#[test]
fn every_executor_goes_and_one_comes_back() {
    let mut scenario = scenario(2, 300.0);
    let crash = |executor| Fault {
        at: Time::from_ms(300.0),
        executor: ExecutorId(executor),
        kind: FaultKind::Crash,
    };
    let join = Fault {
        at: Time::from_ms(800.0),
        executor: ExecutorId(0),
        kind: FaultKind::Join(ClassId(0)),
    };
    scenario.faults = vec![crash(0), crash(1), join];
    check_all(&scenario);
}

#[test]
fn noise_and_distance() {
    let mut scenario = scenario(4, 500.0);
    scenario.noise = 0.1;
    scenario.network =
        Network { ctrl: Span::from_ms(0.1), data: Span::from_ms(0.05), resp: Span::from_ms(2.0) };
    check_all(&scenario);
}

#[test]
fn two_classes_one_of_which_cannot_run_every_model() {
    let mut scenario = scenario(3, 500.0);
    scenario.executors.extend([ClassId(1); 3]);
    for (at, load) in scenario.loads.iter_mut().enumerate() {
        let mut spec = (*load.spec).clone();
        let twice = Profile::linear(Span::from_ms(2.0), Span::from_ms(12.0), load.slo()).unwrap();
        spec.profiles.push((at > 0).then(|| Arc::new(twice)));
        load.spec = Arc::new(spec);
    }
    check_all(&scenario);
}

/// Four models of which the first is the tightest, in bursts.
fn scenario(executors: usize, rate: f64) -> Scenario {
    let load = |slo: f64| {
        let slo = Span::from_ms(slo);
        let profile = Profile::linear(Span::from_ms(1.0), Span::from_ms(6.0), slo).unwrap();
        Load::steady(Arc::new(ModelSpec::uniform(slo, profile)), Process::Gamma(0.3), rate / 4.0)
    };
    Scenario {
        loads: [20.0, 35.0, 50.0, 100.0].map(load).to_vec(),
        executors: vec![ClassId(0); executors],
        network: Network::default(),
        end: End::At(Time::from_ms(3000.0)),
        seed: 7,
        noise: 0.0,
        faults: Vec::new(),
    }
}

fn check_all(scenario: &Scenario) {
    for name in BASELINES.iter().chain(&OTHERS) {
        let (stats, trace) = check(scenario, name);
        assert_eq!((stats, trace), check(scenario, name), "{name} differs from itself");
    }
}

fn check(scenario: &Scenario, name: &str) -> (Stats, Vec<u64>) {
    let policy: Policy = name.parse().unwrap();
    let mut checker = Checker { name: name.to_string(), ..Checker::default() };
    let mut dispatcher = policy.dispatcher(scenario.network);
    let stats = simulate(scenario, &mut dispatcher, &mut checker, None);
    let total = stats.total();
    assert!(total.offered > 300, "{name}: {} requests are no test", total.offered);
    assert_eq!(total.offered, total.in_time + total.late + total.dropped, "{name}");
    assert!(total.in_time > 0, "{name} serves nobody");
    assert!(checker.places.is_empty(), "{name} forgot {:?}", checker.places.first_key_value());
    let exact = scenario.noise == 0.0
        && !scenario.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Slow(_)));
    let looks_ahead = !name.starts_with("clipper") && !name.starts_with("tfserving");
    if exact && looks_ahead {
        assert_eq!(total.late, 0, "{name} starts what must be late");
    }
    (stats, checker.trace)
}

/// Where each request is, and what each executor was given.
#[derive(Default)]
struct Checker {
    name: String,
    /// Who is in the system: waiting, or at an executor.
    places: BTreeMap<RequestId, Option<ExecutorId>>,
    /// Batches given and not done.
    given: BTreeMap<ExecutorId, usize>,
    /// When each executor was last seen to end or stop a batch.
    free: BTreeMap<ExecutorId, Time>,
    last_wakeup: Option<Time>,
    trace: Vec<u64>,
}

impl Checker {
    /// Everything on an executor waits again.
    fn bring_back(&mut self, now: Time, executor: ExecutorId) {
        for place in self.places.values_mut().filter(|place| **place == Some(executor)) {
            *place = None;
        }
        self.given.insert(executor, 0);
        self.free.insert(executor, now);
    }
}

impl Observer for Checker {
    fn event(&mut self, now: Time, event: &Event) {
        let name = &self.name;
        let woken = self.last_wakeup.take();
        match event {
            Event::Arrive { request, .. } => {
                assert!(self.places.insert(*request, None).is_none());
            }
            Event::Done { executor } => {
                let given = self.given.get_mut(executor).unwrap();
                *given -= 1;
            }
            Event::Fail { executor } => self.bring_back(now, *executor),
            Event::Wakeup => {
                assert!(woken.is_none_or(|last| last < now), "{name} wakes for nothing at {now}");
                self.last_wakeup = Some(now);
            }
            _ => {}
        }
    }

    fn action(&mut self, now: Time, action: &Action, batch: &[Request]) {
        let name = self.name.clone();
        match *action {
            Action::Drop { request, .. } => {
                let place = self.places.remove(&request.id);
                assert_eq!(place, Some(None), "{name} drops {} which does not wait", request.id);
                self.trace.push(request.id.0);
            }
            Action::Limit { .. } => assert!(name.starts_with("fermata"), "{name}"),
            Action::Preempt { executor } => {
                assert_eq!(name, "shepherd");
                assert_eq!(self.given[&executor], 1);
                self.bring_back(now, executor);
                self.trace.push(u64::MAX);
            }
            Action::Run { executor, start, .. } => {
                assert!(!batch.is_empty() && start >= now, "{name}");
                let given = self.given.entry(executor).or_default();
                *given += 1;
                assert!(*given <= 2, "{name} gives {executor} a third batch");
                for request in batch {
                    let place = self.places.insert(request.id, Some(executor));
                    assert_eq!(place, Some(None), "{name} runs {} twice", request.id);
                    assert!(start <= request.deadline, "{name} starts {} expired", request.id);
                    self.trace.push(request.id.0);
                }
                self.trace.extend([u64::from(executor.0), start.0]);
            }
        }
    }

    fn finished(&mut self, run: &Run) {
        let name = &self.name;
        let free = self.free.insert(run.executor, run.finish).unwrap_or(Time::START);
        assert!(run.start >= free, "{name}: batches overlap on {}", run.executor);
        for request in &run.requests {
            let place = self.places.remove(&request.id);
            assert_eq!(place, Some(Some(run.executor)), "{name}: {} was not here", request.id);
        }
    }
}
