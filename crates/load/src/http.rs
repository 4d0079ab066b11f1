//! Many requests over HTTP/1.1, each connection with one in flight.
//!
//! Whoever sends writes to a free connection at once, without waking its task; the task reads. So a
//! request costs one write, one read and the wakeups around them. Requests are the same bytes each
//! time, written as they are; of an answer only head and length are looked at.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::{AbortHandle, spawn_local};

use super::connections::Connections;
use super::desk::Desk;
use super::record::{Ending, Job};
use crate::client::Code;
use crate::client::response::{Keep, Response, ResponseReader};

/// The connections of one thread.
pub(super) struct Pool {
    desk: Rc<Desk>,
    address: SocketAddr,
    /// By model, in several variants.
    requests: Vec<Vec<Bytes>>,
    variant: Cell<usize>,
    limit: usize,
    /// The last used is used first: it is warm.
    free: RefCell<Vec<Rc<Connection>>>,
    open: RefCell<BTreeMap<u64, Rc<Connection>>>,
    opening: Cell<usize>,
    opened: Cell<u64>,
    /// What arrives, on its way into a reader.
    buffer: RefCell<Vec<u8>>,
}

struct Connection {
    number: u64,
    writer: OwnedWriteHalf,
    work: RefCell<Work>,
    task: RefCell<Option<AbortHandle>>,
}

struct Work {
    job: Option<Job>,
    reader: ResponseReader,
}

/// More at once would overflow the queue of a server that accepts slowly, and a lost SYN costs a
/// second.
const OPENING_MAX: usize = 64;
const CONNECT_MAX: Duration = Duration::from_secs(5);

impl Connections for Pool {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn opening(&self) -> &Cell<usize> {
        &self.opening
    }

    async fn connect(self: &Rc<Self>) -> Result<(), String> {
        let connecting = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(self.address));
        let connected = connecting.await.map_err(|_| "no answer".to_owned())?;
        let stream = connected.map_err(|error| error.to_string())?;
        // Requests are written whole: there is nothing to wait for.
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        let number = self.opened.get();
        self.opened.set(number + 1);
        let work = RefCell::new(Work { job: None, reader: ResponseReader::new(Keep::Errors) });
        let connection = Rc::new(Connection { number, writer, work, task: RefCell::default() });
        self.open.borrow_mut().insert(number, connection.clone());
        let task = spawn_local(self.clone().receive(connection.clone(), reader));
        connection.task.replace(Some(task.abort_handle()));
        self.reuse(connection);
        Ok(())
    }
}

impl Pool {
    pub(super) fn new(
        desk: Rc<Desk>,
        address: SocketAddr,
        requests: Vec<Vec<Bytes>>,
        limit: usize,
    ) -> Rc<Self> {
        Rc::new(Self {
            desk,
            address,
            requests,
            variant: Cell::new(0),
            limit,
            free: RefCell::default(),
            open: RefCell::default(),
            opening: Cell::new(0),
            opened: Cell::new(0),
            buffer: RefCell::new(vec![0; 64 << 10]),
        })
    }

    /// Opens so many connections and waits until they are there.
    pub(super) async fn prepare(self: &Rc<Self>, count: usize) {
        for _ in 0..count.min(self.limit) {
            if self.opening.get() < OPENING_MAX {
                self.grow();
            } else {
                self.open().await;
            }
        }
        self.opened().await;
    }

    /// Sends a request that was begun: now, if a connection is free.
    pub(super) fn submit(self: &Rc<Self>, job: Job) {
        let free = self.free.borrow_mut().pop();
        if let Some(connection) = free {
            return self.send(&connection, job);
        }
        let all = self.open.borrow().len() + self.opening.get();
        self.desk.keep(job, all >= self.limit);
        if all < self.limit && self.opening.get() < self.desk.waiting().min(OPENING_MAX) {
            self.grow();
        }
    }

    /// A connection is free.
    fn reuse(self: &Rc<Self>, connection: Rc<Connection>) {
        match self.desk.next_job() {
            Some(job) => self.send(&connection, job),
            None => self.free.borrow_mut().push(connection),
        }
    }

