//! What can happen to a dispatcher and what it may ask of the world: two closed lists of plain
//! values.

use std::sync::Arc;

use fermata_core::{
    ClassId, ExecutorId, KindId, ModelId, Profile, Request, RequestId, Span, Table, Time,
};

/// Everything that can happen to a dispatcher. There is no other door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A model can be asked for from now on. Its id must not be in use.
    AddModel {
        /// Its id: dense, chosen by the caller.
        model: ModelId,
        /// What dispatch must know of it.
        spec: Arc<ModelSpec>,
        /// The mean gap between its requests, where it is known beforehand. Nexus places models by
        /// it; every other policy measures for itself.
        gap: Option<Span>,
    },
    /// A request for a model that was added.
    Arrive {
        /// Which model.
        model: ModelId,
        /// Its id, unique among the requests in the system.
        request: RequestId,
        /// When its answer must have reached the client.
        deadline: Time,
        /// What it runs like, for a model whose run time depends on the input.
        kind: KindId,
    },
    /// Nobody waits for this request any more. It leaves the queue; if it is running already, or
    /// has left, nothing happens.
    Cancel {
        /// Which model it is for.
        model: ModelId,
        /// Its id.
        request: RequestId,
        /// Its deadline, as it arrived: with it the queue is searched in logarithmic time.
        deadline: Time,
    },
    /// An executor finished the batch that it was given first.
    Done {
        /// Which executor.
        executor: ExecutorId,
    },
    /// An executor broke. What it was running goes back to the queue if it can still be in time.
    Fail {
        /// Which executor.
        executor: ExecutorId,
    },
    /// An idle executor is there from now on.
    Join {
        /// Its id: dense, chosen by the caller; low ids are used first.
        executor: ExecutorId,
        /// How fast it is.
        class: ClassId,
    },
    /// An executor gets no more batches. What it runs it finishes.
    Leave {
        /// Which executor.
        executor: ExecutorId,
    },
    /// Wakeups come this much too late, now and then. Batches that are held become ready so much
    /// sooner, or they would pass their latest moment.
    Late {
        /// By how much.
        by: Span,
    },
    /// A model turned out to be faster or slower than it was said to be. What waits for it stays,
    /// and is judged by this from now on; what runs is finished.
    Profile {
        /// Which model.
        model: ModelId,
        /// What dispatch must know of it from now on.
        spec: Arc<ModelSpec>,
    },
    /// A model is no longer served. What waits for it is dropped; what runs is finished.
    RemoveModel {
        /// Which model.
        model: ModelId,
    },
    /// The time that `next_wakeup` named has come.
    Wakeup,
}

/// Everything a dispatcher may ask of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell the client that its request will not be answered.
    Drop {
        /// Which model it was for.
        model: ModelId,
        /// Which request.
        request: Request,
        /// Why.
        reason: DropReason,
    },
    /// Stop what the executor runs, at once; its requests are queued again. Only Shepherd does
    /// this.
    Preempt {
        /// Which executor.
        executor: ExecutorId,
    },
    /// Nothing is to be done, but people may want to know: the next batch of the model is shorter
    /// than it would be, or waited, since a longer one would have blocked another model.
    Limit {
        /// Whose batch.
        model: ModelId,
        /// For which model.
        by: ModelId,
    },
    /// Run a batch.
    Run {
        /// Where.
        executor: ExecutorId,
        /// Which model.
        model: ModelId,
        /// When execution is planned to begin: now, or later by the network delays.
        start: Time,
        /// How long it is expected to take.
        latency: Span,
        /// Where its requests begin in `Actions::requests`.
        first: u32,
        /// How many they are.
        size: u32,
    },
}

/// Why a request leaves without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// Its deadline was too near already when it came.
    Late,
    /// It waited, and can no longer be in time.
    Overload,
    /// Its client cancelled it.
    Cancelled,
    /// Its model was removed, or was never there.
    NotLoaded,
}

