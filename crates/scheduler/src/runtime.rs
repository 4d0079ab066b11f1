//! What threads need of the world around them: the time, more threads, and a way to be woken.
//!
//! The code between is the same in real time and in a simulation of it. Here is real time.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use fermata_core::{Span, Time};

use crate::Bell;

/// The world around threads.
pub trait Runtime: fmt::Debug + Send + Sync {
    /// What time it is.
    fn now(&self) -> Time;

    /// A moment of the machine's clock. What was before the start counts as the start.
    fn time(&self, instant: Instant) -> Time;

    /// Starts a thread of this name. Its stack has `stack` bytes, or as many as is usual.
    fn start(
        &self,
        name: String,
        stack: Option<usize>,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn Started>>;

    /// A way to wake one thread.
    fn alarm(&self) -> Arc<dyn Alarm>;

    /// Lets the calling thread sleep until `due`, or until its bell is rung; not at all if there is
    /// work for it.
    fn sleep(&self, bell: &Bell, due: Time, has_work: &dyn Fn() -> bool);
}

/// A thread that was started.
pub trait Started: fmt::Debug + Send {
    /// Waits for its end.
    fn join(self: Box<Self>);
}

/// Wakes one thread.
pub trait Alarm: fmt::Debug + Send + Sync {
    /// Lets the calling thread sleep until `due`, or until the alarm is rung. An alarm that was
    /// rung since the last wait ends this one at once. Only one thread may wait.
    fn wait(&self, due: Time);

    /// Wakes the thread.
    fn ring(&self);
}

/// Real time: the machine's monotonic clock, counted from the start, and its threads.
#[derive(Clone, Copy, Debug)]
pub struct RealTime {
    origin: Instant,
}

impl RealTime {
    /// Begins to count.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// How long it is until then; `None` if that is too far away to be named.
    fn until(&self, time: Time) -> Option<Duration> {
        let then = self.origin.checked_add(Duration::from_nanos(time.0))?;
        Some(then.saturating_duration_since(Instant::now()))
    }
}

impl Runtime for RealTime {
    #[inline]
    fn now(&self) -> Time {
        self.time(Instant::now())
    }

    #[inline]
    fn time(&self, instant: Instant) -> Time {
        Time::START + span(instant.saturating_duration_since(self.origin))
    }

    fn start(
        &self,
        name: String,
        stack: Option<usize>,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn Started>> {
        let thread = thread::Builder::new().name(name);
        let thread = match stack {
            Some(bytes) => thread.stack_size(bytes),
            None => thread,
        };
        Ok(Box::new(thread.spawn(body)?))
    }

    fn alarm(&self) -> Arc<dyn Alarm> {
        let (thread, rung) = (OnceLock::new(), AtomicBool::new(false));
        Arc::new(RealAlarm { runtime: *self, thread, rung })
    }

    fn sleep(&self, bell: &Bell, due: Time, has_work: &dyn Fn() -> bool) {
        bell.sleep(self.until(due), has_work);
    }
}

impl Started for JoinHandle<()> {
    fn join(self: Box<Self>) {
        // A panic of the thread ended the process already.
        let _ = JoinHandle::join(*self);
    }
}

#[derive(Debug)]
struct RealAlarm {
    runtime: RealTime,
    /// The thread that waits, once it has.
    thread: OnceLock<Thread>,
    rung: AtomicBool,
}

impl Alarm for RealAlarm {
    fn wait(&self, due: Time) {
        self.thread.get_or_init(thread::current);
        // Either this sees that it was rung, or the thread that rings sees which thread to wake.
        fence(Ordering::SeqCst);
        if !self.rung.swap(false, Ordering::SeqCst) {
            match self.runtime.until(due) {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
            self.rung.store(false, Ordering::SeqCst);
        }
    }

    fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A length of time in dispatch's words, saturating.
pub fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_from_the_start_and_saturates() {
        let runtime = RealTime::start();
        let later = runtime.origin + Duration::from_millis(3);
        assert_eq!(runtime.time(later), Time::from_ms(3.0));
        let earlier = runtime.origin.checked_sub(Duration::from_millis(3));
        assert!(earlier.is_none_or(|earlier| runtime.time(earlier) == Time::START));
        assert_eq!(runtime.until(Time::START), Some(Duration::ZERO));
        assert_eq!(span(Duration::MAX), Span::MAX);
    }

    #[test]
    fn an_alarm_wakes_its_thread_though_it_was_rung_before() {
        let runtime = RealTime::start();
        let alarm = runtime.alarm();
        alarm.ring();
        alarm.wait(Time::NEVER);
        let other = alarm.clone();
        let thread = runtime.start("ringer".to_owned(), None, Box::new(move || other.ring()));
        alarm.wait(Time::NEVER);
        thread.unwrap().join();
        alarm.wait(runtime.now() + Span::from_ms(1.0));
    }
}