    fn send(self: &Rc<Self>, connection: &Rc<Connection>, job: Job) {
        let variants = &self.requests[job.model];
        let variant = self.variant.get();
        self.variant.set(variant + 1);
        let request = &variants[variant % variants.len()];
        connection.work.borrow_mut().job = Some(job);
        let written = match connection.writer.try_write(request) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return self.drop_connection(connection, Some(error.to_string())),
        };
        if written < request.len() {
            let (pool, connection, rest) =
                (self.clone(), connection.clone(), request.slice(written..));
            spawn_local(async move {
                if let Err(error) = write_rest(&connection.writer, rest).await {
                    pool.drop_connection(&connection, Some(error.to_string()));
                }
            });
        }
    }

    /// A connection's task: reads answers until it ends.
    async fn receive(self: Rc<Self>, connection: Rc<Connection>, mut reader: OwnedReadHalf) {
        let reason = poll_fn(|context| {
            loop {
                let mut buffer = self.buffer.borrow_mut();
                let mut arrived = ReadBuf::new(&mut buffer);
                if let Err(error) = ready!(Pin::new(&mut reader).poll_read(context, &mut arrived)) {
                    return Poll::Ready(Some(error.to_string()));
                }
                match self.take(&connection, arrived.filled()) {
                    Ok(true) => {}
                    Ok(false) => return Poll::Ready(None),
                    Err(reason) => return Poll::Ready(Some(reason)),
                }
            }
        });
        let reason = reason.await;
        self.drop_connection(&connection, reason);
    }

    /// Takes what arrived; whether the connection goes on.
    fn take(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        mut bytes: &[u8],
    ) -> Result<bool, String> {
        if bytes.is_empty() {
            let mut work = connection.work.borrow_mut();
            let last = work.reader.closed();
            let job = work.job.take_if(|_| last.is_some());
            drop(work);
            return match (job, last) {
                (Some(job), Some(response)) => {
                    self.desk.finish(job, ending(&response));
                    Ok(false)
                }
                _ => Err("the server closed the connection without an answer".to_owned()),
            };
        }
        while !bytes.is_empty() {
            let mut work = connection.work.borrow_mut();
            let Some((response, rest)) =
                work.reader.feed(bytes).map_err(|error| error.to_string())?
            else {
                return Ok(true);
            };
            let Some(job) = work.job.take() else {
                return Err("an answer came that was not asked for".to_owned());
            };
            drop(work);
            bytes = rest;
            self.desk.finish(job, ending(&response));
            if response.close {
                return Ok(false);
            }
            self.reuse(connection.clone());
        }
        Ok(true)
    }

    /// A connection has ended; its request too, if it had one.
    fn drop_connection(self: &Rc<Self>, connection: &Rc<Connection>, reason: Option<String>) {
        if self.open.borrow_mut().remove(&connection.number).is_none() {
            return;
        }
        self.free.borrow_mut().retain(|free| free.number != connection.number);
        let job = connection.work.borrow_mut().job.take();
        if let Some(job) = job {
            self.desk.finish(job, Ending::Broken(reason.unwrap_or_default()));
        }
        if let Some(task) = connection.task.take() {
            task.abort(); // Does nothing where it is the task itself that came here.
        }
        if self.desk.wants_more() {
            self.grow();
        }
    }

    /// Gives up requests that have waited too long for their answer: their connections are closed,
    /// which tells the server too.
    pub(super) fn expire(self: &Rc<Self>) {
        self.desk.expire_waiting();
        let overdue = |connection: &&Rc<Connection>| {
            connection.work.borrow().job.is_some_and(|job| self.desk.is_overdue(job))
        };
        let overdue: Vec<Rc<Connection>> =
            self.open.borrow().values().filter(overdue).cloned().collect();
        for connection in overdue {
            let job = connection.work.borrow_mut().job.take();
            if let Some(job) = job {
                self.desk.finish(job, Ending::TimedOut);
            }
            self.drop_connection(&connection, None);
        }
    }
}

async fn write_rest(writer: &OwnedWriteHalf, mut rest: Bytes) -> io::Result<()> {
    while !rest.is_empty() {
        writer.writable().await?;
        match writer.try_write(&rest) {
            Ok(written) => rest.advance(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn ending(response: &Response) -> Ending {
    Ending::of(Code::Http(response.status), || response.message())
}
