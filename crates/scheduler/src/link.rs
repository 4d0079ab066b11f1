//! What lies between a shard and the hub.

use std::collections::VecDeque;
use std::sync::Arc;

use fermata_core::{ClassId, ModelId, Span, Time};
use fermata_dispatch::{Candidate, News, PostedCandidate, Promise, Signal, ToHub};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::bell::Bell;
use crate::latest::Latest;
use crate::mailbox::Mailbox;
use crate::sync::spin_loop;

/// The words of a [`PostedCandidate`].
const POST: usize = 4;
/// The words of a [`Signal`].
const SIGNAL: usize = 6;
/// How many reports the ring has room for, beside an answer for each executor and one report for
/// each model, which it makes when it is added, before the hub may be there to read it.
const REPORTS: usize = 1024;

/// The shard's end.
#[derive(Debug)]
pub struct ShardEnd {
    posts: Arc<Mailbox<POST>>,
    news: Producer<News>,
    promises: Consumer<Promise>,
    signal: Arc<Latest<SIGNAL>>,
    /// Which signal was read last.
    seen: u64,
    shards: u32,
    classes: usize,
    hub: Arc<Bell>,
}

/// The hub's end.
#[derive(Debug)]
pub struct HubEnd {
    posts: Arc<Mailbox<POST>>,
    news: Consumer<News>,
    promises: Producer<Promise>,
    signal: Arc<Latest<SIGNAL>>,
    /// Promises for which the ring had no room.
    late: VecDeque<Promise>,
    /// Whether the shard was sent anything since it was rung for.
    sent: bool,
    index: u32,
    shards: u32,
    classes: usize,
    shard: Arc<Bell>,
}

/// What a link has room for, and where it is.
#[derive(Clone, Debug)]
pub struct Room {
    /// Which shard it is of.
    pub index: usize,
    /// How many shards there are.
    pub shards: usize,
    /// How many models the shard may have.
    pub models: usize,
    /// How many classes of executors there are.
    pub classes: usize,
    /// How many executors there are.
    pub executors: usize,
}

/// A shard's link to the hub, with the bells of both.
pub fn link(room: &Room, shard: Arc<Bell>, hub: Arc<Bell>) -> (ShardEnd, HubEnd) {
    let posts = Arc::new(Mailbox::new(room.models * room.classes));
    let signal = Arc::new(Latest::default());
    // An executor is promised once at a time, and answered once: neither ring fills.
    let (promises, promised) = RingBuffer::new(room.executors.max(1));
    let (news, heard) = RingBuffer::new(2 * room.executors + room.models + REPORTS);
    let shards = room.shards as u32;
    let shard_end = ShardEnd {
        posts: posts.clone(),
        news,
        promises: promised,
        signal: signal.clone(),
        seen: 0,
        shards,
        classes: room.classes,
        hub,
    };
    let index = room.index as u32;
    let hub_end = HubEnd {
        posts,
        news: heard,
        promises,
        signal,
        late: VecDeque::new(),
        sent: false,
        index,
        shards,
        classes: room.classes,
        shard,
    };
    (shard_end, hub_end)
}

impl ShardEnd {
    /// The next promise that has come.
    #[inline]
    pub fn next_promise(&mut self) -> Option<Promise> {
        self.promises.pop().ok()
    }

    /// What the market says, if that is new.
    #[inline]
    pub fn new_signal(&mut self) -> Option<Signal> {
        if self.signal.count() == self.seen {
            return None;
        }
        let (words, seen) = self.signal.read();
        self.seen = seen;
        Some(signal_from(words))
    }

    /// Whether anything has come that was not taken.
    pub fn has_work(&self) -> bool {
        !self.promises.is_empty() || self.signal.count() != self.seen
    }

    /// Wakes the hub, if it sleeps: after what a turn had to tell.
    #[inline]
    pub fn ring(&self) {
        self.hub.ring();
    }
}

