//! How a run is timed.

use std::time::Duration;

use fermata_core::Span;
use fermata_engine::{EngineError, Inputs, Session};
use fermata_scheduler::span;
use rustix::time::{ClockId, clock_gettime};

/// How a run is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// By the time that the thread was given: it computes, and on a busy machine it has to wait for
    /// others. What waiting adds is not the request's, and shows in what batches take.
    Thread,
    /// By the clock: others compute, and the thread waits for them.
    Wall,
}

impl Watch {
    /// How long a model may be measured. Who waits for a device is told what it took, whoever else
    /// computes: that needs fewer runs.
    pub(super) fn budget(self) -> Duration {
        match self {
            Self::Thread => Duration::from_secs(8),
            Self::Wall => Duration::from_secs(5),
        }
    }

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

/// Runs a batch and says how long it took: by the device, where it tells how long it was busy with
/// it, else by a watch.
pub(super) fn time(
    session: &mut dyn Session,
    batch: &[Inputs],
    watch: impl Fn() -> Span,
) -> Result<Span, EngineError> {
    if let Some(running) = session.begin(batch) {
        return Ok(running?.wait()?.took);
    }
    let before = watch();
    session.run(batch)?;
    Ok(watch() - before)
}

#[cfg(test)]
mod tests {
    use fermata_engine::{Ended, Outputs, Running};

    use super::*;

    /// Its batches take a millisecond of a device, and none of anybody else.
    struct Ahead;

    impl Running for Ahead {
        fn wait(self: Box<Self>) -> Result<Ended, EngineError> {
            Ok(Ended { outputs: Vec::new(), took: Span::from_ms(1.0) })
        }
    }

    impl Session for Ahead {
        fn run(&mut self, _: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
            unreachable!("it takes batches ahead")
        }

        fn begin(&mut self, _: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
            Some(Ok(Box::new(Self)))
        }
    }

    #[test]
    fn what_a_device_says_counts_and_not_the_watch() {
        let took = time(&mut Ahead, &[], || unreachable!("the device tells"));
        assert_eq!(took.unwrap(), Span::from_ms(1.0));
    }

    #[test]
    fn a_thread_that_sleeps_is_given_no_time() {
        let (given, passed) = (Watch::Thread.now(), Watch::Wall.now());
        std::thread::sleep(Duration::from_millis(20));
        let (given, passed) = (Watch::Thread.now() - given, Watch::Wall.now() - passed);
        assert!(passed >= Span::from_ms(20.0) && given < passed, "{given} of {passed}");
    }
}
