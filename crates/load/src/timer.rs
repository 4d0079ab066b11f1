//! A timer that is exact: tokio's own counts in milliseconds.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A timer of the kernel's, which wakes the event loop within some ten microseconds.
pub(super) struct Timer {
    handle: AsyncFd<OwnedFd>,
}

impl Timer {
    #[allow(deprecated, reason = "its successor is unsafe, and an OwnedFd stays the file it is")]
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { handle: AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)? })
    }

    /// Sleeps for this long.
    pub(super) async fn sleep(&self, span: Duration) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero would disarm it.
        let span = span.max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: span.subsec_nanos().into() };
        let setting = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(self.handle.get_ref(), TimerfdTimerFlags::empty(), &setting)?;
        // Setting it again forgets that it went off: it need not be read.
        self.handle.readable().await?.clear_ready();
        Ok(())
    }
}
