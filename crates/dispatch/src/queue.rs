//! Waiting requests by deadline. Under one SLO per model that is also the order of arrival.
//!
//! It knows neither the time nor a latency: who is hopeless, and who is sent, is for its owner to
//! say. The requests lie side by side: a batch is copied at once, and gathering is a walk over a
//! slice.

use fermata_core::{Request, RequestId, Time};

/// Requests sorted by deadline, then id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// The waiting requests, behind those that were taken.
    requests: Vec<Request>,
    /// How many were taken.
    taken: usize,
}

impl Queue {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.requests.len() - self.taken
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All requests, the most urgent first.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[Request] {
        &self.requests[self.taken..]
    }

    /// The most urgent request.
    #[inline]
    pub(crate) fn head(&self) -> Option<&Request> {
        self.requests.get(self.taken)
    }

    /// Adds a request; true, if it is the least urgent of all, as nearly always.
    #[inline]
    pub(crate) fn push(&mut self, request: Request) -> bool {
        if self.requests.len() == self.requests.capacity() {
            self.make_room();
        }
        match self.requests.last() {
            // Nearly always the deadline alone tells.
            Some(last)
                if last.deadline >= request.deadline
                    && last.key() > request.key()
                    && !self.is_empty() =>
            {
                let at = self.as_slice().partition_point(|other| other.key() < request.key());
                self.requests.insert(self.taken + at, request);
                false
            }
            _ => {
                self.requests.push(request);
                true
            }
        }
    }

    /// Takes the most urgent request.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Request> {
        let head = self.head().copied()?;
        self.taken += 1;
        Some(head)
    }

    /// Takes the `size` most urgent requests.
    #[inline]
    pub(crate) fn take(&mut self, size: usize) -> &[Request] {
        let from = self.taken;
        self.taken += size;
        &self.requests[from..self.taken]
    }

    /// Takes `size` requests from place `at` on out of the middle.
    pub(crate) fn remove_many(&mut self, at: usize, size: usize) {
        self.requests.drain(self.taken + at..self.taken + at + size);
    }

    /// Takes one request out, wherever it is.
    pub(crate) fn remove(&mut self, key: (Time, RequestId)) -> Option<Request> {
        let at = self.as_slice().binary_search_by_key(&key, Request::key).ok()?;
        Some(self.requests.remove(self.taken + at))
    }

    /// Moves the requests over those that were taken. It happens when the memory is full, and the
    /// memory grows when that would free less than half of it, so that a request is moved less than
    /// twice.
    #[cold]
    fn make_room(&mut self) {
        if 2 * self.taken >= self.requests.len() {
            self.requests.drain(..self.taken);
            self.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::KindId;
    use proptest::prelude::*;

    use super::*;

    fn request((deadline, id): (u64, u64)) -> Request {
        Request {
            deadline: Time(deadline),
            id: RequestId(id),
            arrival: Time::START,
            kind: KindId(0),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_vector(steps in prop::collection::vec((0u8..8, 0u64..50), 1..400)) {
            let (mut queue, mut plain) = (Queue::default(), Vec::<Request>::new());
            for (id, (what, number)) in steps.into_iter().enumerate() {
                match what {
                    0 => prop_assert_eq!(queue.pop(), (!plain.is_empty()).then(|| plain.remove(0))),
                    1 => {
                        let size = plain.len().min(number as usize);
                        let taken: Vec<Request> = plain.drain(..size).collect();
                        prop_assert_eq!(queue.take(size), &taken[..]);
                    }
                    2 => {
                        let size = plain.len().min(number as usize) / 2;
                        plain.drain(size..2 * size);
                        queue.remove_many(size, size);
                    }
                    3 if !plain.is_empty() => {
                        let gone = plain.remove(number as usize % plain.len());
                        prop_assert_eq!(queue.remove(gone.key()), Some(gone));
                        prop_assert_eq!(queue.remove(gone.key()), None);
                    }
                    _ => {
                        let new = request((number, id as u64));
                        let at = plain.partition_point(|other| other.key() < new.key());
                        prop_assert_eq!(queue.push(new), at == plain.len());
                        plain.insert(at, new);
                    }
                }
                prop_assert_eq!(queue.as_slice(), &plain[..]);
                prop_assert_eq!(queue.head(), plain.first());
            }
        }
    }
}
