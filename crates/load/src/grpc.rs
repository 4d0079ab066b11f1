//! Many requests over gRPC: connections share the requests in flight, up to so many each.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::task::{AbortHandle, spawn_local};

use super::connections::Connections;
use super::desk::Desk;
use super::record::{Ending, Job};
use crate::client::grpc::{Connection, Prepared};
use crate::client::{Code, Target};

/// The connections of one thread.
pub(super) struct Pool {
    desk: Rc<Desk>,
    target: Target,
    requests: Vec<Vec<Prepared>>,
    variant: Cell<usize>,
    limit: usize,
    /// Requests in flight on one connection, at most.
    streams: usize,
    lines: RefCell<Vec<Rc<Line>>>,
    opening: Cell<usize>,
    calls: RefCell<BTreeMap<u64, Call>>,
    called: Cell<u64>,
}

/// An open connection.
struct Line {
    connection: Connection,
    in_flight: Cell<usize>,
}

/// A request in flight.
struct Call {
    job: Job,
    line: Rc<Line>,
    task: AbortHandle,
}

impl Connections for Pool {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn opening(&self) -> &Cell<usize> {
        &self.opening
    }

    async fn connect(self: &Rc<Self>) -> Result<(), String> {
        let connection = Connection::open(&self.target).await?;
        let line = Rc::new(Line { connection, in_flight: Cell::new(0) });
        self.lines.borrow_mut().push(line.clone());
        self.fill(&line);
        Ok(())
    }
}

impl Pool {
    pub(super) fn new(
        desk: Rc<Desk>,
        target: Target,
        requests: Vec<Vec<Prepared>>,
        limit: usize,
        streams: usize,
    ) -> Rc<Self> {
        Rc::new(Self {
            desk,
            target,
            requests,
            variant: Cell::new(0),
            limit,
            streams,
            lines: RefCell::default(),
            opening: Cell::new(0),
            calls: RefCell::default(),
            called: Cell::new(0),
        })
    }

    /// Opens so many connections and waits until they are there.
    pub(super) async fn prepare(self: &Rc<Self>, count: usize) {
        (0..count.min(self.limit)).for_each(|_| self.grow());
        self.opened().await;
    }

    /// Sends a request that was begun: now, if a connection has room.
    pub(super) fn submit(self: &Rc<Self>, job: Job) {
        let lines = self.lines.borrow();
        let idlest = lines.iter().min_by_key(|line| line.in_flight.get());
        if let Some(line) = idlest.filter(|line| self.has_room(line)).cloned() {
            drop(lines);
            return self.send(&line, job);
        }
        let all = lines.len() + self.opening.get();
        drop(lines);
        self.desk.keep(job, all >= self.limit);
        if all < self.limit && self.opening.get() * self.streams < self.desk.waiting() {
            self.grow();
        }
    }

    fn has_room(&self, line: &Line) -> bool {
        line.in_flight.get() < self.streams.min(line.connection.streams_max())
    }

    fn fill(self: &Rc<Self>, line: &Rc<Line>) {
        while self.has_room(line) {
            let Some(job) = self.desk.next_job() else { return };
            self.send(line, job);
        }
    }

    fn send(self: &Rc<Self>, line: &Rc<Line>, job: Job) {
        let variant = self.variant.get();
        self.variant.set(variant + 1);
        let number = self.called.get();
        self.called.set(number + 1);
        line.in_flight.set(line.in_flight.get() + 1);
        let (pool, on) = (self.clone(), line.clone());
        let task = spawn_local(async move {
            let variants = &pool.requests[job.model];
            let mut connection = on.connection.clone();
            let reply = connection.call(&variants[variant % variants.len()], false).await;
            pool.calls.borrow_mut().remove(&number);
            on.in_flight.set(on.in_flight.get() - 1);
            let broken = reply.is_err();
            let ending = match reply {
                Ok(reply) => Ending::of(Code::Grpc(reply.status), || reply.message),
                Err(reason) => Ending::Broken(reason),
            };
            pool.desk.finish(job, ending);
            if broken {
                pool.drop_line(&on);
            } else {
                pool.fill(&on);
            }
        });
        let call = Call { job, line: line.clone(), task: task.abort_handle() };
        self.calls.borrow_mut().insert(number, call);
    }

    fn drop_line(self: &Rc<Self>, line: &Rc<Line>) {
        let before = self.lines.borrow().len();
        self.lines.borrow_mut().retain(|other| !Rc::ptr_eq(other, line));
        if self.lines.borrow().len() < before && self.desk.wants_more() {
            self.grow();
        }
    }

    /// Gives up requests that have waited too long for their answer; the stream is reset, which
    /// tells the server too.
    pub(super) fn expire(self: &Rc<Self>) {
        self.desk.expire_waiting();
        let numbers: Vec<u64> = {
            let calls = self.calls.borrow();
            let late = calls.iter().filter(|(_, call)| self.desk.is_overdue(call.job));
            late.map(|(number, _)| *number).collect()
        };
        let remove = |number| self.calls.borrow_mut().remove(number);
        let overdue: Vec<Call> = numbers.iter().filter_map(remove).collect();
        for call in overdue {
            call.task.abort();
            call.line.in_flight.set(call.line.in_flight.get() - 1);
            self.desk.finish(call.job, Ending::TimedOut);
            self.fill(&call.line);
        }
    }
}
