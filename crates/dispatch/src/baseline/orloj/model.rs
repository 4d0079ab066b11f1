//! One model: who waits for it, on the shelves of all batch sizes that they are feasible for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fermata_core::{ClassId, KindId, Profile, Request, Span, Time};

use super::shelf::{Key, Shelf};
use crate::event::{ModelSpec, Network};

/// The batch sizes that are considered, as far as the profile has them.
const SIZES: [usize; 5] = [1, 2, 4, 8, 16];

/// The requests that wait for one model.
#[derive(Clone, Debug)]
pub(super) struct Model {
    profiles: Vec<Option<Arc<Profile>>>,
    resp: Span,
    /// One for each size on each class that the model can run on.
    shelves: Vec<Shelf>,
    requests: BTreeMap<Key, Request>,
    /// When each request becomes hopeless.
    ends: BTreeSet<(Time, Key)>,
}

impl Model {
    /// Nobody waits. All that does not depend on the requests is computed here.
    pub(super) fn new(spec: &ModelSpec, network: Network, rate: f64) -> Self {
        let mut shelves = Vec::new();
        for (class, profile) in (0..).zip(&spec.profiles) {
            let Some(profile) = profile else { continue };
            for size in SIZES.into_iter().filter(|&size| size <= profile.max_batch()) {
                shelves.push(Shelf::new(profile, (ClassId(class), size), network, rate));
            }
        }
        Self {
            profiles: spec.profiles.clone(),
            resp: network.resp,
            shelves,
            requests: BTreeMap::new(),
            ends: BTreeSet::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Everybody who waits, by deadline.
    pub(super) fn into_requests(self) -> impl Iterator<Item = Request> {
        self.requests.into_values()
    }

    /// Queues a request; false if it is hopeless.
    pub(super) fn push(&mut self, now: Time, request: Request) -> bool {
        let due = request.deadline - self.resp;
        if self.least(request.kind).is_none_or(|estimate| now + estimate > due) {
            return false;
        }
        let end = self.end(&request);
        let key = request.key();
        self.ends.insert((end, key));
        assert!(self.requests.insert(key, request).is_none(), "{} came twice", request.id);
        self.shelves.iter_mut().for_each(|shelf| shelf.insert(now, key, request.kind));
        true
    }

    /// Takes a request away.
    pub(super) fn remove(&mut self, key: Key) -> Option<Request> {
        let request = self.requests.remove(&key)?;
        let end = self.end(&request);
        self.ends.remove(&(end, key));
        self.shelves.iter_mut().for_each(|shelf| shelf.remove(key));
        Some(request)
    }

    /// Takes a request away that is hopeless.
    pub(super) fn pop_hopeless(&mut self, now: Time) -> Option<Request> {
        let &(_, key) = self.ends.first().filter(|&&(end, _)| end <= now)?;
        self.remove(key)
    }

    /// When somebody becomes hopeless.
    pub(super) fn next_hopeless(&self) -> Time {
        self.ends.first().map_or(Time::NEVER, |&(end, _)| end)
    }

    /// The batch that would be sent to an executor of a class: its earliest deadline, its size, and
    /// its shelf.
    pub(super) fn candidate(&mut self, now: Time, class: ClassId) -> Option<(Time, usize, usize)> {
        let mut best: Option<(Time, usize, usize)> = None;
        // The larger size goes first where deadlines are equal, so it comes last.
        for (at, shelf) in self.shelves.iter_mut().enumerate() {
            if shelf.class != class {
                continue;
            }
            shelf.refresh(now);
            let Some(deadline) = shelf.earliest().filter(|_| shelf.is_enough()) else { continue };
            if best.is_none_or(|best| deadline <= best.0) {
                best = Some((deadline, shelf.size, at));
            }
        }
        best
    }

    /// Takes a batch from a candidate's shelf, the highest priority first; how long it is expected
    /// to take.
    pub(super) fn pop_batch(&mut self, now: Time, shelf: usize, batch: &mut Vec<Request>) -> Span {
        let Shelf { class, size, .. } = self.shelves[shelf];
        for _ in 0..size {
            let key = self.shelves[shelf].best(now).expect("a candidate is complete");
            batch.extend(self.remove(key));
        }
        let profile = self.profiles[class.index()].as_ref();
        profile.expect("there is a shelf only where the model runs").latency(size)
    }

    /// The first moment at which a request is not feasible for any size.
    fn end(&self, request: &Request) -> Time {
        let estimate = self.least(request.kind).expect("nobody waits where no size is feasible");
        (request.deadline - self.resp - estimate).next()
    }

    /// What a request of this kind takes at least, on average.
    fn least(&self, kind: KindId) -> Option<Span> {
        self.shelves.iter().map(|shelf| shelf.estimate(kind)).min()
    }
}
