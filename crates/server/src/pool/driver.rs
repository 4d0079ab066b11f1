//! The dispatcher against the clock: it is told what happened, and what it asks is done.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crossbeam_channel::Sender;
use fermata_core::{ClassId, ExecutorId, ModelId, RequestId, Span, Time};
use fermata_dispatch::{Action, Actions, Dispatch, Event, ModelSpec};
use fermata_engine::Session;

use super::clock::Clock;
use super::executor::{Batch, Ran, Work};
use super::job::{Job, Refused};
use super::margin::{Margin, Overruns};
use crate::profiler::Corrector;
use crate::recording::Recorder;

/// What the driver is told.
pub(super) enum Message {
    /// Serve a model.
    Add {
        name: String,
        spec: Arc<ModelSpec>,
        sessions: Vec<Box<dyn Session>>,
        corrector: Option<Corrector>,
        reply: Sender<ModelId>,
    },
    /// A request came.
    Arrive { model: ModelId, job: Job },
    /// Nobody waits for a request any more.
    Cancel { model: ModelId, request: RequestId, deadline: Time },
    /// An executor finished a batch.
    Ran(Ran),
    /// Serve a model no longer. No request of it waits or runs.
    Remove { model: ModelId },
    /// Finish what is there, then end.
    Stop,
}

/// How late the thread may be woken, at least and at most; between them decides how late it has been woken of late. A
/// thread is never woken in time to the microsecond, and a batch that is held until its last moment would pass it.
const LATE_MIN: Span = Span(200_000);
const LATE_MAX: Span = Span(5_000_000);

/// Every class of executor that a pool has: so far all are equal.
const CLASS: ClassId = ClassId(0);

pub(super) struct Driver {
    dispatcher: Box<dyn Dispatch>,
    clock: Clock,
    /// To the executors, by id.
    hands: Vec<Sender<Work>>,
    recorder: Option<Recorder>,
    actions: Actions,
    jobs: HashMap<RequestId, Job>,
    models: Vec<Option<Model>>,
    running: usize,
    stopping: bool,
    /// When each executor should be done with its batch.
    planned: Vec<Time>,
    overruns: Overruns,
    margin: Arc<Margin>,
    wakeups: Overruns,
}

struct Model {
    spec: Arc<ModelSpec>,
    corrector: Option<Corrector>,
}

impl Driver {
    pub(super) fn new(
        dispatcher: Box<dyn Dispatch>,
        clock: Clock,
        hands: Vec<Sender<Work>>,
        recorder: Option<Recorder>,
        margin: Arc<Margin>,
    ) -> Self {
        Self {
            dispatcher,
            clock,
            planned: vec![Time::START; hands.len()],
            overruns: Overruns::new(),
            margin,
            wakeups: Overruns::new(),
            hands,
            recorder,
            actions: Actions::default(),
            jobs: HashMap::new(),
            models: Vec::new(),
            running: 0,
            stopping: false,
        }
    }

    /// The executors join.
    pub(super) fn begin(&mut self) {
        self.handle(Event::Late { by: LATE_MIN });
        for executor in (0..self.hands.len() as u32).map(ExecutorId) {
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
        self.stopping && self.jobs.is_empty() && self.running == 0
    }

    /// Sends the executors home, and ends the recording.
    pub(super) fn dismiss(&mut self) {
        self.hands.clear();
        self.recorder = None;
    }

    /// Learns how punctually the timer is woken.
    pub(super) fn note_wakeup(&mut self, due: Time) {
        if let Some(late) = self.wakeups.note(self.clock.now() - due) {
            self.handle(Event::Late { by: (LATE_MIN + late).min(LATE_MAX) });
        }
    }

    /// Takes a message.
    pub(super) fn receive(&mut self, message: Message) {
        match message {
            Message::Arrive { model, job } => {
                let (request, deadline) = (job.id, job.deadline);
                self.jobs.insert(request, job);
                self.handle(Event::Arrive { model, request, deadline });
            }
            Message::Ran(ran) => {
                self.running -= 1;
                let overrun = self.clock.now() - self.planned[ran.executor.index()];
                if let Some(overrun) = self.overruns.note(overrun) {
                    self.margin.set(overrun);
                }
                self.handle(Event::Done { executor: ran.executor });
                self.correct(&ran);
            }
            Message::Cancel { model, request, deadline } => {
                if self.jobs.contains_key(&request) {
                    self.handle(Event::Cancel { model, request, deadline });
                }
            }
            Message::Add { name, spec, sessions, corrector, reply } => {
                let free = self.models.iter().position(Option::is_none);
                let at = free.unwrap_or_else(|| {
                    self.models.push(None);
                    self.models.len() - 1
                });
                let model = ModelId(at as u32);
                for (hand, session) in self.hands.iter().zip(sessions) {
                    send(hand, Work::Install { model, session });
                }
                self.models[at] = Some(Model { spec: spec.clone(), corrector });
                self.handle_named(Event::AddModel { model, spec, gap: None }, &name);
                // Whoever asked for it may have given up; then it is removed again.
                let _ = reply.send(model);
            }
            Message::Remove { model } => {
                self.handle(Event::RemoveModel { model });
                for hand in &self.hands {
                    send(hand, Work::Uninstall { model });
                }
                self.models[model.index()] = None;
            }
            Message::Stop => self.stopping = true,
        }
    }

    /// Learns from a batch how fast the model is now.
    fn correct(&mut self, ran: &Ran) {
        let now = self.clock.now();
        let Some(model) = &mut self.models[ran.model.index()] else { return };
        let Some(corrector) = &mut model.corrector else { return };
        if let Some(profile) = corrector.observe(now, ran.size, ran.took) {
            let spec = Arc::new(ModelSpec::uniform(model.spec.slo, profile));
            model.spec = spec.clone();
            self.handle(Event::Profile { model: ran.model, spec });
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
        let mut actions = std::mem::take(&mut self.actions);
        for &action in &actions.list {
            self.perform(action, &actions);
        }
        actions.clear();
        self.actions = actions;
    }

    fn perform(&mut self, action: Action, actions: &Actions) {
        match action {
            Action::Drop { request, reason, .. } => {
                let job = self.take(request.id);
                // A client that went away needs no answer.
                let _ = job.reply.send(Err(Refused::Dropped(reason)));
            }
            Action::Run { executor, model, start, latency, first, size } => {
                self.planned[executor.index()] = start + latency;
                let jobs: Vec<Job> = actions
                    .batch(first, size)
                    .iter()
                    .map(|request| self.take(request.id))
                    .collect();
                self.running += 1;
                send(&self.hands[executor.index()], Work::Run(Batch { model, jobs }));
            }
            Action::Preempt { .. } => unreachable!("policies that preempt are not served with"),
        }
    }

    fn take(&mut self, request: RequestId) -> Job {
        self.jobs.remove(&request).expect("a request leaves once")
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("waiting", &self.jobs.len()).finish_non_exhaustive()
    }
}

fn send(hand: &Sender<Work>, work: Work) {
    // Executors end after the driver, but for a panic, which ends the process.
    let _ = hand.send(work);
}
