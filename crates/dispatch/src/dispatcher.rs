//! Model machines and one rank machine on one thread: the dispatcher that the simulator runs, and
//! the truth that a composition on many threads is held against.

use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Request, RequestId, Span, Time};

use crate::blocking::Need;
use crate::event::{Action, Actions, Dispatch, DropReason, Event, ModelSpec, Network};
use crate::in_flight::InFlight;
use crate::lane::Arrival;
use crate::min_tree::MinTree;
use crate::model::ModelMachine;
use crate::price::{Market, Report};
use crate::rank::{Grant, RankMachine};
use crate::rules::{Gather, Rules};
use crate::tuning::Learned;
use crate::variant::{Variant, limited};

/// The machines of one pool, composed.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    rules: Rules,
    network: Network,
    models: Vec<Option<ModelMachine>>,
    /// What is known of each model, with batches as long as they may be.
    specs: Vec<Option<Arc<ModelSpec>>>,
    /// No batch of more than one request takes longer.
    longest: Span,
    /// Models are taken to bear to wait this many times as long as they can.
    bears: f64,
    /// Each model's next timer: a drop, or a candidate that must be formed anew.
    timers: MinTree,
    rank: RankMachine,
    running: InFlight,
    market: Market,
    /// Models of which a candidate just became ready.
    promoted: Vec<ModelId>,
    /// Whether a model lost a good deal of its requests lately.
    is_in_trouble: bool,
}

/// In a pool of more executors, in which no batch may block another model, bursts even out:
/// contests gained 0.3 % at most on 64 executors, and a request cost ten times the processor time.
const CONTESTED_MAX: usize = 32;
/// A pool is in trouble when a model loses this share of its requests.
const TROUBLE: f64 = 0.003;

impl Dispatcher {
    /// A pool without executors and models.
    pub fn new(rules: Rules, network: Network) -> Self {
        let mut rank = RankMachine::new(network);
        rank.set_unblocking(rules.gather == Gather::Priced);
        Self {
            rules,
            network,
            models: Vec::new(),
            specs: Vec::new(),
            longest: Span::MAX,
            bears: 1.0,
            timers: MinTree::default(),
            rank,
            running: InFlight::default(),
            market: Market::default(),
            promoted: Vec::new(),
            is_in_trouble: false,
        }
    }

    /// Goes on under the rules of a variant, with what each model learned under them before. What
    /// waits stays; `Wakeup` must follow at once.
    pub(crate) fn adopt(&mut self, now: Time, variant: &Variant, learned: &[Learned]) {
        self.rules = variant.rules;
        self.longest = variant.longest;
        self.bears = variant.bears;
        self.market.set_leaves_one(variant.leaves_one);
        self.rank.set_unblocking(variant.rules.gather == Gather::Priced);
        for at in 0..self.models.len() {
            if let (Some(machine), Some(spec)) = (&mut self.models[at], self.specs[at].clone()) {
                machine.set_rules(variant.rules, learned.get(at).copied());
                self.set_profile(now, ModelId(at as u32), spec);
                self.publish(ModelId(at as u32));
            }
        }
    }

    /// What each model learned of its losses under the present rules.
    pub(crate) fn learned(&self) -> Vec<Learned> {
        let learned = |machine: &Option<ModelMachine>| {
            machine.as_ref().map(ModelMachine::learned).unwrap_or_default()
        };
        self.models.iter().map(learned).collect()
    }

    /// How many models there is room for.
    pub(crate) fn models(&self) -> usize {
        self.models.len()
    }

    /// Whether there is such a model.
    pub(crate) fn serves(&self, model: ModelId) -> bool {
        self.specs.get(model.index()).is_some_and(Option::is_some)
    }

