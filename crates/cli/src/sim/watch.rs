//! Watches a run for what its statistics do not keep: who used what, and the picture of its end.

use std::collections::VecDeque;

use fermata_core::{ExecutorId, ModelId, Request, Span, Time};
use fermata_dispatch::{Action, DropReason, Event, IdSet};
use fermata_sim::{Observer, Run, Scenario};

use super::progress::Progress;

/// The observer of one run.
pub(super) struct Watch<'a> {
    /// By model.
    pub(super) usage: Vec<Usage>,
    pub(super) last_arrival: Time,
    /// The end of the run, if it is to be drawn.
    pub(super) tape: Option<Tape>,
    progress: &'a Progress,
    arrivals_unreported: u64,
}

/// What one model used of the pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    pub(super) busy: Span,
    pub(super) executors: IdSet,
}

/// Rarely enough to cost nothing.
const REPORT_EVERY: u64 = 1 << 14;

impl<'a> Watch<'a> {
    pub(super) fn new(scenario: &Scenario, taped: bool, progress: &'a Progress) -> Self {
        Self {
            usage: vec![Usage::default(); scenario.loads.len()],
            last_arrival: Time::START,
            tape: taped.then(|| Tape::new(scenario)),
            progress,
            arrivals_unreported: 0,
        }
    }
}

impl Observer for Watch<'_> {
    fn event(&mut self, now: Time, event: &Event) {
        match *event {
            Event::Arrive { .. } => {
                self.last_arrival = now;
                self.arrivals_unreported += 1;
                if self.arrivals_unreported == REPORT_EVERY {
                    self.progress.add(REPORT_EVERY);
                    self.arrivals_unreported = 0;
                }
                if let Some(tape) = &mut self.tape {
                    tape.wind(now);
                }
            }
            Event::Fail { executor } => {
                if let Some(tape) = &mut self.tape {
                    tape.cut(now, executor);
                }
            }
            _ => {}
        }
    }

    fn action(&mut self, now: Time, action: &Action, _batch: &[Request]) {
        let Some(tape) = &mut self.tape else { return };
        match *action {
            Action::Drop { reason: DropReason::Cancelled, .. } => {}
            Action::Drop { .. } => tape.misses.push_back(now),
            Action::Limit { .. } => {}
            Action::Preempt { executor } => tape.cut(now, executor),
            Action::Run { executor, model, start, size, .. } => {
                tape.running_on(executor).push_back(TapedBatch {
                    executor,
                    model,
                    start,
                    finish: Time::NEVER,
                    size: size as usize,
                    cut: false,
                });
            }
        }
    }

    fn finished(&mut self, run: &Run) {
        let usage = &mut self.usage[run.model.index()];
        usage.busy += run.finish - run.start;
        usage.executors.insert(run.executor.index());
        if let Some(tape) = &mut self.tape {
            tape.finish(run);
        }
    }
}

/// The batches and misses of the last stretch of a run.
pub(super) struct Tape {
    /// How long the stretch is.
    pub(super) length: Span,
    /// Its end: the last arrival.
    pub(super) end: Time,
    /// In the order in which they ended.
    pub(super) batches: VecDeque<TapedBatch>,
    /// When requests were dropped, or answered late.
    pub(super) misses: VecDeque<Time>,
    /// From the end of a batch to its clients.
    resp: Span,
    /// What was given to each executor, by its number, and has not ended.
    running: Vec<VecDeque<TapedBatch>>,
}

/// A batch on the tape.
#[derive(Clone, Debug)]
pub(super) struct TapedBatch {
    pub(super) executor: ExecutorId,
    pub(super) model: ModelId,
    pub(super) start: Time,
    pub(super) finish: Time,
    pub(super) size: usize,
    /// It was preempted, or its executor broke.
    pub(super) cut: bool,
}

/// The stretch that is drawn, in SLOs of the median model: long enough to see a pattern repeat,
/// short enough to read the batches.
const TAPE_SLOS: u64 = 10;

impl Tape {
    fn new(scenario: &Scenario) -> Self {
        let mut slos: Vec<Span> = scenario.loads.iter().map(|load| load.slo()).collect();
        slos.sort();
        let length = slos[slos.len() / 2] * TAPE_SLOS;
        let (batches, misses) = (VecDeque::new(), VecDeque::new());
        let resp = scenario.network.resp;
        Self { length, end: Time::START, batches, misses, resp, running: Vec::new() }
    }

    /// The moment from which on it is drawn.
    pub(super) fn start(&self) -> Time {
        self.end - self.length
    }

    /// Moves the end, and forgets what lies before the stretch.
    fn wind(&mut self, now: Time) {
        self.end = now;
        let start = self.start();
        while self.batches.front().is_some_and(|batch| batch.finish < start) {
            self.batches.pop_front();
        }
        while self.misses.front().is_some_and(|&miss| miss < start) {
            self.misses.pop_front();
        }
    }

    fn running_on(&mut self, executor: ExecutorId) -> &mut VecDeque<TapedBatch> {
        if executor.index() >= self.running.len() {
            self.running.resize(executor.index() + 1, VecDeque::new());
        }
        &mut self.running[executor.index()]
    }

    fn finish(&mut self, run: &Run) {
        let answered = run.finish + self.resp;
        for _ in run.requests.iter().filter(|request| answered > request.deadline) {
            self.misses.push_back(run.finish);
        }
        if let Some(batch) = self.running_on(run.executor).pop_front() {
            self.batches.push_back(TapedBatch { start: run.start, finish: run.finish, ..batch });
        }
    }

    fn cut(&mut self, now: Time, executor: ExecutorId) {
        let running = self.running_on(executor);
        let batch = running.pop_front();
        running.clear();
        if let Some(batch) = batch.filter(|batch| batch.start < now) {
            self.batches.push_back(TapedBatch { finish: now, cut: true, ..batch });
        }
    }
}
