//! Where one thread's requests begin and end, whatever carries them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::record::{Ending, Job, Record};

/// One thread's desk.
pub(super) struct Desk {
    start: Instant,
    /// Shared with whoever watches; locked by nobody else for long.
    record: Arc<Mutex<Record>>,
    /// As many requests as possible, rather than those that are due.
    closed: bool,
    models: usize,
    timeout: Duration,
    /// Due, and without a connection.
    waiting: RefCell<VecDeque<Job>>,
    outstanding: Cell<usize>,
    /// In a closed loop: how many were begun.
    begun: Cell<usize>,
    ended: Cell<bool>,
    /// Whatever is under way then is given up.
    last: Cell<u64>,
    empty: Notify,
}

/// How long answers are waited for after somebody ended the run.
const GRACE_NS: u64 = 1_000_000_000;

impl Desk {
    pub(super) fn new(
        start: Instant,
        record: Arc<Mutex<Record>>,
        closed: bool,
        models: usize,
        timeout: Duration,
    ) -> Self {
        Self {
            start,
            record,
            closed,
            models,
            timeout,
            waiting: RefCell::default(),
            outstanding: Cell::new(0),
            begun: Cell::new(0),
            ended: Cell::new(false),
            last: Cell::new(u64::MAX),
            empty: Notify::new(),
        }
    }

    /// Nanoseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("nobody panics with the record")
    }

    /// A request is due and will be sent.
    pub(super) fn begin(&self, job: Job) {
        self.outstanding.set(self.outstanding.get() + 1);
        self.record().send(job, self.now());
    }

    /// Keeps a request that was begun until there is a connection for it.
    pub(super) fn keep(&self, job: Job, at_limit: bool) {
        self.waiting.borrow_mut().push_back(job);
        if at_limit {
            self.record().wait(job);
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// What a connection that has become free sends next.
    pub(super) fn next_job(&self) -> Option<Job> {
        if !self.closed {
            return self.waiting.borrow_mut().pop_front();
        }
        if self.ended.get() {
            return None;
        }
        let begun = self.begun.get();
        self.begun.set(begun + 1);
        let job = Job { model: begun % self.models, due: self.now() };
        self.begin(job);
        Some(job)
    }

    /// A request that was begun ends.
    pub(super) fn finish(&self, job: Job, ending: Ending) {
        let now = self.now();
        self.record().finish(job, now, ending);
        let left = self.outstanding.get() - 1;
        self.outstanding.set(left);
        if left == 0 {
            self.empty.notify_one();
        }
    }

    /// Whether a request has been under way for too long.
    pub(super) fn is_overdue(&self, job: Job) -> bool {
        let now = self.now();
        now.saturating_sub(job.due) > self.timeout.as_nanos() as u64 || now > self.last.get()
    }

    /// Gives up what waits for too long.
    pub(super) fn expire_waiting(&self) {
        loop {
            let head = self.waiting.borrow().front().copied();
            match head {
                Some(job) if self.is_overdue(job) => {
                    self.waiting.borrow_mut().pop_front();
                    self.finish(job, Ending::TimedOut);
                }
                _ => return,
            }
        }
    }

    /// Whether a connection that broke should be made anew.
    pub(super) fn wants_more(&self) -> bool {
        if self.closed { !self.ended.get() } else { self.waiting() > 0 }
    }

    /// Somebody does not want to wait for long.
    pub(super) fn hurry(&self) {
        self.last.set(self.now() + GRACE_NS);
    }

    /// No more requests begin.
    pub(super) fn end(&self) {
        self.ended.set(true);
    }

    /// Waits until every request has ended.
    pub(super) async fn drained(&self) {
        while self.outstanding.get() > 0 {
            self.empty.notified().await;
        }
    }
}
