//! The one clock of the server, in dispatch's words.

use std::time::{Duration, Instant};

use fermata_core::{Span, Time};

/// Counts from the start of the server, on the machine's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Begins to count.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// What time it is.
    #[inline]
    pub fn now(&self) -> Time {
        self.time(Instant::now())
    }

    /// A moment of the machine's clock. What was before the start counts as the start.
    #[inline]
    pub fn time(&self, instant: Instant) -> Time {
        Time(nanoseconds(instant.saturating_duration_since(self.origin)))
    }

    /// The moment of the machine's clock; `None` if it is too far away to be named.
    #[inline]
    pub fn instant(&self, time: Time) -> Option<Instant> {
        self.origin.checked_add(Duration::from_nanos(time.0))
    }

    /// How long it is until then; `None` for ever.
    pub(crate) fn until(&self, time: Time) -> Option<Duration> {
        Some(self.instant(time)?.saturating_duration_since(Instant::now()))
    }
}

/// A length of time in dispatch's words, saturating.
pub fn span(duration: Duration) -> Span {
    Span(nanoseconds(duration))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
