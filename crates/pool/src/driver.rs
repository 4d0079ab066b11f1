//! The dispatcher in one piece, against the clock: it is told what happened, and what it asks is
//! done.

use std::sync::Arc;

use fermata_core::{ExecutorId, Time};
use fermata_dispatch::{Actions, Dispatch, Event};
use fermata_recording::Recorder;
use fermata_scheduler::Runtime;

use crate::CLASS;
use crate::effects::Effects;
use crate::margin::{LATE_MIN, Lateness, Learner};
use crate::message::{Lost, Message};

pub(crate) struct Driver {
    dispatcher: Box<dyn Dispatch>,
    runtime: Arc<dyn Runtime>,
    effects: Effects,
    recorder: Option<Recorder>,
    actions: Actions,
    learner: Learner,
    lateness: Lateness,
    /// The executors were stopped.
    over: bool,
}

impl Driver {
    pub(crate) fn new(
        dispatcher: Box<dyn Dispatch>,
        runtime: Arc<dyn Runtime>,
        effects: Effects,
        recorder: Option<Recorder>,
        learner: Learner,
    ) -> Self {
        let (actions, lateness) = (Actions::default(), Lateness::new());
        Self { dispatcher, runtime, effects, recorder, actions, learner, lateness, over: false }
    }

    /// The executors join.
    pub(crate) fn begin(&mut self) {
        self.handle(Event::Late { by: LATE_MIN });
        for executor in (0..self.effects.executors() as u32).map(ExecutorId) {
            self.handle(Event::Join { executor, class: CLASS });
        }
    }

    /// When it must be looked after next, if nothing comes before.
    pub(crate) fn next(&self) -> Time {
        if self.is_done() { Time::START } else { self.dispatcher.next_wakeup() }
    }

    /// Does what is due.
    pub(crate) fn keep_up(&mut self) {
        if self.dispatcher.next_wakeup() <= self.runtime.now() {
            self.handle(Event::Wakeup);
        }
    }

    /// Whether it was stopped and has finished all there was.
    pub(crate) fn is_done(&self) -> bool {
        self.effects.is_done()
    }

    /// Stops the executors, and ends the recording.
    pub(crate) fn stop_executors(&mut self) {
        self.effects.stop_executors();
        self.recorder = None;
        self.over = true;
    }

    /// Learns how punctually the timer is woken.
    pub(crate) fn note_wakeup(&mut self, due: Time) {
        if let Some(by) = self.lateness.note(self.runtime.now() - due) {
            self.handle(Event::Late { by });
        }
    }

    /// Takes a message. A message that comes too late is dropped, and so is the reply in it.
    pub(crate) fn receive(&mut self, message: Message) {
        if self.over {
            return;
        }
        match message {
            Message::Arrive { model, ticket } => {
                let (request, deadline, kind) = (ticket.id, ticket.deadline, ticket.kind);
                self.effects.keep(ticket);
                self.handle(Event::Arrive { model, request, deadline, kind });
            }
            Message::Ran(ran) => {
                self.learner.note(ran.overrun, ran.size);
                self.handle(Event::Done { executor: ran.executor });
                if let Some(spec) = self.effects.ran(self.runtime.now(), &ran) {
                    self.handle(Event::Profile { model: ran.model, spec });
                }
            }
            Message::Cancel { model, request, deadline } => {
                if self.effects.has(request) {
                    self.handle(Event::Cancel { model, request, deadline });
                }
            }
            Message::Add { model, name, spec, sessions, profiles, reply } => {
                self.effects.install(model, spec.clone(), sessions, profiles);
                self.handle_named(Event::AddModel { model, spec, gap: None }, &name);
                // The thread that adds the model waits for it.
                let _ = reply.send(());
            }
            Message::Join { executor, class, sender, sessions } => {
                self.effects.admit(executor, class, sender, sessions);
                self.handle(Event::Join { executor, class });
            }
            Message::Leave { executor } => {
                // It may have broken meanwhile.
                if self.effects.has_executor(executor) {
                    self.handle(Event::Leave { executor });
                    self.effects.release(executor);
                }
            }
            Message::Lost(lost) => self.lose(lost),
            Message::Remove { model } => {
                self.handle(Event::RemoveModel { model });
                self.effects.uninstall(model);
            }
            Message::Respec { model, spec } => {
                if let Some(spec) = self.effects.respec(model, &spec) {
                    self.handle(Event::Profile { model, spec });
                }
            }
            Message::Respread { model, spread } => {
                if let Some(spec) = self.effects.respread(model, spread) {
                    self.handle(Event::Profile { model, spec });
                }
            }
            Message::Stop => self.effects.stop(),
        }
    }

    /// An executor broke: dispatch queues again what it had.
    fn lose(&mut self, lost: Lost) {
        let executor = lost.executor;
        let unwanted = self.effects.take_back(lost);
        self.handle(Event::Fail { executor });
        for (model, request, deadline) in unwanted {
            // Dispatch may have dropped it, or sent it along with others: then it leaves with them.
            if self.effects.has(request) {
                self.handle(Event::Cancel { model, request, deadline });
            }
        }
    }

    fn handle(&mut self, event: Event) {
        self.handle_named(event, "");
    }

    /// The one place where the dispatcher is told something. `name` is that of a model that is
    /// added.
    fn handle_named(&mut self, event: Event, name: &str) {
        let now = self.runtime.now();
        if let Some(recorder) = &mut self.recorder {
            recorder.event(now, &event, name);
        }
        self.dispatcher.handle(now, event, &mut self.actions);
        if let Some(recorder) = &mut self.recorder {
            recorder.actions(&self.actions);
        }
        self.effects.perform(&mut self.actions);
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("effects", &self.effects).finish_non_exhaustive()
    }
}
