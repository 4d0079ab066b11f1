//! Shards and a hub with messages that take their time: what happens on many threads, in virtual
//! time.
//!
//! It is a [`Dispatch`] like any other, so that the checker holds it to the same invariants.
//! Messages of one way stay in order; those of different ways overtake each other as they please.
//! Two things are as on threads: what is posted is read when the hub comes to it, not when it was
//! written; and the hub hears that a batch was started before it hears that it is done.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fermata_core::{ClassId, ExecutorId, ModelId, Request, Span, Time};
use fermata_dispatch::{
    Action, Actions, Dispatch, Event, Hub, InFlight, Network, News, PostedCandidate, Promise,
    Rules, Shard, Signal, ToHub,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A pool in pieces.
#[derive(Debug)]
pub struct Delayed {
    shards: Vec<Shard>,
    hub: Hub,
    post_office: PostOffice,
    /// Who is there, at the executors' end: batches for others never arrive.
    stays: Vec<Incarnation>,
    running: InFlight,
    /// When the hub hears of each executor's last batch.
    heard: Vec<Time>,
    told: Signal,
}

#[derive(Clone, Copy, Debug, Default)]
struct Incarnation {
    number: u32,
    present: bool,
}

/// Messages under way.
#[derive(Debug)]
struct PostOffice {
    now: Time,
    longest: Span,
    random: Pcg64Mcg,
    sent: u64,
    under_way: BinaryHeap<Reverse<(Time, u64)>>,
    letters: BTreeMap<u64, Letter>,
    /// When the last letter of each way arrives.
    ways: BTreeMap<Way, Time>,
    /// What is posted, and not read yet.
    posted: BTreeMap<(ModelId, ClassId), PostedCandidate>,
    /// When the last batch was told to have started: for the executor that it is on.
    started: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Executors,
    FromShard(usize),
    ToShard(usize),
    /// Last value wins: nothing to keep in order with.
    Post(ModelId, ClassId),
    Signal(usize),
}

#[derive(Clone, Debug)]
enum Letter {
    Done(ExecutorId),
    Fail(ExecutorId),
    Join(ExecutorId, ClassId),
    Leave(ExecutorId),
    News(News),
    Post(ModelId, ClassId),
    Promise(usize, Promise),
    Signal(usize),
}

impl Delayed {
    /// A pool in so many shards, whose messages take up to `longest`, drawn by `seed`.
    pub fn new(
        rules: Rules,
        network: Network,
        shards: usize,
        classes: usize,
        longest: Span,
        seed: u64,
    ) -> Self {
        let shard = |index| Shard::new(rules, network, index, shards, classes);
        Self {
            shards: (0..shards).map(shard).collect(),
            hub: Hub::new(network),
            post_office: PostOffice {
                now: Time::START,
                longest,
                random: Pcg64Mcg::seed_from_u64(seed),
                sent: 0,
                under_way: BinaryHeap::new(),
                letters: BTreeMap::new(),
                ways: BTreeMap::new(),
                posted: BTreeMap::new(),
                started: None,
            },
            stays: Vec::new(),
            running: InFlight::default(),
            heard: Vec::new(),
            told: Signal::default(),
        }
    }

    fn shard_of(&self, model: ModelId) -> usize {
        model.index() % self.shards.len()
    }

    fn take(&mut self, now: Time, event: Event, actions: &mut Actions) {
        let office = &mut self.post_office;
        match event {
            Event::AddModel { model, spec, .. } => {
                let shard = self.shard_of(model);
                let mut way = Out { office: &mut self.post_office, shard };
                self.shards[shard].add(now, model, &spec, &mut way);
            }
            Event::Arrive { model, request, deadline, kind } => {
                let shard = self.shard_of(model);
                let request = Request { deadline, id: request, arrival: now, kind };
                let mut way = Out { office: &mut self.post_office, shard };
                self.shards[shard].arrive(now, model, request, actions, &mut way);
            }
            Event::Cancel { model, request, deadline } => {
                let shard = self.shard_of(model);
                let mut way = Out { office: &mut self.post_office, shard };
                self.shards[shard].cancel(now, model, (deadline, request), actions, &mut way);
            }
            Event::Done { executor } => {
                self.running.done(executor);
                let after = self.heard[executor.index()];
                office.send_after(after, Way::Executors, Letter::Done(executor));
            }
            Event::Fail { executor } => {
                self.stays[executor.index()].present = false;
                office.send(Way::Executors, Letter::Fail(executor));
                while let Some((model, requests)) = self.running.take(executor) {
                    self.bring_back(now, model, &requests, actions);
                }
            }
            Event::Join { executor, class } => {
                let at = executor.index();
                if at >= self.stays.len() {
                    self.stays.resize(at + 1, Incarnation::default());
                    self.heard.resize(at + 1, Time::START);
                }
                self.stays[at].number += 1;
                self.stays[at].present = true;
                office.send(Way::Executors, Letter::Join(executor, class));
            }
            Event::Leave { executor } => {
                self.stays[executor.index()].present = false;
                office.send(Way::Executors, Letter::Leave(executor));
            }
            Event::Late { by } => self.hub.set_slack(by),
            Event::Profile { model, spec } => {
                let shard = self.shard_of(model);
                let mut way = Out { office: &mut self.post_office, shard };
                self.shards[shard].set_profile(now, model, &spec, &mut way);
            }
            Event::RemoveModel { model } => {
                let shard = self.shard_of(model);
                let mut way = Out { office: &mut self.post_office, shard };
                self.shards[shard].remove(model, actions, &mut way);
            }
            Event::Wakeup => {}
        }
    }

    fn bring_back(
        &mut self,
        now: Time,
        model: ModelId,
        requests: &[Request],
        actions: &mut Actions,
    ) {
        let shard = self.shard_of(model);
        let mut way = Out { office: &mut self.post_office, shard };
        self.shards[shard].come_back(now, model, requests, actions, &mut way);
    }

    fn deliver(&mut self, now: Time, letter: Letter, actions: &mut Actions) {
        match letter {
            Letter::Done(executor) => self.hub.done(now, executor),
            Letter::Fail(executor) => self.hub.fail(executor),
            Letter::Join(executor, class) => self.hub.join(now, executor, class),
            Letter::Leave(executor) => self.hub.leave(executor),
            Letter::News(news) => self.hub.hear(now, news),
            Letter::Post(model, class) => {
                if let Some(post) = self.post_office.posted.remove(&(model, class)) {
                    self.hub.post(now, model, class, &post);
                }
            }
            Letter::Promise(shard, promise) => self.grant(now, shard, promise, actions),
            Letter::Signal(shard) => self.shards[shard].set_signal(*self.hub.signal()),
        }
    }

    fn grant(&mut self, now: Time, shard: usize, promise: Promise, actions: &mut Actions) {
        let (from, before) = (actions.list.len(), actions.requests.len());
        let mut way = Out { office: &mut self.post_office, shard };
        self.shards[shard].granted(now, promise, actions, &mut way);
        let started = self.post_office.started.take();
        let Some(&Action::Run { executor, model, first, size, .. }) = actions.list.last() else {
            return;
        };
        if actions.list.len() == from {
            return;
        }
        let requests = actions.batch(first, size).to_vec();
        let Incarnation { number, present } = self.stays[executor.index()];
        if present && number == promise.incarnation {
            self.running.start(executor, model, &requests);
            self.heard[executor.index()] = started.expect("the hub is told of it");
        } else {
            // It left or failed while the promise was under way. Who would have given it the batch
            // brings it back.
            actions.list.pop();
            actions.requests.truncate(before);
            self.bring_back(now, model, &requests, actions);
        }
    }

    /// Everything that is due.
    fn settle(&mut self, now: Time, actions: &mut Actions) {
        loop {
            let mut idle = true;
            while let Some(letter) = self.post_office.next_due(now) {
                self.deliver(now, letter, actions);
                idle = false;
            }
            for index in 0..self.shards.len() {
                if self.shards[index].next_wakeup() <= now {
                    let mut way = Out { office: &mut self.post_office, shard: index };
                    self.shards[index].wake(now, actions, &mut way);
                    idle = false;
                }
            }
            while let Some(promise) = self.hub.next_promise(now) {
                let shard = self.shard_of(promise.grant.model);
                self.post_office.send(Way::ToShard(shard), Letter::Promise(shard, promise));
                idle = false;
            }
            if *self.hub.signal() != self.told {
                self.told = *self.hub.signal();
                for shard in 0..self.shards.len() {
                    self.post_office.send(Way::Signal(shard), Letter::Signal(shard));
                }
                idle = false;
            }
            if idle {
                return;
            }
        }
    }
}

impl Dispatch for Delayed {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions) {
        self.post_office.now = now;
        self.take(now, event, actions);
        self.settle(now, actions);
    }

    fn next_wakeup(&self) -> Time {
        let shards = self.shards.iter().map(Shard::next_wakeup).min().unwrap_or(Time::NEVER);
        let letters = self.post_office.under_way.peek().map_or(Time::NEVER, |next| next.0.0);
        shards.min(letters).min(self.hub.next_wakeup())
    }
}

