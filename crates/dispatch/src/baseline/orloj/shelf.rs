//! Who can be in a batch of one size on one class of executor, by priority: one of the text's
//! queues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fermata_core::{ClassId, KindId, Profile, RequestId, Span, Time};

use super::hull::HullQueue;
use super::score::{Place, Score};
use crate::event::Network;

/// Requests are known by deadline and id.
pub(super) type Key = (Time, RequestId);

/// Times are counted from a base time, as exponents. When they come to this, from a new one: at the
/// usual rate of 1e-4 per millisecond, after 1,000 seconds.
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
    pub(super) fn estimate(&self, kind: KindId) -> Span {
        self.score(kind).estimate()
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
        if now + score.estimate() > due {
            return None;
        }
        let place = score.place(now, self.base, &[(due, 1.0)]);
        let change = place.until.min((due - score.estimate()).next());
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

#[cfg(test)]
mod tests {
    use fermata_core::{Growth, Spread};

    use super::*;

    /// Over many milestones, and base times when the rate is high, who is found has the highest
    /// priority of all.
    #[test]
    fn the_best_is_the_one_with_the_highest_priority_at_every_moment() {
        let runs = |from: u64| (0..200).map(|at| Span((from + at % 37) * 1_000_000)).collect();
        let measured = vec![(0.3, runs(5)), (0.7, runs(60))];
        let growth = Growth { fixed: 1e6, base: 0.9, each: 0.1 };
        let spread = Arc::new(Spread::new(&measured, growth, 16).unwrap());
        let profile = Profile::spread_out(spread);
        for rate in [1e-4, 0.05].map(|per_ms| per_ms / 1e6) {
            let place = (ClassId(0), 4);
            let mut shelf = Shelf::new(&profile, place, Network::default(), rate);
            let mut requests: BTreeMap<Key, KindId> = BTreeMap::new();
            let mut bases = BTreeSet::new();
            for step in 0..4000u64 {
                let now = Time(step * 3_000_000);
                shelf.refresh(now);
                // Deadlines and kinds in no order.
                let kind = KindId((step * 7 % 3) as u16);
                let key =
                    (now + Span(40_000_000 + step * 7_919_123_457 % 400_000_000), RequestId(step));
                shelf.insert(now, key, kind);
                requests.insert(key, kind);
                requests.retain(|key, kind| now + shelf.estimate(*kind) <= key.0);
                assert!(shelf.waiting.keys().eq(requests.keys()), "step {step}");
                assert_eq!(shelf.earliest(), requests.keys().next().map(|key| key.0));
                if step > 100 {
                    bases.insert(shelf.base); // Nobody waits before that, now and then.
                }
                let priority = |key: &Key| {
                    let place = shelf.score(requests[key]).place(now, now, &[(key.0, 1.0)]);
                    place.point.at(1.0)
                };
                let Some(best) = shelf.best(now) else { continue };
                let highest = requests.keys().map(priority).fold(0.0, f64::max);
                assert!(priority(&best) >= highest * (1.0 - 1e-9), "step {step}");
                if step % 4 == 0 {
                    shelf.remove(best);
                    requests.remove(&best);
                }
            }
            assert_eq!(bases.len() > 3, rate > 1e-9, "{} base times", bases.len());
            assert!(requests.len() > 30, "{} are no test", requests.len());
        }
    }
}
