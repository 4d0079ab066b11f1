//! An executor: a thread that runs one batch at a time, with its own sessions.
//!
//! Where a session takes batches ahead, the thread only begins them, and a second one awaits them in order (`ahead.rs`). An executor that
//! breaks gives back all that it had and ends; so a request is either answered or given back.

use std::fmt;
use std::io;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use fermata_core::{ClassId, ExecutorId, ModelId, Span, Time};
use fermata_engine::{EngineError, Inputs, Outputs, Running, Session};

use super::OnLost;
use super::ahead::Ahead;
use super::clock::{Clock, span};
use super::gauges::Gauges;
use super::inbox::{Inbox, Message};
use super::job::{Finished, Job, Refused};
use super::roster::Roster;

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
    /// Never empty. Those that were answered already go with the others for dispatch's sake, and do not run.
    pub(super) jobs: Vec<Job>,
    /// When it should begin.
    pub(super) start: Time,
    /// How long it should take.
    pub(super) latency: Span,
    /// Its run time depends on the inputs, so that to take longer than the mean is nothing unusual.
    pub(super) spread: bool,
}

impl Batch {
    /// Those that are to be run.
    pub(super) fn open(&mut self) -> impl Iterator<Item = &mut Job> {
        self.jobs.iter_mut().filter(|job| job.is_open())
    }
}

/// How far a batch has come that an executor took.
pub(super) enum Begun {
    /// It runs, or will when those before it have ended.
    Running(Box<dyn Running>),
    /// It has run, or could not.
    Ended { began: Instant, took: Span, outputs: Result<Vec<Outputs>, EngineError> },
}

/// What an executor tells of a batch that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) executor: ExecutorId,
    pub(super) class: ClassId,
    pub(super) model: ModelId,
    /// None, if there was nothing to run.
    pub(super) size: usize,
    pub(super) took: Span,
    /// How long it should have taken.
    pub(super) latency: Span,
    /// How much later than planned it was done. Where run times are spread, only what was lost beside running counts:
    /// that a batch took longer than the mean is in the distribution already, and must not come off every deadline.
    pub(super) overrun: Span,
}

/// What an executor that broke gives back.
pub(super) struct Lost {
    pub(super) executor: ExecutorId,
    /// What it had taken, and has not answered.
    pub(super) batches: Vec<Batch>,
    /// Where there may be more.
    pub(super) work: Receiver<Work>,
}

/// What a pool's executors have around them.
#[derive(Clone)]
pub(super) struct Premises {
    pub(super) pool: Arc<str>,
    pub(super) clock: Clock,
    pub(super) inbox: Inbox,
    pub(super) gauges: Arc<Gauges>,
    pub(super) roster: Arc<Roster>,
    pub(super) on_lost: Option<Arc<OnLost>>,
}

impl fmt::Debug for Premises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Premises").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Emulated executors come by the hundreds, and need little.
pub(super) const STACK: usize = 1 << 20;

impl Premises {
    /// Starts an executor's thread. It ends when its work's sender is dropped, or when it breaks.
    pub(super) fn hire(
        &self,
        executor: ExecutorId,
        origin: usize,
        class: ClassId,
        work: Receiver<Work>,
    ) -> io::Result<()> {
        self.gauges.open(executor);
        let post = Post { executor, class, premises: self.clone() };
        let state = State { post, sessions: Vec::new(), inputs: Vec::new(), ahead: None };
        let name = format!("{}-{executor}", self.pool);
        thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
            // Whoever makes an executor may be somebody who yields.
            let _ = fermata_engine::thread::yield_to_nobody();
            state.drive(work, origin);
        })?;
        self.roster.enter(executor, origin, class);
        Ok(())
    }
}

/// Who an executor is, and whom it tells.
#[derive(Clone)]
pub(super) struct Post {
    pub(super) executor: ExecutorId,
    class: ClassId,
    pub(super) premises: Premises,
}

impl Post {
    /// Waits for a batch that was begun, answers it, and tells. It is given back if the executor broke, and there is somebody to
    /// take it.
    pub(super) fn finish(&self, mut batch: Batch, begun: Begun) -> Result<(), Batch> {
        let is_ahead = matches!(begun, Begun::Running(_));
        let (began, took, outputs) = match begun {
            Begun::Ended { began, took, outputs } => (began, took, outputs),
            Begun::Running(running) => {
                let ended = running.wait();
                let took = ended.as_ref().map_or(Span::ZERO, |ended| ended.took);
                // That it waited for others on the device was part of the queue.
                let now = Instant::now();
                let began = now.checked_sub(Duration::from_nanos(took.0)).unwrap_or(now);
                (began, took, ended.map(|ended| ended.outputs))
            }
        };
        let Premises { clock, inbox, gauges, .. } = &self.premises;
        if matches!(outputs, Err(EngineError::Lost(_))) && inbox.takes_back() {
            return Err(batch);
        }
        let (executor, class, model, latency) =
            (self.executor, self.class, batch.model, batch.latency);
        // One that failed tells nothing of how long batches take.
        let size = if outputs.is_ok() { batch.open().count() } else { 0 };
        if size > 0 {
            gauges.ran(executor, took);
            batch.jobs[0].served.metrics.ran(size, took, latency);
        }
        let planned = batch.start + if batch.spread { took } else { latency };
        let tell = || {
            let now = clock.now();
            let overrun = now - planned;
            tracing::trace!(%executor, %model, size, ?now, ?planned, ?took, ?latency, "a batch ended");
            inbox.send(Message::Ran(Ran { executor, class, model, size, took, latency, overrun }));
        };
        // Where the device goes on with the next batch already, dispatch must know as soon as can be that it does.
        if is_ahead {
            tell();
        }
        match outputs {
            Ok(outputs) => {
                for (job, outputs) in batch.open().zip(outputs) {
                    let queued = span(began.saturating_duration_since(job.arrival));
                    job.answer(Ok(Finished { outputs, queued }));
                }
            }
            Err(error) => {
                let (model, reason) = (&batch.jobs[0].served.name, error.to_string());
                let size = batch.jobs.len();
                tracing::warn!(model, size, reason, "a batch failed");
                batch.open().for_each(|job| job.answer(Err(Refused::Failed(reason.clone()))));
            }
        }
        // Otherwise clients come first: what they wait for is ready, and the next batch is decided in microseconds.
        if !is_ahead {
            tell();
        }
        // The jobs were kept until all is told, or the model's id could be another's before.
        Ok(())
    }
}

