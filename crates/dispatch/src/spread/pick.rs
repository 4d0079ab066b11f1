//! The batch that was chosen among the requests of several kinds.

use fermata_core::{Request, RequestId, Span, Time};

/// Requests that go together: of neighbouring kinds, those with a deadline from some moment on, the
/// most urgent first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pick {
    /// Expected in time because they run now, per nanosecond of executor time.
    pub(super) worth: f32,
    /// The kinds, as places in the order: from this one to that.
    pub(super) low: u16,
    pub(super) high: u16,
    /// How many.
    pub(super) size: usize,
    /// The first and the last of them, by deadline and id: all of these kinds between them are in
    /// it.
    pub(super) first: (Time, RequestId),
    pub(super) last: (Time, RequestId),
    /// How long they take on average.
    pub(super) mean: Span,
}

impl Pick {
    /// The kinds, as places in the order.
    #[inline]
    pub(super) fn kinds(&self) -> std::ops::Range<usize> {
        usize::from(self.low)..usize::from(self.high) + 1
    }

    /// Which of one kind are in it.
    pub(super) fn members(&self, waiting: &[Request]) -> std::ops::Range<usize> {
        let start = waiting.partition_point(|request| request.key() < self.first);
        let end = waiting.partition_point(|request| request.key() <= self.last);
        start..end.max(start)
    }
}
