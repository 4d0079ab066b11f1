//! The rank machine: free executors on one side, waiting candidates on the other, and their
//! matching.
//!
//! It knows a candidate's size and window, never its requests. One per pool; it works at the rate
//! of batches, not of requests. All moments are those of the decision: an executor that is free at
//! `f` counts as available `lead(b)` before, since a batch of `b` decided then starts when it is
//! free.

mod choose;

use fermata_core::{ClassId, ExecutorId, ModelId, Span, Table, Time};

use crate::blocking::{Ask, Choice, Need, Scene};
use crate::candidate::Candidate;
use crate::event::{BATCHES_MAX, Network};
use crate::id_set::IdSet;
use crate::min_tree::MinTree;

/// A match: the executor is the model's from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Who may send a batch.
    pub model: ModelId,
    /// Where to.
    pub executor: ExecutorId,
    /// Its class.
    pub class: ClassId,
    /// When it is free: in the past if it is idle.
    pub free_at: Time,
    /// The batch may take this long: a longer one would block others.
    pub longest: Span,
    /// The model for which the batch is shorter, or waited, if there is one.
    pub limited_by: Option<ModelId>,
}

/// The executors of a pool and the candidates that wait for them.
#[derive(Clone, Debug, Default)]
pub struct RankMachine {
    network: Network,
    classes: Vec<ClassRank>,
    executors: Vec<Executor>,
    /// How many executors there are that take batches.
    active: usize,
    /// How many models there is room for.
    models: usize,
    /// By model: to bring the input of one of its requests to an executor, beyond the network's;
    /// zero for those that are missing.
    data: Vec<Span>,
    /// Whether batches may not block others.
    unblocks: bool,
    /// Whether that was so at any time: then it is known when executors are free.
    keeps_ends: bool,
    /// By model; where batches may not block others.
    needs: Vec<Need>,
    /// How many models are not quiet.
    asked: usize,
    /// By model: how long a request can bear to wait that finds nothing waiting, as a moment; never
    /// for a model that is quiet.
    bears: MinTree,
    /// Where every model can bear to wait as long as this, batches block nobody.
    borne: Span,
    /// By model: for which other one its candidate was kept waiting.
    limited_by: Vec<Option<usize>>,
    /// For the next choice.
    scene: Scene,
}

/// One class: its executors, and each model's candidate for it.
#[derive(Clone, Debug, Default)]
struct ClassRank {
    /// How many executors take batches.
    active: usize,
    idle: IdSet,
    /// When busy executors with one batch will be free. Kept only where the network has delays:
    /// without, `Done` comes at that very moment.
    free: MinTree,
    /// Candidates that are not ready yet, by `ready`.
    held: MinTree,
    /// Candidates that are ready, by urgency.
    waiting: MinTree,
    /// What must be known of a candidate besides its moment in `held` or `waiting`.
    asks: Vec<Ask>,
    /// By model: how long batches take.
    tables: Vec<Option<Table>>,
    /// When busy executors are free; where that is kept.
    ends: MinTree,
    /// An executor is kept free until then, though a candidate waits.
    kept_until: Time,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Executor {
    class: ClassId,
    /// Batches given and not done: several where some were granted ahead of time.
    batches: u8,
    /// When the last of them is expected to be done.
    free_at: Time,
    /// How long each of them takes.
    latencies: [Span; BATCHES_MAX],
    /// It takes no more batches.
    leaving: bool,
    present: bool,
}

impl RankMachine {
    /// A pool without executors and candidates.
    pub fn new(network: Network) -> Self {
        Self { network, ..Self::default() }
    }

    /// Whether no batch may block others. Then it has to be told how long batches take, and what
    /// models need.
    pub fn set_unblocking(&mut self, unblocks: bool) {
        self.unblocks = unblocks;
        self.keeps_ends |= unblocks;
    }

    /// When each batch that was given is expected to end, and where.
    pub fn batch_ends(&self) -> impl Iterator<Item = (Time, ExecutorId)> {
        self.executors.iter().enumerate().flat_map(|(at, executor)| {
            let mut end = executor.free_at;
            let latencies = executor.latencies[..usize::from(executor.batches)].iter().rev();
            latencies.map(move |&latency| {
                let this = end;
                end = end - latency;
                (this, ExecutorId(at as u32))
            })
        })
    }