impl PostOffice {
    fn send(&mut self, way: Way, letter: Letter) -> Time {
        self.send_after(Time::START, way, letter)
    }

    /// A letter that arrives no sooner than `after`.
    fn send_after(&mut self, after: Time, way: Way, letter: Letter) -> Time {
        let delay = Span(self.random.random_range(0..=self.longest.0));
        let last = self.ways.entry(way).or_default();
        let arrives = (self.now + delay).max(*last).max(after);
        *last = arrives;
        self.sent += 1;
        self.under_way.push(Reverse((arrives, self.sent)));
        self.letters.insert(self.sent, letter);
        arrives
    }

    fn next_due(&mut self, now: Time) -> Option<Letter> {
        let Reverse((arrives, number)) = *self.under_way.peek()?;
        if arrives > now {
            return None;
        }
        self.under_way.pop();
        self.letters.remove(&number)
    }
}

/// The way from a shard to the hub.
struct Out<'a> {
    office: &'a mut PostOffice,
    shard: usize,
}

impl ToHub for Out<'_> {
    fn post(&mut self, model: ModelId, class: ClassId, post: PostedCandidate) {
        if self.office.posted.insert((model, class), post).is_none() {
            self.office.send(Way::Post(model, class), Letter::Post(model, class));
        }
    }

    fn tell(&mut self, news: News) {
        let arrives = self.office.send(Way::FromShard(self.shard), Letter::News(news));
        if matches!(news, News::Started { .. }) {
            self.office.started = Some(arrives);
        }
    }
}
