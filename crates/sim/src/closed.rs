//! Clients in a closed loop: each sends its next request some time after the last one was answered.
//! They come and go in phases, beside Poisson arrivals.
//!
//! The event loop of `world.rs` knows all arrivals before it begins, which makes it fast. Here an
//! answer decides when the next request comes, so this is a loop of its own: executors next to the
//! dispatcher, of one class, without noise or faults.

use std::collections::HashMap;
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Request, RequestId, Span, Time};
use fermata_dispatch::{Action, Actions, Dispatch, Event, ModelSpec, Network, Policy};
use fermata_workload::{Gaps, Process, Rate, Stream};

/// A time during which the load stays the same.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPhase {
    /// How long requests come.
    pub length: Span,
    /// What asks for each model.
    pub sources: Vec<Source>,
}

/// What asks for a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// Nothing.
    Silent,
    /// Independent requests, so many a second.
    Poisson(f64),
    /// Clients, each with one request at a time.
    Clients {
        /// How many.
        count: usize,
        /// From an answer, or a refusal, to the next request; above zero.
        think: Span,
    },
}

/// How the requests of one model and phase ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// From request to answer, of those answered, in the order of the answers.
    pub latencies: Vec<Span>,
    /// How many of those answered were late.
    pub late: u64,
    /// Not answered.
    pub dropped: u64,
}

impl Answers {
    /// Dropped and late over all.
    pub fn bad_rate(&self) -> f64 {
        let all = self.latencies.len() as u64 + self.dropped;
        (self.dropped + self.late) as f64 / all.max(1) as f64
    }

    /// The latency that `share` of the requests from the `skipped`th answer on do not exceed; zero
    /// if there are none.
    pub fn quantile(&self, share: f64, skipped: usize) -> Span {
        let mut latencies = self.latencies.get(skipped..).unwrap_or_default().to_vec();
        latencies.sort_unstable();
        crate::latencies::quantile(&latencies, share)
    }
}

/// Runs these phases one after the other. The answers are by phase and model; a request belongs to
/// the phase in which it was sent.
pub fn run_phases(
    models: &[Arc<ModelSpec>],
    executors: usize,
    phases: &[LoadPhase],
    policy: Policy,
    seed: u64,
) -> Vec<Vec<Answers>> {
    let mut dispatcher = policy.dispatcher(Network::default());
    let mut actions = Actions::default();
    let mut world = ClosedWorld::new(models, executors, phases, seed);
    let mut handle = |world: &mut ClosedWorld, now: Time, event: Event| {
        dispatcher.handle(now, event, &mut actions);
        for action in &actions.list {
            let batch = match *action {
                Action::Run { first, size, .. } => actions.batch(first, size),
                _ => &[],
            };
            world.apply(now, action, batch);
        }
        actions.clear();
        dispatcher.next_wakeup()
    };
    for (model, spec) in (0..).zip(models) {
        let event = Event::AddModel { model: ModelId(model), spec: spec.clone(), gap: None };
        handle(&mut world, Time::START, event);
    }
    let mut wakeup = Time::NEVER;
    for executor in (0..executors as u32).map(ExecutorId) {
        wakeup = handle(&mut world, Time::START, Event::Join { executor, class: ClassId(0) });
    }
    loop {
        let (done, executor) = world.next_done();
        let (arrival, sender) = world.next_arrival();
        // As in `world.rs`: of things at the same moment first an executor that is done, then an
        // arrival, then the dispatcher's own wakeup.
        let now = done.min(arrival).min(wakeup);
        let event = if now == Time::NEVER {
            return world.answers;
        } else if now == done {
            world.finish(executor);
            Event::Done { executor: ExecutorId(executor as u32) }
        } else if now == arrival {
            world.arrive(now, sender)
        } else {
            Event::Wakeup
        };
        wakeup = handle(&mut world, now, event);
    }
}

/// What sends a request.
#[derive(Clone, Copy, Debug)]
enum Sender {
    /// The stream of the model with this number.
    Stream(usize),
    /// The client with this number.
    Client(usize),
}

