//! An executor: a thread that runs one batch at a time, with its own sessions.
//!
//! Where a session takes batches ahead, the thread only begins them, and a second thread awaits
//! them in order (`ahead.rs`). An executor that breaks gives back all that it had and ends, so a
//! request is either answered or given back.

use std::io;

use crossbeam_channel::Receiver;
use fermata_core::{ClassId, ExecutorId, Span};
use fermata_engine::{Inputs, Session};

use crate::ahead::Ahead;
use crate::handle::{Begun, ExecutorContext, ExecutorHandle, STACK};
use crate::message::{Batch, Lost, Message, Work};

impl ExecutorContext {
    /// Starts an executor's thread. It ends when its work's sender is dropped, or when it breaks.
    pub(crate) fn spawn_executor(
        &self,
        executor: ExecutorId,
        origin: usize,
        class: ClassId,
        work: Receiver<Work>,
    ) -> io::Result<()> {
        self.gauges.open(executor);
        let handle = ExecutorHandle { executor, class, context: self.clone() };
        let state = State { handle, sessions: Vec::new(), inputs: Vec::new(), ahead: None };
        let name = format!("{}-{executor}", self.pool);
        let body = move || {
            // The thread that spawns an executor may be one that yields to others.
            let _ = fermata_engine::thread::yield_to_nobody();
            state.drive(work, origin);
        };
        self.runtime.start(name, Some(STACK), Box::new(body))?;
        self.roster.enter(executor, origin, class);
        Ok(())
    }
}

struct State {
    handle: ExecutorHandle,
    sessions: Vec<Option<Box<dyn Session>>>,
    /// Kept for its memory.
    inputs: Vec<Inputs>,
    /// Awaits batches that were begun, once there is one.
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
        let Self { handle: ExecutorHandle { executor, context, .. }, sessions, ahead, .. } = self;
        lost.extend(ahead.map(Ahead::end).unwrap_or_default());
        drop(sessions);
        if lost.is_empty() {
            return context.roster.end(executor);
        }
        tracing::warn!(pool = %context.pool, %executor, origin, "an executor broke");
        context.inbox.send(Message::Lost(Lost { executor, batches: lost, work }));
        context.roster.end(executor);
        if let Some(on_lost) = &context.on_lost {
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
                // An executor that came after the model lost its place never had it.
                if let Some(session) = self.sessions.get_mut(model.index()) {
                    *session = None;
                }
            }
        }
        Ok(())
    }

    /// Begins a batch, or runs it where its session takes none ahead.
    fn begin(&mut self, batch: &mut Batch) -> Begun {
        self.inputs.extend(batch.open().map(|ticket| ticket.owner.take_inputs()));
        let runtime = &self.handle.context.runtime;
        let began = runtime.now();
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
                Begun::Ended { began, took: runtime.now() - began, outputs }
            }
        };
        let (took, size) = (runtime.now() - began, self.inputs.len());
        tracing::trace!(executor = %self.handle.executor, size, ?took, "a batch was begun");
        if let Begun::Ended { outputs: Ok(_), .. } = begun {
            self.inputs.clear();
        } else {
            // It may have to run elsewhere.
            let given = batch.open().zip(self.inputs.drain(..));
            given.for_each(|(ticket, inputs)| ticket.owner.give_back(inputs));
        }
        begun
    }

    /// Sees to it that a batch is answered, after those before it.
    fn finish(&mut self, batch: Batch, begun: Begun) -> Result<(), Batch> {
        if self.ahead.is_none() && matches!(begun, Begun::Running(_)) {
            let started = Ahead::start(&self.handle);
            let no_thread = |error: &io::Error| {
                let executor = self.handle.executor;
                tracing::warn!(
                    %executor, %error, "no thread to await batches: none is begun ahead"
                );
            };
            self.ahead = started.inspect_err(no_thread).ok();
        }
        match &self.ahead {
            Some(ahead) => ahead.add(batch, begun),
            None => return self.handle.finish(batch, begun),
        }
        Ok(())
    }
}
