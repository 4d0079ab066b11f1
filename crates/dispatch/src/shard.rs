//! Some of a pool's model machines with their timers, and what they and the hub tell each other.
//!
//! The [`Dispatcher`](crate::Dispatcher) has all machines of a pool in one place. Here they are
//! taken apart, so that a shard and the [`Hub`](crate::Hub) can run on threads of their own:
//! between them go plain values only, and any of them may take its time. `docs/scheduler.md` has
//! the protocol, and why nothing is lost or done twice.
//!
//! Holding needs nobody but the model itself. So a candidate is the shard's own until it is ready,
//! and the hub hears of a batch two or three times in its life, not with every request.

use fermata_core::{ClassId, ExecutorId, ModelId, Request, RequestId, Span, Time};

use crate::candidate::Candidate;
use crate::event::{Actions, DropReason, ModelSpec, Network};
use crate::lane::Arrival;
use crate::min_tree::MinTree;
use crate::model::ModelMachine;
use crate::price::{Report, Signal};
use crate::rank::Grant;
use crate::rules::Rules;

/// What a model has to send to executors of one class: the newest is all that matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostedCandidate {
    /// The candidate that is ready; none, if it has no requests.
    pub candidate: Candidate,
    /// How many grants the model had answered when this was posted. The hub heeds only what was
    /// posted in the knowledge of all that it granted: a candidate of before is made of requests
    /// that may be gone.
    pub answered: u32,
}

/// An executor that the hub promised to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// To whom, and which.
    pub grant: Grant,
    /// Which of the executor's stays this is about: it may have left and come back.
    pub incarnation: u32,
    /// When the candidate was ready.
    pub ready: Time,
}

/// What a shard tells the hub: in order, and all of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum News {
    /// A promise was used. The hub must hear of it before the executor can be done.
    Started {
        /// Which executor.
        executor: ExecutorId,
        /// Of which of its stays.
        incarnation: u32,
        /// When the batch starts.
        start: Time,
        /// How long it takes.
        latency: Span,
    },
    /// A promise was not used.
    Returned {
        /// Which executor.
        executor: ExecutorId,
        /// Of which of its stays.
        incarnation: u32,
    },
    /// Models joined the market (`None` before), left it (`None` after), or report anew.
    Reported {
        /// What the market was told before.
        before: Option<Report>,
        /// What it should know now.
        after: Option<Report>,
    },
}

/// The way from a shard to the hub.
pub trait ToHub {
    /// Replaces what was posted before for this model and class.
    fn post(&mut self, model: ModelId, class: ClassId, post: PostedCandidate);
    /// Sends news.
    fn tell(&mut self, news: News);
}

/// Every `shards`-th model of a pool, from `index` on.
#[derive(Clone, Debug)]
pub struct Shard {
    rules: Rules,
    network: Network,
    index: u32,
    shards: u32,
    /// How many classes of executors there are.
    classes: usize,
    /// By place: that of model `m` is `m / shards`.
    models: Vec<Option<ModelMachine>>,
    /// What the hub knows of each model.
    posted: Vec<Posted>,
    /// Each model's next timer: a drop, or a candidate that must be formed anew.
    timers: MinTree,
    /// Candidates that are not ready yet, by `ready`, for each place and class.
    held: MinTree,
    /// What the market said last.
    signal: Signal,
}

#[derive(Clone, Copy, Debug, Default)]
struct Posted {
    /// How many grants were answered. It outlives the model, whose id may be used again.
    answered: u32,
    /// The classes for which a candidate is posted, a bit each.
    classes: u32,
}

/// A set of bits has no more.
const CLASSES_MAX: usize = 32;

impl Shard {
    /// The one at `index` of so many shards, without models, in a pool with so many classes of
    /// executors.
    pub fn new(
        rules: Rules,
        network: Network,
        index: usize,
        shards: usize,
        classes: usize,
    ) -> Self {
        assert!(index < shards, "shard {index} of {shards}");
        assert!((1..=CLASSES_MAX).contains(&classes), "one to {CLASSES_MAX} classes");
        Self {
            rules,
            network,
            index: index as u32,
            shards: shards as u32,
            classes,
            models: Vec::new(),
            posted: Vec::new(),
            timers: MinTree::default(),
            held: MinTree::default(),
            signal: Signal::default(),
        }
    }

    /// What the market says.
    #[inline]
    pub fn set_signal(&mut self, signal: Signal) {
        self.signal = signal;
    }