/// A client in a closed loop.
#[derive(Clone, Debug)]
struct Client {
    model: usize,
    phase: usize,
    think: Span,
    /// When it sends its next request; never, while it waits for an answer and after its phase.
    next: Time,
}

/// A batch on an executor.
#[derive(Clone, Debug)]
struct Batch {
    model: ModelId,
    finish: Time,
    requests: Vec<Request>,
}

struct ClosedWorld {
    slos: Vec<Span>,
    /// When each phase begins; at the end, when the last one ends.
    boundaries: Vec<Time>,
    /// By model, its stream and the next arrival of it.
    streams: Vec<(Time, Stream)>,
    clients: Vec<Client>,
    /// The clients that wait, by request.
    waiting: HashMap<RequestId, usize>,
    running: Vec<Option<Batch>>,
    requests: u64,
    answers: Vec<Vec<Answers>>,
}

impl ClosedWorld {
    fn new(models: &[Arc<ModelSpec>], executors: usize, phases: &[LoadPhase], seed: u64) -> Self {
        let mut boundaries = vec![Time::START];
        for phase in phases {
            boundaries.push(boundaries[boundaries.len() - 1] + phase.length);
        }
        let stream = |model: usize| {
            let rate = |phase: &LoadPhase| match phase.sources[model] {
                Source::Poisson(rate) => rate,
                Source::Silent | Source::Clients { .. } => 0.0,
            };
            let rates = phases.iter().map(rate).chain([0.0]);
            let rate = Rate::Steps(boundaries.iter().copied().zip(rates).collect());
            let mut stream = Stream::new(Gaps::new(Process::Poisson, seed, model as u64), &rate);
            (stream.next_arrival(), stream)
        };
        let streams = (0..models.len()).map(stream).collect();
        let mut clients = Vec::new();
        for (phase, load) in phases.iter().enumerate() {
            for (model, source) in load.sources.iter().enumerate() {
                if let Source::Clients { count, think } = *source {
                    assert!(think > Span::ZERO, "a client that is refused would ask for ever");
                    let next = boundaries[phase];
                    clients.extend((0..count).map(|_| Client { model, phase, think, next }));
                }
            }
        }
        Self {
            slos: models.iter().map(|spec| spec.slo).collect(),
            boundaries,
            streams,
            clients,
            waiting: HashMap::new(),
            running: vec![None; executors],
            requests: 0,
            answers: vec![vec![Answers::default(); models.len()]; phases.len()],
        }
    }

    /// The executor that is done next, and when.
    fn next_done(&self) -> (Time, usize) {
        let finish =
            |batch: &Option<Batch>| batch.as_ref().map_or(Time::NEVER, |batch| batch.finish);
        let each = self.running.iter().enumerate().map(|(at, batch)| (finish(batch), at));
        each.min().unwrap_or((Time::NEVER, 0))
    }

    /// What sends the next request, and when.
    fn next_arrival(&self) -> (Time, Sender) {
        let streams = self.streams.iter().enumerate();
        let streams = streams.map(|(at, (next, _))| (*next, Sender::Stream(at)));
        let clients = self.clients.iter().enumerate();
        let clients = clients.map(|(at, client)| (client.next, Sender::Client(at)));
        let first = streams.chain(clients).min_by_key(|(next, _)| *next);
        first.unwrap_or((Time::NEVER, Sender::Stream(0)))
    }

    fn arrive(&mut self, now: Time, sender: Sender) -> Event {
        let request = RequestId(self.requests);
        self.requests += 1;
        let model = match sender {
            Sender::Stream(model) => {
                let (next, stream) = &mut self.streams[model];
                *next = stream.next_arrival();
                model
            }
            Sender::Client(at) => {
                self.clients[at].next = Time::NEVER;
                self.waiting.insert(request, at);
                self.clients[at].model
            }
        };
        let deadline = now + self.slos[model];
        Event::Arrive { model: ModelId(model as u32), request, deadline, kind: KindId(0) }
    }