    /// When each batch that runs is expected to end, and where.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (Time, ExecutorId)> {
        self.rank.batch_ends()
    }

    /// The shortest and the longest objective of the models that are asked for.
    pub(crate) fn objectives(&self, shares: &[f64]) -> (Span, Span) {
        let asked = self.specs.iter().zip(shares).filter(|(_, share)| **share > 0.0);
        let slos = asked.filter_map(|(spec, _)| Some(spec.as_ref()?.slo));
        slos.fold((Span::MAX, Span::ZERO), |(least, most), slo| (least.min(slo), most.max(slo)))
    }

    /// Whether a model lost a good deal of its requests since this was last taken.
    #[inline]
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.is_in_trouble
    }

    /// The same; from now on it is no more.
    pub(crate) fn take_trouble(&mut self) -> bool {
        std::mem::take(&mut self.is_in_trouble)
    }

    /// Whether other rules could be better: there are several models, which may block each other or
    /// have few executors, and the time that batches take is known beforehand.
    pub(crate) fn may_be_contested(&self) -> bool {
        let is_spread = |spec: &Arc<ModelSpec>| {
            spec.profiles.iter().flatten().any(|profile| profile.spread().is_some())
        };
        let specs = self.specs.iter().flatten();
        let is_small = (1..=CONTESTED_MAX).contains(&self.rank.executors());
        let may_gain = specs.clone().count() > 1 && (is_small || self.rank.may_block());
        may_gain && !specs.clone().any(is_spread)
    }

    fn set_profile(&mut self, now: Time, model: ModelId, spec: Arc<ModelSpec>) {
        let Some(Some(machine)) = self.models.get_mut(model.index()) else { return };
        for (class, _) in machine.candidates() {
            self.rank.inform_candidate(now, model, class, None);
        }
        let limited = limited(&spec, self.longest);
        machine.set_profile(&limited, self.market.signal());
        self.rank.set_tables(model, &limited);
        self.specs[model.index()] = Some(spec);
        self.timers.set(model.index(), now); // What became hopeless goes at once.
    }

    /// Queues or drops a request; true, if an executor may have to be granted because of it. It
    /// comes in pieces, which are in registers: put together by the caller it would be written by
    /// halves and read as a whole, and the processor waits for that.
    #[inline]
    fn arrive(
        &mut self,
        now: Time,
        model: ModelId,
        (deadline, id, kind): (Time, RequestId, KindId),
        actions: &mut Actions,
    ) -> bool {
        let request = Request { deadline, id, arrival: now, kind };
        let Some(machine) = self.models.get_mut(model.index()).and_then(Option::as_mut) else {
            actions.drop(model, request, DropReason::NotLoaded);
            return false;
        };
        let arrival = machine.arrive(now, request, self.market.signal());
        let has_news = machine.has_news();
        match arrival {
            Arrival::Changed => self.refresh(now, model),
            Arrival::Held => {
                if let Some((class, candidate)) = machine.held() {
                    self.rank.inform_held(model, class, candidate);
                }
            }
            Arrival::Refused => actions.drop(model, request, DropReason::Late),
            Arrival::Unchanged => {}
        }
        if has_news {
            self.publish(model);
        }
        arrival == Arrival::Changed
    }

    fn come_back(&mut self, now: Time, executor: ExecutorId, actions: &mut Actions) {
        while let Some((model, requests)) = self.running.take(executor) {
            for &request in &requests {
                let Some(machine) = self.models[model.index()].as_mut() else {
                    actions.drop(model, request, DropReason::NotLoaded);
                    continue;
                };
                if let Err(request) = machine.come_back(now, request, self.market.signal()) {
                    actions.drop(model, request, DropReason::Overload);
                }
            }
            self.refresh(now, model);
        }
    }

    fn wake(&mut self, now: Time, actions: &mut Actions) {
        while self.timers.earliest() <= now {
            let Some(at) = self.timers.first() else { return };
            self.timers.clear(at);
            let model = ModelId(at as u32);
            if let Some(machine) = self.models[at].as_mut() {
                machine.wake(now, self.market.signal(), |request| {
                    actions.drop(model, request, DropReason::Overload);
                });
                if machine.has_news() {
                    self.publish(model);
                }
            }
            self.refresh(now, model);
        }
    }

    fn start(&mut self, now: Time, grant: Grant, actions: &mut Actions) {
        let Grant { model, executor, class, free_at, longest, limited_by } = grant;
        let first = actions.requests.len();
        let machine = self.models[model.index()].as_mut();
        let (list, batch) = (&mut actions.list, &mut actions.requests);
        let start = machine.and_then(|machine| {
            machine.granted(
                now,
                class,
                (free_at, longest),
                self.market.signal(),
                batch,
                |request| {
                    let reason = DropReason::Overload;
                    list.push(Action::Drop { model, request, reason });
                },
            )
        });
        match start {
            Some(start) => {
                self.running.start(executor, model, &actions.requests[first..]);
                let size = actions.requests.len() - first;
                if let Some(by) = limited_by.or_else(|| self.limits_all(model, class, size)) {
                    actions.list.push(Action::Limit { model, by });
                }
                actions.run(executor, model, start.start, start.latency, first);
                self.rank.inform_executor(executor, start.start, start.latency);
                self.market.note_batch(start.latency);
            }
            None => {
                self.rank.return_executor(executor);
                // The wakeup came so late that the candidate passed its latest moment: it is formed
                // anew, or it would be granted again and again.
                if let Some(machine) = self.models[model.index()].as_mut() {
                    machine.wake(now, self.market.signal(), |request| {
                        actions.drop(model, request, DropReason::Overload);
                    });
                }
            }
        }
        self.refresh(now, model);
    }

    /// For which model a batch of this size is the largest, where the rules in use limit the length
    /// of all batches.
    fn limits_all(&self, model: ModelId, class: ClassId, size: usize) -> Option<ModelId> {
        if self.longest == Span::MAX {
            return None;
        }
        let profile = self.specs[model.index()].as_ref()?.profile(class)?;
        let is_limited = size < profile.max_batch() && profile.latency(size + 1) > self.longest;
        self.rank.least_bearing().filter(|&by| is_limited && by != model)
    }

    /// Hands a model's candidates to the rank machine, and its next timer to the timers. While
    /// every candidate is held it needs no timer: the rank machine will say when one is ready.
    #[inline]
    fn refresh(&mut self, now: Time, model: ModelId) {
        let at = model.index();
        let Some(machine) = &self.models[at] else { return self.timers.clear(at) };
        for (class, candidate) in machine.candidates() {
            self.rank.inform_candidate(now, model, class, candidate);
        }
        if !machine.is_held(now) {
            self.arm(now, model);
        }
    }

    /// Sees to it that the model is woken when it must be. A timer that goes off earlier stays: it
    /// costs one idle wakeup, which is less than to move it with every batch.
    #[inline]
    fn arm(&mut self, now: Time, model: ModelId) {
        let at = model.index();
        let Some(machine) = &self.models[at] else { return };
        let (armed, needed) = (self.timers.get(at), machine.next_timer());
        if armed > needed || armed <= now {
            self.timers.set(at, needed);
        }
    }

    /// Tells the market what a model has measured.
    #[cold]
    fn publish(&mut self, model: ModelId) {
        if let Some(machine) = &mut self.models[model.index()] {
            let need = machine.need();
            let bears = Span((self.bears * need.bears.0 as f64) as u64);
            self.rank.set_need(model, Need { bears, ..need });
            let (before, after) = machine.news();
            self.market.report(Some(before), Some(after));
            self.is_in_trouble |= after.bad > TROUBLE;
            self.rank.set_pause(self.market.pause());
        }
    }
    /// What happens seldom: the pool or its models change, or a client does not wait.
    #[cold]
    fn change(&mut self, now: Time, event: Event, actions: &mut Actions) {
        match event {
            Event::AddModel { model, spec, .. } => {
                if model.index() >= self.models.len() {
                    self.models.resize_with(model.index() + 1, || None);
                    self.specs.resize(model.index() + 1, None);
                    self.timers.grow(model.index() + 1);
                    self.rank.grow(model.index() + 1);
                }
                let slot = &mut self.models[model.index()];
                assert!(slot.is_none(), "model {model} was added twice");
                let limited = limited(&spec, self.longest);
                *slot = Some(ModelMachine::new(now, &limited, self.rules, self.network));
                self.rank.set_data(model, spec.data);
                self.rank.set_tables(model, &limited);
                self.specs[model.index()] = Some(spec);
                self.market.report(None, Some(Report::default()));
            }
            Event::Cancel { model, request, deadline } => {
                let machine = self.models.get_mut(model.index()).and_then(Option::as_mut);
                let key = (deadline, request);
                if let Some(request) =
                    machine.and_then(|m| m.cancel(now, key, self.market.signal()))
                {
                    actions.drop(model, request, DropReason::Cancelled);
                    self.refresh(now, model);
                }
            }
            Event::Fail { executor } => {
                self.rank.fail(executor);
                self.come_back(now, executor, actions);
                self.market.set_executors(self.rank.executors(), self.rank.main_class());
            }
            Event::Join { executor, class } => {
                self.rank.join(now, executor, class);
                self.market.set_executors(self.rank.executors(), self.rank.main_class());
            }
            Event::Leave { executor } => {
                self.rank.leave(executor);
                self.market.set_executors(self.rank.executors(), self.rank.main_class());
            }
            Event::Late { by } => self.market.set_slack(by),
            Event::Profile { model, spec } => self.set_profile(now, model, spec),
            Event::RemoveModel { model } => {
                let slot = self.models.get_mut(model.index());
                if let Some(mut machine) = slot.and_then(Option::take) {
                    self.specs[model.index()] = None;
                    self.market.report(Some(machine.reported()), None);
                    self.rank.set_need(model, Need::default());
                    for request in machine.clear() {
                        actions.drop(model, request, DropReason::NotLoaded);
                    }
                    for (class, _) in machine.candidates() {
                        self.rank.inform_candidate(now, model, class, None);
                    }
                    self.timers.clear(model.index());
                }
            }
            Event::Arrive { .. } | Event::Done { .. } | Event::Wakeup => {
                unreachable!("{event:?} happens often");
            }
        }
    }

    /// Wakes whom it is time for, and grants executors until nothing more is due.
    #[inline(never)]
    fn settle(&mut self, now: Time, actions: &mut Actions) {
        loop {
            self.wake(now, actions);
            if let Some(grant) = self.rank.grant_alone(now) {
                self.promoted.push(grant.model);
                self.start(now, grant, actions);
            }
            while let Some(model) = self.rank.next_ready(now) {
                self.promoted.push(model);
            }
            while let Some(grant) = self.rank.poll(now) {
                self.start(now, grant, actions);
            }
            while let Some(model) = self.promoted.pop() {
                // It may have been granted an executor, and then need no timer.
                self.arm(now, model);
            }
            // A wakeup that came late may find that what became ready has passed its latest moment
            // too.
            if self.timers.earliest() > now {
                return;
            }
        }
    }
}

