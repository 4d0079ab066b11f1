//! Waiting requests by deadline. Under one SLO per model that is also the order of arrival.
//!
//! It knows neither the time nor a latency: who is hopeless, and who is sent, is for its owner to say.

use std::collections::VecDeque;

use fermata_core::{Request, RequestId, Time};

/// Requests sorted by deadline, then id.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    sorted: VecDeque<Request>,
}

impl Queue {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.sorted.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The most urgent request.
    #[inline]
    pub(super) fn head(&self) -> Option<&Request> {
        self.sorted.front()
    }

    /// Adds a request: nearly always at the back.
    #[inline]
    pub(super) fn push(&mut self, request: Request) {
        match self.sorted.back() {
            Some(last) if last.key() > request.key() => {
                let at = self.sorted.partition_point(|other| other.key() < request.key());
                self.sorted.insert(at, request);
            }
            _ => self.sorted.push_back(request),
        }
    }

    /// Takes the most urgent request.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Request> {
        self.sorted.pop_front()
    }

    /// Takes the `size` most urgent requests.
    #[inline]
    pub(super) fn take(&mut self, size: usize) -> impl Iterator<Item = Request> + '_ {
        self.sorted.drain(..size)
    }

    /// Takes one request out, wherever it is.
    pub(super) fn remove(&mut self, key: (Time, RequestId)) -> Option<Request> {
        let at = self.sorted.binary_search_by_key(&key, Request::key).ok()?;
        self.sorted.remove(at)
    }
}