    /// How many executors are idle.
    #[inline]
    pub fn idle(&self) -> usize {
        self.classes.iter().map(|class| class.idle.len()).sum()
    }

    /// How many executors take batches.
    #[inline]
    pub fn executors(&self) -> usize {
        self.active
    }

    /// The class with the most executors; the first one where several have.
    pub fn main_class(&self) -> ClassId {
        let most = (0..self.classes.len()).rev().max_by_key(|&class| self.classes[class].active);
        ClassId(most.unwrap_or(0) as u16)
    }

    /// An idle executor is there from now on.
    pub fn join(&mut self, now: Time, executor: ExecutorId, class: ClassId) {
        let at = executor.index();
        if at >= self.executors.len() {
            self.executors.resize(at + 1, Executor::default());
        }
        assert!(!self.executors[at].present, "executor {executor} joined twice");
        self.executors[at] = Executor { class, free_at: now, present: true, ..Executor::default() };
        self.active += 1;
        let executors = self.executors.len();
        let ranks = self.class_mut(class);
        ranks.active += 1;
        ranks.free.grow(executors);
        ranks.ends.grow(executors);
        ranks.idle.insert(at);
    }

    /// The executor takes no more batches.
    pub fn leave(&mut self, executor: ExecutorId) {
        let state = &mut self.executors[executor.index()];
        assert!(state.present && !state.leaving, "executor {executor} left twice");
        state.leaving = true;
        state.present = state.batches > 0;
        self.active -= 1;
        let class = &mut self.classes[state.class.index()];
        class.active -= 1;
        class.idle.remove(executor.index());
        class.free.clear(executor.index());
        class.ends.clear(executor.index());
    }

    /// The executor is gone, with what it was running.
    pub fn fail(&mut self, executor: ExecutorId) {
        if !self.executors[executor.index()].leaving {
            self.leave(executor);
        }
        let state = &mut self.executors[executor.index()];
        state.present = false;
        state.batches = 0;
    }

    /// The executor finished a batch.
    pub fn done(&mut self, now: Time, executor: ExecutorId) {
        let state = &mut self.executors[executor.index()];
        assert!(state.batches > 0, "executor {executor} was done without a batch");
        state.batches -= 1;
        if state.leaving {
            state.present = state.batches > 0;
        } else if state.batches == 0 {
            state.free_at = now;
            let class = &mut self.classes[state.class.index()];
            class.free.clear(executor.index());
            if self.keeps_ends {
                class.ends.clear(executor.index());
            }
            class.idle.insert(executor.index());
        } else {
            // Where the first batch took longer than planned, the others start only now.
            state.latencies.rotate_left(1);
            let left = state.latencies[..usize::from(state.batches)].iter();
            let left = left.fold(Span::ZERO, |sum, &latency| sum + latency);
            state.free_at = state.free_at.max(now + left);
            let class = &mut self.classes[state.class.index()];
            class.free.set(executor.index(), state.free_at);
        }
    }

    /// Makes room for models below `models`.
    pub fn grow(&mut self, models: usize) {
        self.models = self.models.max(models);
        self.needs.resize(self.models, Need::default());
        self.limited_by.resize(self.models, None);
        self.bears.grow(self.models);
        for class in &mut self.classes {
            class.grow(self.models);
        }
    }

    /// To bring the input of a request of this model to an executor takes so much beyond what the
    /// network takes for any.
    pub fn set_data(&mut self, model: ModelId, data: Span) {
        if model.index() >= self.data.len() {
            if data == Span::ZERO {
                return;
            }
            self.data.resize(model.index() + 1, Span::ZERO);
        }
        self.data[model.index()] = data;
    }

    /// From the decision to the start of a model's candidate on an idle executor.
    #[inline]
    fn lead(&self, model: usize, size: u32) -> Span {
        let data = self.data.get(model).copied().unwrap_or(Span::ZERO);
        self.network.lead(size as usize) + data * u64::from(size)
    }