impl Dispatch for Dispatcher {
    // An event is nearly always made where it is handled: there only its own arm is left.
    #[inline(always)]
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions) {
        match event {
            Event::Arrive { model, request, deadline, kind } => {
                if !self.arrive(now, model, (deadline, request, kind), actions) {
                    return; // What else may be due at this moment has its own wakeup.
                }
            }
            Event::Done { executor } => {
                self.running.done(executor);
                self.rank.done(now, executor);
            }
            Event::Wakeup => {}
            seldom => self.change(now, seldom, actions),
        }
        if self.timers.earliest() <= now || !self.rank.is_settled(now) {
            self.settle(now, actions);
        }
        self.market.set_idle(self.rank.idle());
    }

    #[inline]
    fn next_wakeup(&self) -> Time {
        self.timers.earliest().min(self.rank.next_wakeup())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fermata_core::{ClassId, Profile, Span};

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
            let event = Event::Arrive {
                model,
                request: RequestId(id),
                deadline: now + slo,
                kind: KindId(0),
            };
            dispatcher.handle(now, event, &mut actions);
        }
        let measured = dispatcher.models[0].as_ref().unwrap().reported().load;
        assert!(measured > 0.0);
        assert!((dispatcher.market.signal().load - measured).abs() < 1e-9, "{measured}");
    }

    #[test]
    fn a_request_without_a_deadline_for_a_model_that_runs_nowhere_is_dropped() {
        let mut dispatcher = Dispatcher::new(Rules::EAGER, Network::default());
        let mut actions = Actions::default();
        let spec = Arc::new(ModelSpec::new(Span::from_ms(25.0), vec![None]));
        let model = ModelId(0);
        dispatcher.handle(Time::START, Event::AddModel { model, spec, gap: None }, &mut actions);
        let event =
            Event::Arrive { model, request: RequestId(1), deadline: Time::NEVER, kind: KindId(0) };
        dispatcher.handle(Time::START, event, &mut actions);
        assert_eq!(actions.list.len(), 1);
        assert_eq!(dispatcher.next_wakeup(), Time::NEVER);
    }
}
