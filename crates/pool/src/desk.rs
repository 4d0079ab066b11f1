//! Where everything that happens in a pool is handed in, and by whom it is decided: whoever comes.
//!
//! Handing a message to a thread that sleeps costs more than deciding about it: waking one takes tens of microseconds
//! on an idle machine, a decision less than one. So a thread that has a message puts it into the queue and, if nobody
//! is at the desk, works the queue off itself. Nobody ever waits for the desk: who finds it taken leaves the message
//! to whoever is there, who looks again after leaving. One thread of the desk's own keeps the time.

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle, Thread};

use crossbeam_channel::{Receiver, Sender};
use fermata_core::Time;
use fermata_engine::thread::be_punctual;

use crate::clock::Clock;
use crate::driver::Driver;
use crate::message::Message;

/// A pool's desk.
#[derive(Debug)]
pub(crate) struct Desk {
    inbox: (Sender<Message>, Receiver<Message>),
    driver: Mutex<Seat>,
    clock: Clock,
    /// Who keeps the time.
    timer: OnceLock<Thread>,
}

#[derive(Debug)]
struct Seat {
    driver: Driver,
    /// When the timer looks next. It need not be told of anything later.
    armed: Time,
}

impl Desk {
    /// Opens it, and starts its timer.
    pub(crate) fn open(
        mut driver: Driver,
        clock: Clock,
        pool: &str,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        driver.begin();
        let desk = Arc::new(Self {
            inbox: crossbeam_channel::unbounded(),
            driver: Mutex::new(Seat { driver, armed: Time::START }),
            clock,
            timer: OnceLock::new(),
        });
        let timer = thread::Builder::new().name(format!("{pool}-dispatch")).spawn({
            let desk = desk.clone();
            move || desk.keep_time()
        })?;
        desk.timer.get_or_init(|| timer.thread().clone());
        Ok((desk, timer))
    }

    /// Hands a message in. It is worked off now, by this thread or by the one that is there.
    pub(crate) fn send(&self, message: Message) {
        // The desk holds the other end.
        let _ = self.inbox.0.send(message);
        // Either this thread sees the desk left, or who leaves it sees the message: each writes, then reads what the
        // other writes.
        fence(Ordering::SeqCst);
        while let Some(seat) = self.try_sit() {
            self.work(seat);
            fence(Ordering::SeqCst);
            if self.inbox.1.is_empty() {
                return;
            }
        }
    }

    fn try_sit(&self) -> Option<MutexGuard<'_, Seat>> {
        match self.driver.try_lock() {
            Ok(seat) => Some(seat),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => unreachable!("a panic ends the process"),
        }
    }

    /// Does all there is to do.
    fn work(&self, mut seat: MutexGuard<'_, Seat>) {
        while let Ok(message) = self.inbox.1.try_recv() {
            seat.driver.receive(message);
            // A stream of messages must not hold a timer up.
            seat.driver.keep_up();
        }
        let next = seat.driver.next();
        let sooner = next < seat.armed;
        if sooner {
            seat.armed = next;
        }
        drop(seat);
        if sooner && let Some(timer) = self.timer.get() {
            timer.unpark();
        }
    }

    /// The timer's thread.
    fn keep_time(&self) {
        be_punctual();
        let mut due = Time::NEVER;
        loop {
            let mut seat = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
            if due <= self.clock.now() {
                seat.driver.note_wakeup(due);
                seat.driver.keep_up();
            }
            if seat.driver.is_done() {
                return seat.driver.dismiss();
            }
            due = seat.driver.next();
            seat.armed = due;
            drop(seat);
            // What came while the seat was taken is worked off by whoever takes it.
            fence(Ordering::SeqCst);
            if !self.inbox.1.is_empty()
                && let Some(seat) = self.try_sit()
            {
                self.work(seat);
                continue;
            }
            match self.clock.until(due) {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}
