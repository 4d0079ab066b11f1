//! An executor: a thread that runs one batch at a time, with its own sessions.

use std::io;
use std::mem;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::Receiver;
use fermata_core::{ExecutorId, ModelId, Span, Time};
use fermata_engine::{Inputs, Session};

use super::clock::{Clock, span};
use super::gauges::Gauges;
use super::inbox::{Inbox, Message};
use super::job::{Finished, Job, Refused};

/// What an executor is asked to do, in order.
pub(super) enum Work {
    /// Keep a session: batches of this model will come.
    Install { model: ModelId, session: Box<dyn Session> },
    /// Run a batch.
    Run(Batch),
    /// Give a session back; no more batches of this model will come.
    Uninstall { model: ModelId },
}

/// A batch of one model's requests.
pub(super) struct Batch {
    pub(super) model: ModelId,
    pub(super) jobs: Vec<Job>,
    /// When it should begin.
    pub(super) start: Time,
    /// How long it should take.
    pub(super) latency: Span,
    /// Its run time depends on the inputs, so that to take longer than the mean is nothing unusual.
    pub(super) spread: bool,
}

/// What an executor tells of a batch that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) executor: ExecutorId,
    pub(super) model: ModelId,
    pub(super) size: usize,
    pub(super) took: Span,
    /// How long it should have taken.
    pub(super) latency: Span,
    /// How much later than planned it was done. Where run times are spread, only what was lost beside running counts:
    /// that a batch took longer than the mean is in the distribution already, and must not come off every deadline.
    pub(super) overrun: Span,
}

/// Emulated executors come by the hundreds, and need little.
const STACK: usize = 1 << 20;

/// Starts an executor's thread. It ends when its work's sender is dropped.
pub(super) fn start(
    pool: &str,
    executor: ExecutorId,
    work: Receiver<Work>,
    clock: Clock,
    inbox: Inbox,
    gauges: Arc<Gauges>,
) -> io::Result<JoinHandle<()>> {
    let (sessions, inputs) = (Vec::new(), Vec::new());
    let mut state = State { executor, clock, inbox, gauges, sessions, inputs };
    thread::Builder::new()
        .name(format!("{pool}-{executor}"))
        .stack_size(STACK)
        .spawn(move || work.into_iter().for_each(|work| state.handle(work)))
}

struct State {
    executor: ExecutorId,
    clock: Clock,
    inbox: Inbox,
    gauges: Arc<Gauges>,
    sessions: Vec<Option<Box<dyn Session>>>,
    /// Kept for its memory.
    inputs: Vec<Inputs>,
}

impl State {
    fn handle(&mut self, work: Work) {
        match work {
            Work::Install { model, session } => {
                if model.index() >= self.sessions.len() {
                    self.sessions.resize_with(model.index() + 1, || None);
                }
                self.sessions[model.index()] = Some(session);
            }
            Work::Run(batch) => self.run(batch),
            Work::Uninstall { model } => {
                // Who came when the model had already lost its place never had it.
                if let Some(session) = self.sessions.get_mut(model.index()) {
                    *session = None;
                }
            }
        }
    }

    fn run(&mut self, batch: Batch) {
        let Batch { model, mut jobs, start, latency, spread } = batch;
        self.inputs.extend(jobs.iter_mut().map(|job| mem::take(&mut job.inputs)));
        let session = self.sessions[model.index()].as_mut();
        let session = session.expect("a batch comes after its session");
        let began = Instant::now();
        let outputs = session.run(&self.inputs);
        let took = span(began.elapsed());
        self.inputs.clear();
        let size = jobs.len();
        // Kept until all is told, or the model's id could be another's before.
        let served = jobs[0].served.clone();
        self.gauges.ran(self.executor, took);
        served.metrics.ran(size, took, latency);
        match outputs {
            Ok(outputs) => {
                for (job, outputs) in jobs.into_iter().zip(outputs) {
                    let queued = span(began.saturating_duration_since(job.arrival));
                    // A client that went away needs no answer.
                    let _ = job.reply.send(Ok(Finished { outputs, queued }));
                }
            }
            Err(error) => {
                let reason = error.to_string();
                tracing::warn!(model = %served.name, size, reason, "a batch failed");
                for job in jobs {
                    let _ = job.reply.send(Err(Refused::Failed(reason.clone())));
                }
            }
        }
        // Clients come first: what they wait for is ready, and the next batch is decided in microseconds.
        let overrun = self.clock.now() - (start + if spread { took } else { latency });
        let ran = Ran { executor: self.executor, model, size, took, latency, overrun };
        self.inbox.send(Message::Ran(ran));
    }
}
