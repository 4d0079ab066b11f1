//! The thread that ranks what the models' threads have ready, and promises executors to it.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use fermata_core::{ExecutorId, Span, Time};
use fermata_engine::thread::be_punctual;
use fermata_scheduler::{Bell, Executors, RankSide, Runtime};

use crate::margin::{LATE_MIN, Learner};

/// What the rank thread is told, apart from what comes through the links.
pub(super) enum Report {
    /// An executor finished a batch; `overrun` is how much later than planned.
    Done { executor: ExecutorId, overrun: Span, size: usize },
    /// A thread of models is woken this much too late.
    Late { index: usize, by: Span },
    /// A thread of models has ended.
    Ended,
}

pub(super) struct RankThread {
    side: RankSide,
    reports: Reports,
    bell: Arc<Bell>,
    runtime: Arc<dyn Runtime>,
}

impl RankThread {
    /// Ranks for this number of threads of models.
    pub(super) fn new(
        side: RankSide,
        inbox: Receiver<Report>,
        bell: Arc<Bell>,
        threads: usize,
        learner: Learner,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        let late = vec![LATE_MIN; threads];
        let reports = Reports { inbox, learner, late, slack: None, there: threads };
        Self { side, reports, bell, runtime }
    }

    /// Runs until the threads of models have ended: as long as there is one, it may wait for this
    /// one.
    pub(super) fn drive(mut self) {
        be_punctual();
        loop {
            let mut busy = self.side.turn(self.runtime.now(), &mut self.reports);
            if self.reports.there == 0 {
                return;
            }
            if let Some(slack) = self.reports.slack.take() {
                busy = true;
                self.side.hub().set_slack(slack);
            }
            if !busy {
                let due = self.side.next_wakeup();
                let has_work = || !self.reports.inbox.is_empty() || self.side.has_work();
                self.runtime.sleep(&self.bell, due, &has_work);
            }
        }
    }
}

/// What was reported.
struct Reports {
    inbox: Receiver<Report>,
    learner: Learner,
    /// How late the threads of models are woken, each.
    late: Vec<Span>,
    /// How late the latest of them is, if that is new.
    slack: Option<Span>,
    /// How many of them have not ended.
    there: usize,
}

impl Executors for Reports {
    fn finished(&mut self, now: Time, into: &mut Vec<(ExecutorId, Time)>) {
        while let Ok(report) = self.inbox.try_recv() {
            match report {
                Report::Done { executor, overrun, size } => {
                    self.learner.note(overrun, size);
                    into.push((executor, now));
                }
                Report::Late { index, by } => {
                    self.late[index] = by;
                    self.slack = self.late.iter().copied().max();
                }
                Report::Ended => self.there -= 1,
            }
        }
    }

    /// They tell by themselves when they are done.
    fn started(&mut self, _executor: ExecutorId, _start: Time, _latency: Span) {}
}
