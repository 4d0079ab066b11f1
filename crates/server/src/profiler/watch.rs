//! How a run is timed.

use std::time::Duration;

use fermata_core::Span;
use rustix::time::{ClockId, clock_gettime};

use crate::pool::span;

/// How a run is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// By the time that the thread was given: it computes, and on a busy machine it has to wait for others. What waiting adds is not the
    /// request's, and shows in what batches take.
    Thread,
    /// By the clock: others compute, and the thread waits for them.
    Wall,
}

impl Watch {
    /// The time that this thread was given, or that has passed.
    pub(crate) fn now(self) -> Span {
        let clock = match self {
            Self::Thread => ClockId::ThreadCPUTime,
            Self::Wall => ClockId::Monotonic,
        };
        let time = clock_gettime(clock);
        span(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_given_no_time() {
        let (given, passed) = (Watch::Thread.now(), Watch::Wall.now());
        std::thread::sleep(Duration::from_millis(20));
        let (given, passed) = (Watch::Thread.now() - given, Watch::Wall.now() - passed);
        assert!(passed >= Span::from_ms(20.0) && given < passed, "{given} of {passed}");
    }
}