struct State {
    post: Post,
    sessions: Vec<Option<Box<dyn Session>>>,
    /// Kept for its memory.
    inputs: Vec<Inputs>,
    /// Who awaits what was begun, once something was.
    ahead: Option<Ahead>,
}

impl State {
    fn drive(mut self, work: Receiver<Work>, origin: usize) {
        let mut lost = Vec::new();
        while let Some(next) = self.next(&work) {
            if let Err(batch) = self.handle(next) {
                lost.push(batch);
                break;
            }
        }
        let Self { post: Post { executor, premises, .. }, sessions, ahead, .. } = self;
        lost.extend(ahead.map(Ahead::end).unwrap_or_default());
        drop(sessions);
        if lost.is_empty() {
            return premises.roster.end(executor);
        }
        tracing::warn!(pool = %premises.pool, %executor, origin, "an executor broke");
        premises.inbox.send(Message::Lost(Lost { executor, batches: lost, work }));
        premises.roster.end(executor);
        if let Some(on_lost) = &premises.on_lost {
            on_lost(origin);
        }
    }

    /// What is to be done next; `None` where there will be nothing, or it broke.
    fn next(&self, work: &Receiver<Work>) -> Option<Work> {
        match &self.ahead {
            Some(ahead) => ahead.next(work),
            None => work.recv().ok(),
        }
    }

    /// Gives the batch back if the executor broke.
    fn handle(&mut self, work: Work) -> Result<(), Batch> {
        match work {
            Work::Install { model, session } => {
                if model.index() >= self.sessions.len() {
                    self.sessions.resize_with(model.index() + 1, || None);
                }
                self.sessions[model.index()] = Some(session);
            }
            Work::Run(mut batch) => {
                let begun = self.begin(&mut batch);
                return self.finish(batch, begun);
            }
            Work::Uninstall { model } => {
                // Who came when the model had already lost its place never had it.
                if let Some(session) = self.sessions.get_mut(model.index()) {
                    *session = None;
                }
            }
        }
        Ok(())
    }

    /// Begins a batch, or runs it where its session takes none ahead.
    fn begin(&mut self, batch: &mut Batch) -> Begun {
        self.inputs.extend(batch.open().map(|job| mem::take(&mut job.inputs)));
        let began = Instant::now();
        if self.inputs.is_empty() {
            return Begun::Ended { began, took: Span::ZERO, outputs: Ok(Vec::new()) };
        }
        let session = self.sessions[batch.model.index()].as_mut();
        let session = session.expect("a batch comes after its session");
        let begun = match session.begin(&self.inputs) {
            Some(Ok(running)) => Begun::Running(running),
            Some(Err(error)) => Begun::Ended { began, took: Span::ZERO, outputs: Err(error) },
            None => {
                let outputs = session.run(&self.inputs);
                Begun::Ended { began, took: span(began.elapsed()), outputs }
            }
        };
        let took = span(began.elapsed());
        tracing::trace!(executor = %self.post.executor, size = self.inputs.len(), ?took, "a batch was begun");
        if let Begun::Ended { outputs: Ok(_), .. } = begun {
            self.inputs.clear();
        } else {
            // It may have to run elsewhere.
            batch.open().zip(self.inputs.drain(..)).for_each(|(job, inputs)| job.inputs = inputs);
        }
        begun
    }

    /// Sees to it that a batch is answered, after those before it.
    fn finish(&mut self, batch: Batch, begun: Begun) -> Result<(), Batch> {
        if self.ahead.is_none() && matches!(begun, Begun::Running(_)) {
            let started = Ahead::start(&self.post);
            let no_thread = |error: &io::Error| {
                let executor = self.post.executor;
                tracing::warn!(%executor, %error, "no thread to await batches: none is begun ahead");
            };
            self.ahead = started.inspect_err(no_thread).ok();
        }
        match &self.ahead {
            Some(ahead) => ahead.add(batch, begun),
            None => return self.post.finish(batch, begun),
        }
        Ok(())
    }
}