    /// A model's candidate for a class changed. There must be room for the model.
    #[inline]
    pub fn inform_candidate(
        &mut self,
        now: Time,
        model: ModelId,
        class: ClassId,
        candidate: Option<&Candidate>,
    ) {
        let at = model.index();
        // A class without executors so far is made room for when the first one joins.
        if class.index() >= self.classes.len() {
            self.class_mut(class);
        }
        let ranks = &mut self.classes[class.index()];
        let (mut held, mut waiting) = (Time::NEVER, Time::NEVER);
        if let Some(candidate) = candidate {
            ranks.asks[at] = Ask::of(candidate);
            if candidate.ready > now {
                held = candidate.ready;
            } else {
                waiting = candidate.urgency;
            }
        }
        if ranks.held.get(at) != held {
            ranks.held.set(at, held);
        }
        if ranks.waiting.get(at) != waiting {
            ranks.waiting.set(at, waiting);
        }
    }

    /// A model has no candidates for any class, until it informs of new ones.
    #[inline]
    pub fn forget(&mut self, model: ModelId) {
        for class in &mut self.classes {
            class.held.clear(model.index());
            class.waiting.clear(model.index());
        }
    }

    /// A candidate that was held before, and still is, changed.
    #[inline]
    pub fn inform_held(&mut self, model: ModelId, class: ClassId, candidate: &Candidate) {
        let ranks = &mut self.classes[class.index()];
        ranks.asks[model.index()] = Ask::of(candidate);
        ranks.held.set(model.index(), candidate.ready);
    }

    /// The usual case, cheaply: one candidate became ready, nobody else is or waits, and an
    /// executor is idle. The same as `next_ready` and `poll`.
    #[inline]
    pub fn grant_alone(&mut self, now: Time) -> Option<Grant> {
        if self.may_block() {
            return None;
        }
        let [ranks] = &mut self.classes[..] else { return None };
        if ranks.held.earliest() > now || ranks.waiting.earliest() != Time::NEVER {
            return None;
        }
        let (model, executor) = (ranks.held.first()?, ranks.idle.first()?);
        let ready = ranks.held.get(model);
        ranks.held.clear(model);
        if ranks.held.earliest() <= now {
            ranks.held.set(model, ready);
            return None;
        }
        ranks.idle.remove(executor);
        ranks.free.clear(executor);
        Some(self.grant(ClassId(0), model, executor))
    }

    /// A candidate that became ready, if any: from now on it waits for an executor.
    #[inline]
    pub fn next_ready(&mut self, now: Time) -> Option<ModelId> {
        for class in &mut self.classes {
            if class.held.earliest() <= now {
                let model = class.held.first()?;
                class.held.clear(model);
                class.waiting.set(model, class.asks[model].urgency);
                return Some(ModelId(model as u32));
            }
        }
        None
    }

    /// The model used its grant: the executor runs a batch from `start` on, for `latency`.
    pub fn inform_executor(&mut self, executor: ExecutorId, start: Time, latency: Span) {
        let state = &mut self.executors[executor.index()];
        state.latencies[usize::from(state.batches)] = latency;
        state.batches += 1;
        state.free_at = start + latency;
        let (leaving, free_at) = (state.leaving, state.free_at);
        if self.keeps_ends && !leaving {
            let class = state.class.index();
            self.classes[class].ends.set(executor.index(), free_at);
        }
        let state = self.executors[executor.index()];
        if leaving {
            return; // It left while the grant was under way, and finishes what it was given.
        }
        // Without network delays nothing is granted ahead: `Done` comes when the executor is free.
        if usize::from(state.batches) < BATCHES_MAX && self.network.lead(1) > Span::ZERO {
            let class = &mut self.classes[state.class.index()];
            class.free.set(executor.index(), state.free_at);
        }
    }

    /// The model had no use for its grant.
    pub fn return_executor(&mut self, executor: ExecutorId) {
        let state = self.executors[executor.index()];
        if state.leaving {
            return;
        }
        let class = &mut self.classes[state.class.index()];
        match state.batches {
            0 => _ = class.idle.insert(executor.index()),
            _ => class.free.set(executor.index(), state.free_at),
        }
    }