impl ToHub for ShardEnd {
    #[inline]
    fn post(&mut self, model: ModelId, class: ClassId, post: PostedCandidate) {
        // Only where dispatch is in one piece are batches kept from blocking others, by when their
        // last request is due.
        let PostedCandidate {
            candidate: Candidate { size, ready, latest, due_last: _, urgency },
            answered,
        } = post;
        let place = (model.0 / self.shards) as usize * self.classes + class.index();
        let first = u64::from(size) | u64::from(answered) << 32;
        self.posts.put(place, [first, ready.0, latest.0, urgency.0]);
    }

    #[inline]
    fn tell(&mut self, mut news: News) {
        // The hub never waits for a shard, so that a shard may wait for the hub.
        while let Err(PushError::Full(back)) = self.news.push(news) {
            news = back;
            self.hub.ring();
            spin_loop();
        }
    }
}

impl HubEnd {
    /// The next news that has come.
    #[inline]
    pub fn next_news(&mut self) -> Option<News> {
        self.news.pop().ok()
    }

    /// Hands over what was posted since. Returns how much that was.
    #[inline]
    pub fn posts(&mut self, mut read: impl FnMut(ModelId, ClassId, &PostedCandidate)) -> usize {
        let (classes, shards, index) = (self.classes, self.shards, self.index);
        self.posts.drain(|at, [first, ready, latest, urgency]| {
            let candidate = Candidate {
                size: first as u32,
                ready: Time(ready),
                latest: Time(latest),
                due_last: Time(latest),
                urgency: Time(urgency),
            };
            let post = PostedCandidate { candidate, answered: (first >> 32) as u32 };
            let model = ModelId((at / classes) as u32 * shards + index);
            read(model, ClassId((at % classes) as u16), &post);
        })
    }

    /// Sends a promise. Where the ring is full it goes with the next.
    #[inline]
    pub fn promise(&mut self, promise: Promise) {
        self.sent = true;
        if !self.late.is_empty() {
            self.late.push_back(promise);
        } else if let Err(PushError::Full(promise)) = self.promises.push(promise) {
            self.late.push_back(promise);
        }
    }

    /// Sends what could not be sent before, and wakes the shard, if it was sent anything and
    /// sleeps.
    #[inline]
    pub fn ring(&mut self) {
        while let Some(&promise) = self.late.front() {
            if self.promises.push(promise).is_err() {
                break;
            }
            self.late.pop_front();
            self.sent = true;
        }
        if std::mem::take(&mut self.sent) {
            self.shard.ring();
        }
    }

    /// Tells the shard what the market says.
    pub fn set_signal(&mut self, signal: &Signal) {
        self.sent = true;
        self.signal.write(signal_to(signal));
    }

    /// Whether anything has come that was not taken.
    pub fn has_work(&self) -> bool {
        !self.news.is_empty() || self.posts.has_mail() || !self.late.is_empty()
    }
}

fn signal_to(signal: &Signal) -> [u64; SIGNAL] {
    // How many executors are idle changes with every batch: a hub does not tell.
    let Signal { load, price, hold, idle, slack, turn, bad, alone, executors, main_class, .. } =
        *signal;
    let flags = u64::from(hold)
        | u64::from(idle) << 1
        | u64::from(main_class.0) << 2
        | u64::from(alone) << 18
        | u64::from(executors) << 32;
    [load.to_bits(), price.to_bits(), slack.0, turn.0, bad.to_bits(), flags]
}

fn signal_from([load, price, slack, turn, bad, flags]: [u64; SIGNAL]) -> Signal {
    Signal {
        load: f64::from_bits(load),
        price: f64::from_bits(price),
        hold: flags & 1 != 0,
        idle: flags & 2 != 0,
        slack: Span(slack),
        turn: Span(turn),
        bad: f64::from_bits(bad),
        alone: flags & 1 << 18 != 0,
        executors: (flags >> 32) as u32,
        idle_executors: 0,
        main_class: ClassId((flags >> 2) as u16),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_signal_arrives_as_it_was_sent() {
        let signal = Signal {
            load: 0.7,
            price: 0.2,
            hold: true,
            idle: false,
            slack: Span(3),
            turn: Span(5),
            bad: 0.01,
            alone: true,
            executors: 5,
            idle_executors: 0,
            main_class: ClassId(4),
        };
        assert_eq!(signal_from(signal_to(&signal)), signal);
    }
}