    /// When to call `wake`, should nothing else happen first.
    #[inline]
    pub fn next_wakeup(&self) -> Time {
        self.timers.earliest().min(self.held.earliest())
    }

    /// A model can be asked for from now on. Its id must not be in use.
    pub fn add(&mut self, now: Time, model: ModelId, spec: &ModelSpec, to: &mut impl ToHub) {
        let at = self.place(model);
        if at >= self.models.len() {
            self.models.resize_with(at + 1, || None);
            self.posted.resize(at + 1, Posted::default());
            self.timers.grow(at + 1);
            self.held.grow((at + 1) * self.classes);
        }
        assert!(
            spec.profiles.len() <= self.classes,
            "model {model} has more classes than its pool"
        );
        let slot = &mut self.models[at];
        assert!(slot.is_none(), "model {model} was added twice");
        *slot = Some(ModelMachine::new(now, spec, self.rules, self.network));
        to.tell(News::Reported { before: None, after: Some(Report::default()) });
    }

    /// A model is no longer served. What waits for it is dropped.
    pub fn remove(&mut self, model: ModelId, actions: &mut Actions, to: &mut impl ToHub) {
        let at = self.place(model);
        let Some(mut machine) = self.models.get_mut(at).and_then(Option::take) else { return };
        to.tell(News::Reported { before: Some(machine.reported()), after: None });
        for request in machine.clear() {
            actions.drop(model, request, DropReason::NotLoaded);
        }
        self.timers.clear(at);
        self.withdraw(model, at, to);
    }

    /// A model turned out to be faster or slower.
    pub fn set_profile(
        &mut self,
        now: Time,
        model: ModelId,
        spec: &ModelSpec,
        to: &mut impl ToHub,
    ) {
        let at = self.place(model);
        if let Some(machine) = self.models.get_mut(at).and_then(Option::as_mut) {
            machine.set_profile(spec, &self.signal);
            self.timers.set(at, now); // What became hopeless goes at once.
            self.withdraw(model, at, to);
        }
    }

    /// A request came.
    #[inline]
    pub fn arrive(
        &mut self,
        now: Time,
        model: ModelId,
        request: Request,
        actions: &mut Actions,
        to: &mut impl ToHub,
    ) {
        let at = self.place(model);
        let Some(machine) = self.models.get_mut(at).and_then(Option::as_mut) else {
            return actions.drop(model, request, DropReason::NotLoaded);
        };
        let arrival = machine.arrive(now, request, &self.signal);
        if machine.has_news() {
            publish(machine, to);
        }
        match arrival {
            Arrival::Changed => self.refresh(now, model, at, to),
            Arrival::Held => {
                if let Some((class, candidate)) = machine.held() {
                    self.held.set(at * self.classes + class.index(), candidate.ready);
                }
            }
            Arrival::Refused => actions.drop(model, request, DropReason::Late),
            Arrival::Unchanged => {}
        }
    }

    /// Requests whose executor failed come back.
    pub fn come_back(
        &mut self,
        now: Time,
        model: ModelId,
        requests: &[Request],
        actions: &mut Actions,
        to: &mut impl ToHub,
    ) {
        let at = self.place(model);
        for &request in requests {
            let Some(machine) = self.models.get_mut(at).and_then(Option::as_mut) else {
                actions.drop(model, request, DropReason::NotLoaded);
                continue;
            };
            if let Err(request) = machine.come_back(now, request, &self.signal) {
                actions.drop(model, request, DropReason::Overload);
            }
        }
        self.refresh(now, model, at, to);
    }

    /// Nobody waits for this request any more.
    pub fn cancel(
        &mut self,
        now: Time,
        model: ModelId,
        key: (Time, RequestId),
        actions: &mut Actions,
        to: &mut impl ToHub,
    ) {
        let at = self.place(model);
        let machine = self.models.get_mut(at).and_then(Option::as_mut);
        if let Some(request) = machine.and_then(|m| m.cancel(now, key, &self.signal)) {
            actions.drop(model, request, DropReason::Cancelled);
            self.refresh(now, model, at, to);
        }
    }