    /// Whether there is nothing for `next_ready` and `poll` at this moment.
    #[inline]
    pub fn is_settled(&self, now: Time) -> bool {
        self.classes.iter().all(|class| class.held.earliest() > now && !class.can_match())
    }

    /// The next match that is due, if any. The model must answer with `inform_executor` or
    /// `return_executor`, and inform of its new candidate.
    #[inline]
    pub fn poll(&mut self, now: Time) -> Option<Grant> {
        for at in 0..self.classes.len() {
            if !self.classes[at].can_match() {
                continue;
            }
            if let Some(grant) = self.poll_class(now, ClassId(at as u16)) {
                return Some(grant);
            }
        }
        None
    }

    /// When a candidate becomes ready or a match is due, should nothing else happen first.
    #[inline]
    pub fn next_wakeup(&self) -> Time {
        let mut earliest = Time::NEVER;
        for class in &self.classes {
            earliest = earliest.min(class.held.earliest());

            if class.kept_until > Time::START && class.can_match() {
                earliest = earliest.min(class.kept_until);
            } else if class.free.earliest() != Time::NEVER {
                earliest = earliest.min(self.available(class));
            }
        }
        earliest
    }

    fn poll_class(&mut self, now: Time, class: ClassId) -> Option<Grant> {
        let ranks = &mut self.classes[class.index()];
        ranks.kept_until = Time::START;
        let model = ranks.waiting.first()?;
        let executor = match ranks.idle.first() {
            Some(executor) => executor,
            None => {
                let (size, free) = (ranks.asks[model].size, ranks.free.earliest());
                if free - self.lead(model, size) > now {
                    return None;
                }
                self.classes[class.index()].free.first()?
            }
        };
        let (mut model, mut longest) = (model, Span::MAX);
        if self.may_block() {
            match self.choose(now, class, executor, model) {
                Choice::Run { model: chosen, longest: bound, by } => {
                    (model, longest) = (chosen, bound);
                    self.limited_by[model] = by.or(self.limited_by[model]);
                }
                Choice::Keep { until, by } => {
                    self.classes[class.index()].kept_until = until;
                    // Of several candidates another one may be in the way of the most urgent.
                    self.limited_by[model] = Some(by).filter(|&by| by != model);
                    return None;
                }
            }
        }
        let limited_by = self.limited_by[model].take().map(|by| ModelId(by as u32));
        let ranks = &mut self.classes[class.index()];
        ranks.waiting.clear(model);
        ranks.idle.remove(executor);
        ranks.free.clear(executor);
        Some(Grant { longest, limited_by, ..self.grant(class, model, executor) })
    }

    #[inline]
    fn grant(&self, class: ClassId, model: usize, executor: usize) -> Grant {
        let free_at = self.executors[executor].free_at;
        let (model, executor) = (ModelId(model as u32), ExecutorId(executor as u32));
        Grant { model, executor, class, free_at, longest: Span::MAX, limited_by: None }
    }

    /// When the first busy executor can be granted to the most urgent waiting candidate.
    fn available(&self, class: &ClassRank) -> Time {
        let Some(model) = class.waiting.first() else { return Time::NEVER };
        class.free.earliest() - self.lead(model, class.asks[model].size)
    }

    fn class_mut(&mut self, class: ClassId) -> &mut ClassRank {
        if class.index() >= self.classes.len() {
            self.classes.resize_with(class.index() + 1, ClassRank::default);
            self.grow(self.models);
        }
        &mut self.classes[class.index()]
    }
}

impl ClassRank {
    fn grow(&mut self, models: usize) {
        self.held.grow(models);
        self.waiting.grow(models);
        self.asks.resize(models, Ask::default());
        self.tables.resize(models, None);
    }

    /// Nearly always not: nobody waits, or there is nothing to be had.
    #[inline]
    fn can_match(&self) -> bool {
        self.waiting.earliest() != Time::NEVER
            && (!self.idle.is_empty() || self.free.earliest() != Time::NEVER)
    }
}
