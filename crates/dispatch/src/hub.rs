//! The rank machine and the market of a pool whose model machines are elsewhere, in shards.

use fermata_core::{ClassId, ExecutorId, ModelId, Span, Time};

use crate::event::Network;
use crate::price::{Market, Signal};
use crate::rank::RankMachine;
use crate::shard::{News, PostedCandidate, Promise};

/// The one place of a pool that all its shards talk to. It works at the rate of batches.
#[derive(Clone, Debug, Default)]
pub struct Hub {
    rank: RankMachine,
    market: Market,
    /// What it knows of each model.
    models: Vec<Known>,
    executors: Vec<Incarnation>,
}

/// What the rank machine need not know of an executor: its promises are kept at once.
#[derive(Clone, Copy, Debug, Default)]
struct Incarnation {
    /// How often it has come.
    number: u32,
    /// It was promised, and that was not answered yet.
    promised: bool,
    /// It finished this many batches since it was promised. Until the answer it is the promise's:
    /// idle, it would be promised once more.
    done: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// How many executors were granted.
    granted: u32,
    /// When the candidate that was posted last was ready.
    ready: Time,
}

impl Hub {
    /// A pool without executors and models.
    pub fn new(network: Network) -> Self {
        Self { rank: RankMachine::new(network), ..Self::default() }
    }

    /// What every model may know.
    #[inline]
    pub fn signal(&self) -> &Signal {
        self.market.signal()
    }

    /// An idle executor is there from now on.
    pub fn join(&mut self, now: Time, executor: ExecutorId, class: ClassId) {
        if executor.index() >= self.executors.len() {
            self.executors.resize(executor.index() + 1, Incarnation::default());
        }
        let incarnation = &mut self.executors[executor.index()];
        *incarnation = Incarnation { number: incarnation.number + 1, promised: false, done: 0 };
        self.rank.join(now, executor, class);
        self.market.set_executors(self.rank.executors(), self.rank.main_class());
    }

    /// An executor gets no more batches. What it runs it finishes.
    pub fn leave(&mut self, executor: ExecutorId) {
        self.rank.leave(executor);
        self.market.set_executors(self.rank.executors(), self.rank.main_class());
    }

    /// An executor is gone. Whoever gave it its batches brings them back to their shards.
    pub fn fail(&mut self, executor: ExecutorId) {
        self.executors[executor.index()].done = 0;
        self.rank.fail(executor);
        self.market.set_executors(self.rank.executors(), self.rank.main_class());
    }

    /// An executor finished a batch. The hub has heard that it was started.
    #[inline]
    pub fn done(&mut self, now: Time, executor: ExecutorId) {
        let incarnation = &mut self.executors[executor.index()];
        if incarnation.promised {
            incarnation.done += 1;
        } else {
            self.rank.done(now, executor);
        }
    }

    /// Wakeups come late by as much as this.
    pub fn set_slack(&mut self, slack: Span) {
        self.market.set_slack(slack);
    }

    /// What a model posted for a class.
    #[inline]
    pub fn post(&mut self, now: Time, model: ModelId, class: ClassId, post: &PostedCandidate) {
        if model.index() >= self.models.len() {
            self.models.resize(model.index() + 1, Known::default());
            self.rank.grow(model.index() + 1);
        }
        let known = &mut self.models[model.index()];
        if post.answered != known.granted {
            // A promise is under way: what the model has when it has answered, it will post.
            return;
        }
        known.ready = post.candidate.ready;
        let candidate = Some(&post.candidate).filter(|candidate| candidate.size > 0);
        self.rank.inform_candidate(now, model, class, candidate);
    }

    /// News of a shard.
    #[inline]
    pub fn hear(&mut self, now: Time, news: News) {
        match news {
            News::Started { executor, incarnation, start, latency } => {
                self.market.note_batch(latency);
                if self.is_of(executor, incarnation) {
                    self.rank.inform_executor(executor, start, latency);
                    self.answered(now, executor);
                }
            }
            News::Returned { executor, incarnation } => {
                if self.is_of(executor, incarnation) {
                    self.rank.return_executor(executor);
                    self.answered(now, executor);
                }
            }
            News::Reported { before, after } => self.market.report(before, after),
        }
    }

    #[inline]
    fn is_of(&self, executor: ExecutorId, incarnation: u32) -> bool {
        self.executors[executor.index()].number == incarnation
    }

    /// A promise was answered.
    #[inline]
    fn answered(&mut self, now: Time, executor: ExecutorId) {
        let incarnation = &mut self.executors[executor.index()];
        incarnation.promised = false;
        for _ in 0..std::mem::take(&mut incarnation.done) {
            self.rank.done(now, executor);
        }
    }

    /// The next executor that is to be promised at this moment, if any.
    #[inline]
    pub fn next_promise(&mut self, now: Time) -> Option<Promise> {
        if self.rank.is_settled(now) {
            return None;
        }
        while self.rank.next_ready(now).is_some() {}
        let grant = self.rank.poll(now)?;
        let known = &mut self.models[grant.model.index()];
        known.granted += 1;
        self.rank.forget(grant.model);
        let incarnation = &mut self.executors[grant.executor.index()];
        incarnation.promised = true;
        Some(Promise { grant, incarnation: incarnation.number, ready: known.ready })
    }

    /// When to look for promises again, should nothing else happen first.
    #[inline]
    pub fn next_wakeup(&self) -> Time {
        self.rank.next_wakeup()
    }
}