/// What dispatch must know of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// The latency objective: the usual distance from arrival to deadline.
    pub slo: Span,
    /// Its profile on each class of executor; `None` where it cannot run.
    pub profiles: Vec<Option<Arc<Profile>>>,
    /// To bring the input of one request to an executor, beyond what the network takes for any:
    /// large inputs take longer.
    pub data: Span,
}

impl ModelSpec {
    /// A model on a pool whose executors are all of one class.
    pub fn uniform(slo: Span, profile: Profile) -> Self {
        Self::new(slo, vec![Some(Arc::new(profile))])
    }

    /// A model by class of executor.
    pub fn new(slo: Span, profiles: Vec<Option<Arc<Profile>>>) -> Self {
        Self { slo, profiles, data: Span::ZERO }
    }

    /// The profile on a class, if the model can run there.
    pub fn profile(&self, class: ClassId) -> Option<&Arc<Profile>> {
        self.profiles.get(class.index())?.as_ref()
    }
}

/// The most batches that an executor has at a time: the one that runs, and those that are on their
/// way to it. Where batches are shorter than the way, one ahead would leave it idle; and what is on
/// its way cannot be changed any more.
pub const BATCHES_MAX: usize = 4;

/// The time it takes to reach an executor and to come back (Symphony, appendix D).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// From the decision to the executor.
    pub ctrl: Span,
    /// To fetch the input of one request.
    pub data: Span,
    /// From the executor to the client: comes off every deadline.
    pub resp: Span,
}

impl Network {
    /// The same, for requests of a model.
    #[inline]
    pub fn carrying(self, spec: &ModelSpec) -> Self {
        Self { data: self.data + spec.data, ..self }
    }

    /// From the decision to the start of a batch of `size` on an idle executor.
    #[inline]
    pub fn lead(&self, size: usize) -> Span {
        self.ctrl + self.data * size as u64
    }

    /// From the decision to the end of a batch on an idle executor, by size.
    pub fn reach(&self, profile: &Profile) -> Table {
        if self.lead(1) == Span::ZERO {
            return profile.table().clone();
        }
        let sizes = 1..=profile.max_batch();
        let reach = Profile::from_table(sizes.map(|size| self.lead(size) + profile.latency(size)));
        reach.expect("longer than a profile that was accepted").table().clone()
    }
}

/// What a dispatcher asked for, in order. The buffers are reused: drain them after each event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// The actions.
    pub list: Vec<Action>,
    /// The requests of the `Run` actions.
    pub requests: Vec<Request>,
}

impl Actions {
    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.requests.clear();
    }

    /// The requests of a `Run` action.
    pub fn batch(&self, first: u32, size: u32) -> &[Request] {
        &self.requests[first as usize..][..size as usize]
    }

    /// Notes a drop.
    pub fn drop(&mut self, model: ModelId, request: Request, reason: DropReason) {
        self.list.push(Action::Drop { model, request, reason });
    }

    /// Notes a batch of all the requests pushed to `requests` since it had `first` of them.
    pub fn run(
        &mut self,
        executor: ExecutorId,
        model: ModelId,
        start: Time,
        latency: Span,
        first: usize,
    ) {
        let size = (self.requests.len() - first) as u32;
        let first = first as u32;
        self.list.push(Action::Run { executor, model, start, latency, first, size });
    }
}

/// A scheduler as a value: it is told the time, and answers with actions.
pub trait Dispatch: Send {
    /// Applies one event at `now`, which never goes back, and appends what must be done.
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions);

    /// When to call `handle` with `Wakeup`, should nothing else happen first; `Time::NEVER` for
    /// never.
    fn next_wakeup(&self) -> Time;
}

impl<D: Dispatch + ?Sized> Dispatch for Box<D> {
    #[inline]
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions) {
        (**self).handle(now, event, actions);
    }

    #[inline]
    fn next_wakeup(&self) -> Time {
        (**self).next_wakeup()
    }
}
