//! One thread that sends: an event loop of its own, so that nothing is handed from thread to
//! thread.

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::sleep;

use super::desk::Desk;
use super::payload::Requests;
use super::record::{Job, Record};
use super::schedule::Schedule;
use super::timer::Timer;
use super::{grpc, http};
use crate::client::Target;

/// What one thread does.
pub(super) struct Work {
    pub(super) target: Target,
    pub(super) requests: Requests,
    pub(super) load: Load,
    pub(super) models: usize,
    pub(super) start: Instant,
    /// No request is due after this.
    pub(super) end: Duration,
    pub(super) timeout: Duration,
    pub(super) connections: usize,
}

/// This thread's part of the load.
pub(super) enum Load {
    /// So many at any time.
    Closed(usize),
    /// What is due.
    Open(Schedule),
}

/// A wish to end early, heard by all threads.
#[derive(Debug, Default)]
pub(super) struct Stop {
    wanted: AtomicBool,
    heard: Notify,
}

impl Stop {
    pub(super) fn stop(&self) {
        self.wanted.store(true, Ordering::Release);
        self.heard.notify_waiters();
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    async fn wait(&self) {
        let mut heard = std::pin::pin!(self.heard.notified());
        heard.as_mut().enable();
        if !self.is_wanted() {
            heard.await;
        }
    }
}

/// Connections that are open before the first request.
const OPENED_FIRST: usize = 16;
/// Requests in flight on one gRPC connection before there is another.
const STREAMS: usize = 32;
/// Requests that are overdue are sent in groups of so many: between them answers are read.
const GROUP: usize = 16;

/// Runs one thread's part until its last request has ended.
pub(super) fn run(work: Work, record: Arc<Mutex<Record>>, stop: &Stop) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, send(work, record, stop))
}

async fn send(work: Work, record: Arc<Mutex<Record>>, stop: &Stop) -> io::Result<()> {
    let Work { target, requests, load, models, start, end, timeout, connections } = work;
    let (closed, streams, limit, first) = match load {
        Load::Closed(count) => (true, 1, count, count),
        Load::Open(_) => (false, STREAMS, connections, OPENED_FIRST),
    };
    let desk = Rc::new(Desk::new(start, record, closed, models, timeout));
    let pool = match requests {
        Requests::Grpc(requests) => {
            let first = if closed { first } else { 2 };
            let pool = grpc::Pool::new(desk.clone(), target, requests, limit, streams);
            if !closed {
                pool.prepare(first).await;
            }
            Pool::Grpc(pool, first)
        }
        Requests::Http(requests) => {
            let pool = http::Pool::new(desk.clone(), target.address, requests, limit);
            if !closed {
                pool.prepare(first).await;
            }
            Pool::Http(pool, first)
        }
    };
    let sweeper = spawn_local(sweep(pool.clone(), timeout));
    match load {
        Load::Closed(_) => {
            sleep(start.saturating_duration_since(Instant::now())).await;
            // A connection takes a request as soon as it is open.
            let working = async {
                pool.prepare().await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = working => {}
                () = sleep((start + end).saturating_duration_since(Instant::now())) => {}
                () = stop.wait() => desk.hurry(),
            }
        }
        Load::Open(schedule) => tokio::select! {
            paced = pace(schedule, &desk, &pool, start, end) => paced?,
            () = stop.wait() => desk.hurry(),
        },
    }
    desk.end();
    desk.drained().await;
    sweeper.abort();
    Ok(())
}

/// Sends each request when it is due.
async fn pace(
    mut schedule: Schedule,
    desk: &Desk,
    pool: &Pool,
    start: Instant,
    end: Duration,
) -> io::Result<()> {
    let timer = Timer::new()?;
    timer.sleep(start.saturating_duration_since(Instant::now())).await?;
    let end = end.as_nanos() as u64;
    let mut sent = 0;
    loop {
        let (due, model) = schedule.next();
        if due.0 >= end {
            return Ok(());
        }
        let now = desk.now();
        if due.0 > now {
            timer.sleep(Duration::from_nanos(due.0 - now)).await?;
            sent = 0;
        } else if sent == GROUP {
            yield_now().await;
            sent = 0;
        }
        sent += 1;
        let job = Job { model, due: due.0 };
        desk.begin(job);
        pool.submit(job);
    }
}

/// Looks for requests that have been under way for too long.
async fn sweep(pool: Pool, timeout: Duration) {
    let every = (timeout / 50).clamp(Duration::from_millis(2), Duration::from_millis(50));
    loop {
        sleep(every).await;
        pool.expire();
    }
}

/// The connections, and how many to open first.
#[derive(Clone)]
enum Pool {
    Grpc(Rc<grpc::Pool>, usize),
    Http(Rc<http::Pool>, usize),
}

impl Pool {
    async fn prepare(&self) {
        match self {
            Self::Grpc(pool, first) => pool.prepare(*first).await,
            Self::Http(pool, first) => pool.prepare(*first).await,
        }
    }

    fn submit(&self, job: Job) {
        match self {
            Self::Grpc(pool, _) => pool.submit(job),
            Self::Http(pool, _) => pool.submit(job),
        }
    }

    fn expire(&self) {
        match self {
            Self::Grpc(pool, _) => pool.expire(),
            Self::Http(pool, _) => pool.expire(),
        }
    }
}
