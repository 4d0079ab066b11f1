//! A pool's event queue. The thread that enqueues an event also runs the dispatcher, unless another
//! thread already does.
//!
//! Waking a thread takes tens of microseconds on an idle machine, and a decision takes less than
//! one. So a thread that has a message enqueues it, and drains the queue itself if it gets the
//! lock. A thread that does not get the lock leaves: the thread that holds the lock looks at the
//! queue again after it has unlocked. Only the timer's thread, which wakes the dispatcher in time,
//! waits for the lock.

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crossbeam_channel::{Receiver, Sender};
use fermata_core::Time;
use fermata_engine::thread::be_punctual;
use fermata_scheduler::{Alarm, Runtime, Started};

use crate::driver::Driver;
use crate::message::Message;

/// A driver that several threads run, one at a time.
#[derive(Debug)]
pub(crate) struct SharedDriver {
    inbox: (Sender<Message>, Receiver<Message>),
    driver: Mutex<DriverState>,
    runtime: Arc<dyn Runtime>,
    /// Wakes the thread that wakes the dispatcher in time.
    timer: Arc<dyn Alarm>,
}

#[derive(Debug)]
struct DriverState {
    driver: Driver,
    /// When the timer looks next. It need not be told of anything later.
    armed: Time,
}

impl SharedDriver {
    /// Lets the executors join, and starts the timer.
    pub(crate) fn open(
        mut driver: Driver,
        runtime: &Arc<dyn Runtime>,
        pool: &str,
    ) -> io::Result<(Arc<Self>, Box<dyn Started>)> {
        driver.begin();
        let shared = Arc::new(Self {
            inbox: crossbeam_channel::unbounded(),
            driver: Mutex::new(DriverState { driver, armed: Time::START }),
            timer: runtime.alarm(),
            runtime: runtime.clone(),
        });
        let timed = shared.clone();
        let keep_time = Box::new(move || timed.keep_time());
        let timer = runtime.start(format!("{pool}-dispatch"), None, keep_time)?;
        Ok((shared, timer))
    }

    /// Enqueues a message. It is handled now, by this thread or by the one that holds the lock.
    pub(crate) fn send(&self, message: Message) {
        // The receiver lives as long as the sender.
        let _ = self.inbox.0.send(message);
        // Either this thread sees the lock free, or the thread that frees it sees the message: each
        // writes, then reads what the other one writes.
        fence(Ordering::SeqCst);
        while let Some(state) = self.try_lock_driver() {
            self.work(state);
            fence(Ordering::SeqCst);
            if self.inbox.1.is_empty() {
                return;
            }
        }
    }

    fn try_lock_driver(&self) -> Option<MutexGuard<'_, DriverState>> {
        match self.driver.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => unreachable!("a panic ends the process"),
        }
    }

    /// Drains the queue.
    fn work(&self, mut state: MutexGuard<'_, DriverState>) {
        while let Ok(message) = self.inbox.1.try_recv() {
            state.driver.receive(message);
            // A stream of messages must not hold a timer up.
            state.driver.keep_up();
        }
        let next = state.driver.next();
        let sooner = next < state.armed;
        if sooner {
            state.armed = next;
        }
        drop(state);
        if sooner {
            self.timer.ring();
        }
    }

    /// The timer's thread.
    fn keep_time(&self) {
        be_punctual();
        let mut due = Time::NEVER;
        loop {
            let mut state = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
            if due <= self.runtime.now() {
                state.driver.note_wakeup(due);
                state.driver.keep_up();
            }
            if state.driver.is_done() {
                return state.driver.stop_executors();
            }
            due = state.driver.next();
            state.armed = due;
            drop(state);
            // A message that came while the lock was held is handled by the thread that takes the
            // lock next.
            fence(Ordering::SeqCst);
            if !self.inbox.1.is_empty()
                && let Some(state) = self.try_lock_driver()
            {
                self.work(state);
                continue;
            }
            self.timer.wait(due);
        }
    }
}
