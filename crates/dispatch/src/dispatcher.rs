//! Model machines and one rank machine on one thread: the dispatcher that the simulator runs, and the
//! truth that a composition on many threads is held against.

use fermata_core::{ExecutorId, ModelId, Request, Span, Time};

use crate::event::{Actions, Dispatch, DropReason, Event, Network};
use crate::in_flight::InFlight;
use crate::min_tree::MinTree;
use crate::model::ModelMachine;
use crate::price::{Signal, idle_price};
use crate::rank::{Grant, RankMachine};
use crate::rules::Rules;

/// The machines of one pool, composed.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    rules: Rules,
    network: Network,
    models: Vec<Option<ModelMachine>>,
    /// Each model's next timer: a drop, or a candidate that must be formed anew.
    timers: MinTree,
    rank: RankMachine,
    running: InFlight,
    signal: Signal,
    /// The executors that all models need together.
    load: f64,
}

impl Dispatcher {
    /// A pool without executors and models.
    pub fn new(rules: Rules, network: Network) -> Self {
        Self {
            rules,
            network,
            models: Vec::new(),
            timers: MinTree::default(),
            rank: RankMachine::new(network),
            running: InFlight::default(),
            signal: Signal::default(),
            load: 0.0,
        }
    }

    fn arrive(&mut self, now: Time, model: ModelId, request: Request, actions: &mut Actions) {
        let Some(machine) = self.models.get_mut(model.index()).and_then(Option::as_mut) else {
            return actions.drop(model, request, DropReason::NotLoaded);
        };
        let before = machine.load();
        let arrived = machine.arrive(now, request, &self.signal);
        let change = machine.load() - before;
        match arrived {
            Err(request) => actions.drop(model, request, DropReason::Late),
            Ok(_) => self.refresh(now, model),
        }
        if change != 0.0 {
            self.load += change;
            self.update_signal();
        }
    }

    fn come_back(&mut self, now: Time, executor: ExecutorId, actions: &mut Actions) {
        while let Some((model, requests)) = self.running.take(executor) {
            for &request in &requests {
                let Some(machine) = self.models[model.index()].as_mut() else {
                    actions.drop(model, request, DropReason::NotLoaded);
                    continue;
                };
                if let Err(request) = machine.come_back(now, request, &self.signal) {
                    actions.drop(model, request, DropReason::Overload);
                }
            }
            self.running.recycle(requests);
            self.refresh(now, model);
        }
    }

    fn wake(&mut self, now: Time, actions: &mut Actions) {
        while self.timers.earliest() <= now {
            let Some(at) = self.timers.first() else { return };
            let model = ModelId(at as u32);
            if let Some(machine) = self.models[at].as_mut() {
                machine.wake(now, &self.signal, |request| {
                    actions.drop(model, request, DropReason::Overload);
                });
            }
            self.refresh(now, model);
        }
    }

    fn start(&mut self, now: Time, grant: Grant, actions: &mut Actions) {
        let Grant { model, executor, class, free_at } = grant;
        let scarce = if self.rank.idle() == 0 { 1.0 } else { 0.0 };
        let first = actions.requests.len();
        let machine = self.models[model.index()].as_mut();
        let (list, batch) = (&mut actions.list, &mut actions.requests);
        let start = machine.and_then(|machine| {
            machine.granted(now, class, free_at, &self.signal, batch, |request| {
                let reason = DropReason::Overload;
                list.push(crate::event::Action::Drop { model, request, reason });
            })
        });
        match start {
            Some(start) => {
                self.running.start(executor, model, &actions.requests[first..]);
                actions.run(executor, model, start.start, start.latency, first);
                self.rank.inform_executor(executor, start.start + start.latency);
                self.signal.mean_latency +=
                    (start.latency.0 as f64 - self.signal.mean_latency) * 0.01;
                self.signal.scarce += (scarce - self.signal.scarce) * 0.01;
            }
            None => self.rank.return_executor(executor),
        }
        self.refresh(now, model);
    }

    /// Hands a model's candidates to the rank machine, and its next timer to the timers.
    #[inline]
    fn refresh(&mut self, now: Time, model: ModelId) {
        let Some(machine) = &self.models[model.index()] else {
            return self.timers.clear(model.index());
        };
        for (class, candidate) in machine.candidates() {
            self.rank.inform_candidate(now, model, class, candidate);
        }
        self.timers.set(model.index(), machine.next_timer());
    }

