//! Waiting requests by kind, each kind by deadline.

use fermata_core::{KindId, Request, RequestId, Time};

use super::pick::Pick;
use crate::queue::Queue;

/// A queue for each kind, and one for requests of no known kind.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    kinds: Box<[Queue]>,
}

impl Queues {
    /// Empty, for so many kinds.
    pub(super) fn new(kinds: usize) -> Self {
        Self { kinds: vec![Queue::default(); kinds + 1].into() }
    }

    /// The place of a kind: the last one is that of requests of no known kind.
    #[inline]
    pub(super) fn place(&self, kind: KindId) -> usize {
        kind.index().min(self.kinds.len() - 1)
    }

    /// How many wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.kinds.iter().map(Queue::len).sum()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.kinds.iter().all(Queue::is_empty)
    }

    /// Those of one kind, the most urgent first.
    #[inline]
    pub(super) fn kind(&self, place: usize) -> &[Request] {
        self.kinds[place].as_slice()
    }

    pub(super) fn push(&mut self, request: Request) {
        let place = self.place(request.kind);
        self.kinds[place].push(request);
    }

    /// Takes one request out, whatever its kind.
    pub(super) fn remove(&mut self, key: (Time, RequestId)) -> Option<Request> {
        self.kinds.iter_mut().find_map(|queue| queue.remove(key))
    }

    /// Takes the most urgent of a kind, if `gone` says so.
    pub(super) fn pop_if(
        &mut self,
        place: usize,
        gone: impl Fn(&Request) -> bool,
    ) -> Option<Request> {
        let queue = &mut self.kinds[place];
        queue.head().is_some_and(gone).then(|| queue.pop())?
    }

    /// Takes everything out, kind by kind.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Request> {
        self.kinds.iter_mut().flat_map(|queue| std::iter::from_fn(|| queue.pop()))
    }

    /// Takes the requests of a batch out, the most urgent first.
    pub(super) fn take(&mut self, pick: &Pick, order: &[u16], batch: &mut Vec<Request>) {
        let first = batch.len();
        for &place in &order[pick.kinds()] {
            let queue = &mut self.kinds[usize::from(place)];
            let members = pick.members(queue.as_slice());
            batch.extend_from_slice(&queue.as_slice()[members.clone()]);
            if members.start == 0 {
                queue.take(members.len());
            } else {
                queue.remove_many(members.start, members.len());
            }
        }
        batch[first..].sort_unstable_by_key(Request::key);
    }
}
