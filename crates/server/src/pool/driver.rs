//! The dispatcher in one piece, against the clock: it is told what happened, and what it asks is done.

use fermata_core::{ExecutorId, Time};
use fermata_dispatch::{Actions, Dispatch, Event};
use fermata_recording::Recorder;

use super::CLASS;
use super::clock::Clock;
use super::executor::Lost;
use super::inbox::Message;
use super::margin::{LATE_MIN, Lateness, Learner};
use super::tray::Tray;

pub(super) struct Driver {
    dispatcher: Box<dyn Dispatch>,
    clock: Clock,
    tray: Tray,
    recorder: Option<Recorder>,
    actions: Actions,
    learner: Learner,
    lateness: Lateness,
    /// The executors were sent home.
    over: bool,
}

impl Driver {
    pub(super) fn new(
        dispatcher: Box<dyn Dispatch>,
        clock: Clock,
        tray: Tray,
        recorder: Option<Recorder>,
        learner: Learner,
    ) -> Self {
        let (actions, lateness) = (Actions::default(), Lateness::new());
        Self { dispatcher, clock, tray, recorder, actions, learner, lateness, over: false }
    }

    /// The executors join.
    pub(super) fn begin(&mut self) {
        self.handle(Event::Late { by: LATE_MIN });
        for executor in (0..self.tray.executors() as u32).map(ExecutorId) {
            self.handle(Event::Join { executor, class: CLASS });
        }
    }

    /// When it must be looked after next, if nothing comes before.
    pub(super) fn next(&self) -> Time {
        if self.is_done() { Time::START } else { self.dispatcher.next_wakeup() }
    }

    /// Does what is due.
    pub(super) fn keep_up(&mut self) {
        if self.dispatcher.next_wakeup() <= self.clock.now() {
            self.handle(Event::Wakeup);
        }
    }

    /// Whether it was stopped and has finished all there was.
    pub(super) fn is_done(&self) -> bool {
        self.tray.is_done()
    }

    /// Sends the executors home, and ends the recording.
    pub(super) fn dismiss(&mut self) {
        self.tray.dismiss();
        self.recorder = None;
        self.over = true;
    }

    /// Learns how punctually the timer is woken.
    pub(super) fn note_wakeup(&mut self, due: Time) {
        if let Some(by) = self.lateness.note(self.clock.now() - due) {
            self.handle(Event::Late { by });
        }
    }

    /// Takes a message. Who comes too late sees it by what becomes of the reply: it is dropped.
    pub(super) fn receive(&mut self, message: Message) {
        if self.over {
            return;
        }
        match message {
            Message::Arrive { model, job } => {
                let (request, deadline, kind) = (job.id, job.deadline, job.kind);
                self.tray.keep(job);
                self.handle(Event::Arrive { model, request, deadline, kind });
            }
            Message::Ran(ran) => {
                self.learner.note(ran.overrun, ran.size);
                self.handle(Event::Done { executor: ran.executor });
                if let Some(spec) = self.tray.ran(self.clock.now(), &ran) {
                    self.handle(Event::Profile { model: ran.model, spec });
                }
            }
            Message::Cancel { model, request, deadline } => {
                if self.tray.has(request) {
                    self.handle(Event::Cancel { model, request, deadline });
                }
            }
            Message::Add { model, name, spec, sessions, profiles, reply } => {
                self.tray.install(model, spec.clone(), sessions, profiles);
                self.handle_named(Event::AddModel { model, spec, gap: None }, &name);
                // Whoever asked for it waits.
                let _ = reply.send(());
            }
            Message::Join { executor, class, hand, sessions } => {
                self.tray.admit(executor, class, hand, sessions);
                self.handle(Event::Join { executor, class });
            }
            Message::Leave { executor } => {
                // It may have broken meanwhile.
                if self.tray.employs(executor) {
                    self.handle(Event::Leave { executor });
                    self.tray.release(executor);
                }
            }
            Message::Lost(lost) => self.lose(lost),
            Message::Remove { model } => {
                self.handle(Event::RemoveModel { model });
                self.tray.uninstall(model);
            }
            Message::Respec { model, spec } => {
                if let Some(spec) = self.tray.respec(model, &spec) {
                    self.handle(Event::Profile { model, spec });
                }
            }
            Message::Respread { model, spread } => {
                if let Some(spec) = self.tray.respread(model, spread) {
                    self.handle(Event::Profile { model, spec });
                }
            }
            Message::Stop => self.tray.stop(),
        }
    }

    /// An executor broke: dispatch queues again what it had.
    fn lose(&mut self, lost: Lost) {
        let executor = lost.executor;
        let unwanted = self.tray.take_back(lost);
        self.handle(Event::Fail { executor });
        for (model, request, deadline) in unwanted {
            // Dispatch may have dropped it, or sent it along with others: then it leaves with them.
            if self.tray.has(request) {
                self.handle(Event::Cancel { model, request, deadline });
            }
        }
    }

    fn handle(&mut self, event: Event) {
        self.handle_named(event, "");
    }

    /// The one place where the dispatcher is told something. `name` is that of a model that is added.
    fn handle_named(&mut self, event: Event, name: &str) {
        let now = self.clock.now();
        if let Some(recorder) = &mut self.recorder {
            recorder.event(now, &event, name);
        }
        self.dispatcher.handle(now, event, &mut self.actions);
        if let Some(recorder) = &mut self.recorder {
            recorder.actions(&self.actions);
        }
        self.tray.perform(&mut self.actions);
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("tray", &self.tray).finish_non_exhaustive()
    }
}
