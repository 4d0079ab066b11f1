//! Who can be in a batch of one size on one class of executor, by priority: one of the text's queues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fermata_core::{ClassId, KindId, Profile, RequestId, Span, Time};

use super::hull::HullQueue;
use super::score::{Place, Score};
use crate::event::Network;

/// Requests are known by deadline and id.
pub(super) type Key = (Time, RequestId);

/// Times are counted from a base time, as exponents. When they come to this, from a new one: at the usual rate of 1e-4 per
/// millisecond, after 1,000 seconds.
const EXPONENT_MAX: f64 = 100.0;

/// The requests that are feasible for one size.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    pub(super) class: ClassId,
    pub(super) size: usize,
    rate: f64,
    /// By kind; the last is for those that are not known.
    scores: Arc<[Score]>,
    resp: Span,
    base: Time,
    /// By deadline.
    waiting: BTreeMap<Key, Waiting>,
    hull: HullQueue<Key>,
    /// When each request's place changes, or it ceases to be feasible.
    changes: BTreeSet<(Time, Key)>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    kind: KindId,
    place: Place,
    change: Time,
}

impl Shelf {
    /// For batches of `size` of a model, as its profile on a class says.
    pub(super) fn new(
        profile: &Profile,
        (class, size): (ClassId, usize),
        network: Network,
        rate: f64,
    ) -> Self {
        let kinds = profile.spread().map_or(0, |spread| spread.kinds());
        let lead = network.lead(size);
        let score = |kind| Score::of(profile, KindId(kind as u16), size, lead, rate);
        Self {
            class,
            size,
            rate,
            scores: (0..=kinds).map(score).collect(),
            resp: network.resp,
            base: Time::START,
            waiting: BTreeMap::new(),
            hull: HullQueue::default(),
            changes: BTreeSet::new(),
        }
    }

    /// From the decision to the end of a batch with a request of this kind, on average.
    pub(super) fn expected(&self, kind: KindId) -> Span {
        self.score(kind).expected()
    }

    /// Whether there are enough for a batch.
    pub(super) fn is_enough(&self) -> bool {
        self.waiting.len() >= self.size
    }

    /// The earliest deadline.
    pub(super) fn earliest(&self) -> Option<Time> {
        Some(self.waiting.first_key_value()?.0.0)
    }

    /// Adds a request, if it is feasible.
    pub(super) fn insert(&mut self, now: Time, key: Key, kind: KindId) {
        if self.waiting.is_empty() || self.exponent(now) > EXPONENT_MAX {
            self.rebase(now);
        }
        if let Some(waiting) = self.placed(now, key, kind) {
            self.put(key, waiting);
        }
    }

    /// Takes a request away, if it is here.
    pub(super) fn remove(&mut self, key: Key) {
        if let Some(waiting) = self.waiting.remove(&key) {
            self.changes.remove(&(waiting.change, key));
            assert!(self.hull.remove(waiting.place.point, key), "who waits is on the hull");
        }
    }

    /// Brings all priorities in line with the time, and takes away who is no longer feasible.
    pub(super) fn refresh(&mut self, now: Time) {
        if self.exponent(now) > EXPONENT_MAX {
            self.rebase(now);
        }
        while let Some(&(change, key)) = self.changes.first() {
            if change > now {
                return;
            }
            let kind = self.waiting[&key].kind;
            self.remove(key);
            if let Some(waiting) = self.placed(now, key, kind) {
                self.put(key, waiting);
            }
        }
    }

    /// Who has the highest priority. It is right after a refresh.
    pub(super) fn best(&self, now: Time) -> Option<Key> {
        let (_, key) = self.hull.best(self.exponent(now).exp())?;
        Some(key)
    }

    fn score(&self, kind: KindId) -> &Score {
        &self.scores[kind.index().min(self.scores.len() - 1)]
    }

    fn exponent(&self, now: Time) -> f64 {
        self.rate * (now - self.base).0 as f64
    }

    /// What a request's place is now; `None` if it is not feasible.
    fn placed(&self, now: Time, key: Key, kind: KindId) -> Option<Waiting> {
        let (score, due) = (self.score(kind), key.0 - self.resp);
        if now + score.expected() > due {
            return None;
        }
        let place = score.place(now, self.base, &[(due, 1.0)]);
        let change = place.until.min((due - score.expected()).next());
        Some(Waiting { kind, place, change })
    }

    fn put(&mut self, key: Key, waiting: Waiting) {
        self.hull.insert(waiting.place.point, key);
        self.changes.insert((waiting.change, key));
        assert!(self.waiting.insert(key, waiting).is_none(), "a request comes once");
    }

    /// Counts time from now on, so that no exponential overflows.
    fn rebase(&mut self, now: Time) {
        self.base = now;
        let all = std::mem::take(&mut self.waiting);
        self.hull.clear();
        self.changes.clear();
        for (key, Waiting { kind, .. }) in all {
            if let Some(waiting) = self.placed(now, key, kind) {
                self.put(key, waiting);
            }
        }
    }
}