    /// An executor is the model's: its batch is made final, or the executor goes back. Either way
    /// the hub is answered.
    pub fn granted(
        &mut self,
        now: Time,
        promise: Promise,
        actions: &mut Actions,
        to: &mut impl ToHub,
    ) {
        let Promise {
            grant: Grant { model, executor, class, free_at, longest, .. },
            incarnation,
            ..
        } = promise;
        let at = self.place(model);
        let first = actions.requests.len();
        let signal = &self.signal;
        let (list, batch) = (&mut actions.list, &mut actions.requests);
        let mut dropped = |request| {
            let reason = DropReason::Overload;
            list.push(crate::Action::Drop { model, request, reason });
        };
        // A model that is gone was here once: grants are for what was posted.
        let start = self.models[at].as_mut().and_then(|machine| {
            let start =
                machine.granted(now, class, (free_at, longest), signal, batch, &mut dropped);
            if start.is_none() {
                // It came so late that the candidate passed its latest moment, or so early that it
                // is not there yet.
                machine.wake(now, signal, &mut dropped);
            }
            start
        });
        match start {
            Some(start) => {
                let (start, latency) = (start.start, start.latency);
                to.tell(News::Started { executor, incarnation, start, latency });
                actions.run(executor, model, start, latency, first);
            }
            None => to.tell(News::Returned { executor, incarnation }),
        }
        // Whatever the hub knew of it was forgotten with the grant.
        self.posted[at].classes = 0;
        self.posted[at].answered += 1;
        self.refresh(now, model, at, to);
    }

    /// The time that `next_wakeup` named has come.
    pub fn wake(&mut self, now: Time, actions: &mut Actions, to: &mut impl ToHub) {
        while self.timers.earliest() <= now {
            let Some(at) = self.timers.first() else { break };
            self.timers.clear(at);
            let model = self.model(at);
            let Some(machine) = self.models[at].as_mut() else { continue };
            machine.wake(now, &self.signal, |request| {
                actions.drop(model, request, DropReason::Overload);
            });
            if machine.has_news() {
                publish(machine, to);
            }
            self.refresh(now, model, at, to);
        }
        while self.held.earliest() <= now {
            let Some(first) = self.held.first() else { break };
            self.held.clear(first);
            let at = first / self.classes;
            let model = self.model(at);
            self.refresh(now, model, at, to);
        }
    }

    #[inline]
    fn place(&self, model: ModelId) -> usize {
        (model.0 / self.shards) as usize
    }

    fn model(&self, place: usize) -> ModelId {
        ModelId(place as u32 * self.shards + self.index)
    }

    /// Posts the candidates that are ready, sees to it that those that are not will be, and that
    /// the model is woken when it must be.
    #[inline]
    fn refresh(&mut self, now: Time, model: ModelId, at: usize, to: &mut impl ToHub) {
        let Some(machine) = self.models.get(at).and_then(Option::as_ref) else { return };
        let posted = &mut self.posted[at];
        let answered = posted.answered;
        for (class, candidate) in machine.candidates() {
            let (place, bit) = (at * self.classes + class.index(), 1 << class.index());
            match candidate {
                Some(&candidate) if candidate.ready <= now => {
                    self.held.clear(place);
                    posted.classes |= bit;
                    to.post(model, class, PostedCandidate { candidate, answered });
                }
                other => {
                    self.held.set(place, other.map_or(Time::NEVER, |candidate| candidate.ready));
                    if posted.classes & bit != 0 {
                        posted.classes &= !bit;
                        to.post(
                            model,
                            class,
                            PostedCandidate { candidate: Candidate::default(), answered },
                        );
                    }
                }
            }
        }
        // While every candidate is held it needs no timer: it is looked at when one is ready.
        if !machine.is_held(now) {
            let (armed, needed) = (self.timers.get(at), machine.next_timer());
            // One that goes off earlier stays: an idle wakeup costs less than to move it with every
            // batch.
            if armed > needed || armed <= now {
                self.timers.set(at, needed);
            }
        }
    }

    /// Takes back whatever of the model is held or posted.
    fn withdraw(&mut self, model: ModelId, at: usize, to: &mut impl ToHub) {
        let Posted { answered, classes } = std::mem::take(&mut self.posted[at]);
        self.posted[at].answered = answered;
        for class in 0..self.classes {
            self.held.clear(at * self.classes + class);
            if classes & (1 << class) != 0 {
                let post = PostedCandidate { candidate: Candidate::default(), answered };
                to.post(model, ClassId(class as u16), post);
            }
        }
    }
}

/// Tells the market what a model has measured.
#[cold]
fn publish(machine: &mut ModelMachine, to: &mut impl ToHub) {
    let (before, after) = machine.news();
    to.tell(News::Reported { before: Some(before), after: Some(after) });
}
