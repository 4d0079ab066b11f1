//! The executors of a pool: which are there, which are idle, and what the others run.
//!
//! It chooses nothing. An executor may be given a second batch while it runs the first, never a
//! third.

use fermata_core::{ClassId, ExecutorId, ModelId, Request, Span, Time};

use crate::id_set::IdSet;
use crate::in_flight::InFlight;

/// Executors by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Executors {
    list: Vec<Option<Executor>>,
    /// Those that have no batch and take one, by class.
    idle: Vec<IdSet>,
    in_flight: InFlight,
}

/// One executor that is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Executor {
    pub(super) class: ClassId,
    /// It takes no more batches.
    pub(super) leaving: bool,
    pub(super) running: Option<Booking>,
    pub(super) next: Option<Booking>,
}

/// When a batch occupies its executor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Booking {
    /// When it began, or is planned to.
    pub(super) start: Time,
    /// How long it is expected to take.
    pub(super) expected: Span,
}

impl Executors {
    /// An idle executor is there from now on.
    pub(super) fn join(&mut self, executor: ExecutorId, class: ClassId) {
        if executor.index() >= self.list.len() {
            self.list.resize(executor.index() + 1, None);
        }
        if class.index() >= self.idle.len() {
            self.idle.resize_with(class.index() + 1, IdSet::default);
        }
        let place = &mut self.list[executor.index()];
        assert!(place.is_none(), "executor {executor} joined twice");
        *place = Some(Executor { class, leaving: false, running: None, next: None });
        self.idle[class.index()].insert(executor.index());
    }

    /// The executor takes no more batches; it is gone when it has finished those it has.
    pub(super) fn leave(&mut self, executor: ExecutorId) {
        let state = self.get_mut(executor);
        assert!(!state.leaving, "executor {executor} left twice");
        state.leaving = true;
        let (class, busy) = (state.class, state.running.is_some());
        self.idle[class.index()].remove(executor.index());
        if !busy {
            self.list[executor.index()] = None;
        }
    }

    /// The executor is gone. What it ran is still to be had from `take_back`.
    pub(super) fn fail(&mut self, executor: ExecutorId) {
        if let Some(state) = self.list.get_mut(executor.index()).and_then(Option::take) {
            self.idle[state.class.index()].remove(executor.index());
        }
    }

    /// Takes the first batch of a failed executor back.
    pub(super) fn take_back(&mut self, executor: ExecutorId) -> Option<(ModelId, Vec<Request>)> {
        self.in_flight.take(executor)
    }

    /// Stops what an executor runs, which must be its only batch.
    pub(super) fn preempt(&mut self, executor: ExecutorId) -> (ModelId, Vec<Request>) {
        let state = self.get_mut(executor);
        assert!(state.next.is_none(), "executor {executor} has a second batch");
        state.running = None;
        let (class, leaving) = (state.class, state.leaving);
        assert!(!leaving, "a leaving executor finishes what it runs");
        self.idle[class.index()].insert(executor.index());
        self.in_flight.take(executor).expect("only a running batch is preempted")
    }

    /// A batch is given to an executor.
    pub(super) fn start(
        &mut self,
        executor: ExecutorId,
        model: ModelId,
        booking: Booking,
        requests: &[Request],
    ) {
        let state = self.get_mut(executor);
        assert!(!state.leaving, "executor {executor} is leaving");
        if state.running.is_none() {
            state.running = Some(booking);
        } else {
            assert!(state.next.is_none(), "executor {executor} was given a third batch");
            state.next = Some(booking);
        }
        let class = state.class;
        self.idle[class.index()].remove(executor.index());
        self.in_flight.start(executor, model, requests);
    }

    /// The first batch of an executor is done. The second, if there is one, begins.
    pub(super) fn done(&mut self, now: Time, executor: ExecutorId) {
        self.in_flight.done(executor);
        let state = self.get_mut(executor);
        let late_start = |next: Booking| Booking { start: next.start.max(now), ..next };
        state.running = state.next.take().map(late_start);
        if state.running.is_some() {
            return;
        }
        let (class, leaving) = (state.class, state.leaving);
        if leaving {
            self.list[executor.index()] = None;
        } else {
            self.idle[class.index()].insert(executor.index());
        }
    }

    /// The model and the requests that an executor runs now.
    pub(super) fn running(&self, executor: ExecutorId) -> Option<(ModelId, &[Request])> {
        self.in_flight.running(executor)
    }

    /// An executor, if it is there.
    #[inline]
    pub(super) fn get(&self, executor: ExecutorId) -> Option<&Executor> {
        self.list.get(executor.index())?.as_ref()
    }

    /// The idle executor of a class with the lowest id.
    #[inline]
    pub(super) fn first_idle(&self, class: ClassId) -> Option<ExecutorId> {
        let idle = self.idle.get(class.index())?.first()?;
        Some(ExecutorId(idle as u32))
    }

    /// Whether this executor has no batch and takes one.
    #[inline]
    pub(super) fn is_idle(&self, executor: ExecutorId) -> bool {
        self.get(executor)
            .is_some_and(|state| self.idle[state.class.index()].contains(executor.index()))
    }

    /// Whether some executor of any class is idle.
    #[inline]
    pub(super) fn any_idle(&self) -> bool {
        self.idle.iter().any(|class| !class.is_empty())
    }

    /// The classes that were ever there.
    pub(super) fn classes(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..self.idle.len()).map(|class| ClassId(class as u16))
    }

    /// The executors of a class that take batches, in the order of their ids.
    pub(super) fn active(&self, class: ClassId) -> impl Iterator<Item = ExecutorId> + '_ {
        (0..).zip(&self.list).filter_map(move |(id, state)| {
            let state = state.as_ref()?;
            (state.class == class && !state.leaving).then_some(ExecutorId(id))
        })
    }

    fn get_mut(&mut self, executor: ExecutorId) -> &mut Executor {
        let state = self.list.get_mut(executor.index()).and_then(Option::as_mut);
        state.expect("only executors that joined are spoken of")
    }
}

impl Executor {
    /// When its last batch is expected to end; the beginning of time if it has none.
    #[inline]
    pub(super) fn free_at(&self) -> Time {
        let after = |from: Time, booking: Booking| from.max(booking.start) + booking.expected;
        let first = self.running.map_or(Time::START, |running| after(Time::START, running));
        self.next.map_or(first, |next| after(first, next))
    }
}