    fn update_signal(&mut self) {
        let executors = self.rank.executors();
        let load = self.load / executors.max(1) as f64;
        let margin = self.signal.mean_latency / executors.max(1) as f64
            * crate::price::param(7, 1.0)
            * self.signal.scarce.powf(crate::price::param(8, 0.0));
        self.signal = Signal {
            price: idle_price(load, executors) * {
                let (mut num, mut den) = (0.0, 1e-9);
                for m in self.models.iter().flatten() {
                    num += m.tuning.load * m.tuning.variation;
                    den += m.tuning.load;
                }
                if crate::price::param(27, 1.0) > 0.5 {
                    (crate::price::param(28, 1.0) + num / den) / 2.0
                } else {
                    1.0
                }
            },
            load,
            executors,
            margin: Span(margin as u64),
            ..self.signal
        };
        let (mut num, mut den) = (0.0, 1e-9);
        for m in self.models.iter().flatten() {
            let w = if crate::price::param(22, 0.0) > 0.5 { 1.0 } else { m.tuning.load };
            num += w * m.tuning.gain;
            den += w;
        }
        let gain = num / den;
        let band = crate::price::param(23, 0.1);
        let price = self.signal.price.max(crate::price::param(1, 0.01));
        self.signal.hold = if self.signal.hold {
            gain > price * (1.0 - band)
        } else {
            gain > price * (1.0 + band)
        };
        let n = self.models.iter().flatten().count().max(1) as f64;
        self.signal.bad = self.models.iter().flatten().map(|m| m.tuning.bad).sum::<f64>() / n;
    }
}

impl Dispatch for Dispatcher {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions) {
        match event {
            Event::Arrive { model, request, deadline } => {
                let request = Request { deadline, id: request, arrival: now };
                self.arrive(now, model, request, actions);
            }
            Event::Done { executor } => {
                self.running.done(executor);
                self.rank.done(now, executor);
            }
            Event::Wakeup => {}
            Event::AddModel { model, spec, .. } => {
                if model.index() >= self.models.len() {
                    self.models.resize_with(model.index() + 1, || None);
                    self.timers.grow(model.index() + 1);
                }
                let slot = &mut self.models[model.index()];
                assert!(slot.is_none(), "model {model} was added twice");
                *slot = Some(ModelMachine::new(now, &spec, self.rules, self.network));
            }
            Event::Cancel { model, request, deadline } => {
                let machine = self.models.get_mut(model.index()).and_then(Option::as_mut);
                let key = (deadline, request);
                if let Some(request) = machine.and_then(|m| m.cancel(now, key, &self.signal)) {
                    actions.drop(model, request, DropReason::Cancelled);
                    self.refresh(now, model);
                }
            }
            Event::Fail { executor } => {
                self.rank.fail(executor);
                self.come_back(now, executor, actions);
                self.update_signal();
            }
            Event::Join { executor, class } => {
                self.rank.join(now, executor, class);
                self.update_signal();
            }
            Event::Leave { executor } => {
                self.rank.leave(executor);
                self.update_signal();
            }
            Event::RemoveModel { model } => {
                if let Some(mut machine) = self.models[model.index()].take() {
                    self.load -= machine.load();
                    let waiting = machine.clear();
                    waiting.for_each(|request| actions.drop(model, request, DropReason::NotLoaded));
                    for (class, _) in machine.candidates() {
                        self.rank.inform_candidate(now, model, class, None);
                    }
                    self.timers.clear(model.index());
                    self.update_signal();
                }
            }
        }
        self.wake(now, actions);
        while let Some(grant) = self.rank.poll(now) {
            self.start(now, grant, actions);
        }
    }

    fn next_wakeup(&self) -> Time {
        self.timers.earliest().min(self.rank.next_wakeup())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fermata_core::{ClassId, Profile, RequestId, Span};

    use super::*;
    use crate::event::ModelSpec;

    #[test]
    fn load_keeps_what_is_measured_by_a_request_that_comes_too_late() {
        let mut dispatcher = Dispatcher::new(Rules::FERMATA, Network::default());
        let mut actions = Actions::default();
        let ms = Span::from_ms;
        let profile = Profile::linear(ms(1.0), ms(5.0), ms(25.0)).unwrap();
        let spec = Arc::new(ModelSpec::uniform(ms(25.0), profile));
        let model = ModelId(0);
        dispatcher.handle(Time::START, Event::AddModel { model, spec, gap: None }, &mut actions);
        let join = Event::Join { executor: ExecutorId(0), class: ClassId(0) };
        dispatcher.handle(Time::START, join, &mut actions);
        for id in 1..400 {
            let now = Time::from_ms(id as f64);
            // Those that fall on a measurement, each 50 ms, have expired.
            let slo = if id % 50 == 0 { ms(0.0) } else { ms(25.0) };
            let event = Event::Arrive { model, request: RequestId(id), deadline: now + slo };
            dispatcher.handle(now, event, &mut actions);
        }
        let measured = dispatcher.models[0].as_ref().unwrap().load();
        assert!(measured > 0.0);
        assert!((dispatcher.load - measured).abs() < 1e-9, "{} {measured}", dispatcher.load);
    }

    #[test]
    fn a_request_without_a_deadline_for_a_model_that_runs_nowhere_is_dropped() {
        let mut dispatcher = Dispatcher::new(Rules::EAGER, Network::default());
        let mut actions = Actions::default();
        let spec = Arc::new(ModelSpec { slo: Span::from_ms(25.0), profiles: vec![None] });
        let model = ModelId(0);
        dispatcher.handle(Time::START, Event::AddModel { model, spec, gap: None }, &mut actions);
        let event = Event::Arrive { model, request: RequestId(1), deadline: Time::NEVER };
        dispatcher.handle(Time::START, event, &mut actions);
        assert_eq!(actions.list.len(), 1);
        assert_eq!(dispatcher.next_wakeup(), Time::NEVER);
    }
}