    /// The batch of an executor ends.
    fn finish(&mut self, executor: usize) {
        let batch = self.running[executor].take().expect("an executor is done with a batch");
        for request in &batch.requests {
            let late = batch.finish > request.deadline;
            let latency = batch.finish - request.arrival;
            let answers = self.answers_of(request.arrival, batch.model);
            answers.latencies.push(latency);
            answers.late += u64::from(late);
            self.answered(batch.finish, request.id);
        }
    }

    /// The answers of the phase in which a request was sent.
    fn answers_of(&mut self, arrival: Time, model: ModelId) -> &mut Answers {
        let phase = self.boundaries.partition_point(|&begin| begin <= arrival) - 1;
        let last = self.answers.len() - 1;
        &mut self.answers[phase.min(last)][model.index()]
    }

    /// The client that sent a request, if any, prepares its next one.
    fn answered(&mut self, now: Time, request: RequestId) {
        let Some(at) = self.waiting.remove(&request) else { return };
        let client = &mut self.clients[at];
        let next = now + client.think;
        client.next = if next < self.boundaries[client.phase + 1] { next } else { Time::NEVER };
    }

    fn apply(&mut self, now: Time, action: &Action, batch: &[Request]) {
        match *action {
            Action::Drop { model, request, .. } => {
                self.answers_of(request.arrival, model).dropped += 1;
                self.answered(now, request.id);
            }
            Action::Run { executor, model, start, latency, .. } => {
                let place = &mut self.running[executor.index()];
                assert!(place.is_none(), "without a network, batches start on idle executors");
                let requests = batch.to_vec();
                *place = Some(Batch { model, finish: start + latency, requests });
            }
            Action::Preempt { executor } => self.running[executor.index()] = None,
            Action::Limit { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::Profile;

    use super::*;

    const MS: fn(f64) -> Span = Span::from_ms;

    fn spec(slo_ms: f64) -> Arc<ModelSpec> {
        let profile = Profile::linear(MS(0.1), MS(0.9), MS(20.0)).unwrap();
        Arc::new(ModelSpec::uniform(MS(slo_ms), profile))
    }

    fn phase(sources: &[Source]) -> LoadPhase {
        LoadPhase { length: MS(100.0), sources: sources.to_vec() }
    }

    const ONE: Source = Source::Clients { count: 1, think: Span(250_000) };

    #[test]
    fn a_lone_client_asks_again_when_it_is_answered() {
        let eager = "eager".parse().unwrap();
        let answers = run_phases(&[spec(10.0)], 1, &[phase(&[ONE])], eager, 1);
        // Every 1.25 ms, from 0 to 100.
        assert_eq!(answers[0][0].latencies, vec![MS(1.0); 80]);
        assert_eq!(answers[0][0].bad_rate(), 0.0);
        assert_eq!(answers[0][0].quantile(0.5, 10), MS(1.0));
    }

    #[test]
    fn phases_follow_each_other_and_keep_their_requests() {
        let poisson = [Source::Poisson(2_000.0), Source::Silent];
        let four = Source::Clients { count: 4, think: Span(1000) };
        let phases = [phase(&poisson), phase(&[Source::Silent, four])];
        for policy in ["eager", "fermata", "fermata:release", "deferred"] {
            let answers =
                run_phases(&[spec(20.0), spec(20.0)], 2, &phases, policy.parse().unwrap(), 1);
            let counts: Vec<Vec<usize>> = answers
                .iter()
                .map(|phase| phase.iter().map(|answers| answers.latencies.len()).collect())
                .collect();
            assert!(counts[0][0].abs_diff(200) < 60 && counts[0][1] == 0, "{policy}: {counts:?}");
            assert!(counts[1][0] == 0 && counts[1][1] >= 16, "{policy}: {counts:?}");
        }
    }

    #[test]
    fn a_client_that_is_refused_asks_again_until_its_phase_ends() {
        let eager = "eager".parse().unwrap();
        let answers = run_phases(&[spec(0.5)], 1, &[phase(&[ONE])], eager, 1);
        assert_eq!((answers[0][0].latencies.len(), answers[0][0].dropped), (0, 400));
        assert_eq!(answers[0][0].bad_rate(), 1.0);
        assert_eq!(answers[0][0].quantile(0.5, 0), Span::ZERO);
    }
}
