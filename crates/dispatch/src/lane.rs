//! A model on one class of executor: its profile there, and the batch that it would send now.

use fermata_core::{ClassId, Profile, Request, Span, Table, Time};

use crate::arrival_stats::ArrivalStats;
use crate::candidate::Candidate;
use crate::event::Network;
use crate::price::Signal;
use crate::rules::{Gather, Rules, Window};
use crate::tuning::Tuning;

/// What became of a request that came. A byte: carried along, request and candidate would be
/// written by halves and read as a whole, and the processor waits for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits, and the candidates are others than before.
    Changed,
    /// It waits, and joined the model's only candidate, which is still held: `held` has it.
    Held,
    /// It cannot be in time.
    Refused,
    /// It waits behind a candidate that is the same as before.
    Unchanged,
}

/// A model on one class of executor. What a request needs that comes is in the first cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Lane {
    /// The candidate, or one of no requests.
    candidate: Candidate,
    /// When the candidate must be done.
    due: Time,
    /// From the decision to the end of a batch, by size: the profile and the network's lead.
    pub(crate) reach: Table,
    /// How many urgent requests the candidate gives up.
    skip: u32,
    pub(crate) class: ClassId,
    pub(crate) profile: Profile,
    /// The batch of a staggered execution, rounded down: the batch to keep up.
    pub(crate) target: usize,
}

/// What a lane must know of its model to form a batch.
pub(crate) struct View<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) resp: Span,
    /// Seldom needed, and then it is another cache line.
    pub(crate) slo: &'a Span,
    /// All that wait, the most urgent first.
    pub(crate) waiting: &'a [Request],
    pub(crate) arrivals: &'a ArrivalStats,
    pub(crate) tuning: &'a Tuning,
    pub(crate) signal: &'a Signal,
}

impl View<'_> {
    /// When the last of a batch must be done for the request in this place.
    #[inline]
    fn due(&self, at: usize) -> Time {
        self.waiting[at].deadline - self.resp
    }
}

impl Lane {
    pub(crate) fn new(class: ClassId, profile: &Profile, network: Network) -> Self {
        let reach = network.reach(profile);
        let (candidate, due) = (Candidate::default(), Time::NEVER);
        Self { candidate, due, reach, skip: 0, class, profile: profile.clone(), target: 1 }
    }

    /// The batch that it would send now.
    #[inline]
    pub(crate) fn candidate(&self) -> Option<&Candidate> {
        (self.candidate.size > 0).then_some(&self.candidate)
    }

    /// How many urgent requests the candidate gives up.
    #[inline]
    pub(crate) fn skip(&self) -> usize {
        self.skip as usize
    }

    /// The most urgent requests, so many, are gone.
    #[inline]
    pub(crate) fn forget_skips(&mut self, gone: usize) {
        self.skip = self.skip().saturating_sub(gone) as u32;
    }

    /// Nothing waits any more.
    pub(crate) fn clear(&mut self) {
        (self.candidate, self.skip) = (Candidate::default(), 0);
    }

    /// The candidate is this one, which somebody else formed.
    pub(crate) fn propose(&mut self, candidate: Candidate) {
        (self.candidate, self.skip) = (candidate, 0);
    }

    /// Forms the candidate from what waits now.
    #[inline]
    pub(crate) fn form(&mut self, view: &View<'_>, now: Time) {
        let (skip, size) = self.gather(view, now, Time::START, Span::MAX);
        self.skip = skip as u32;
        self.candidate.size = 0;
        if size > 0 {
            self.due = view.due(skip);
            self.candidate = self.shape(view, now, size);
        }
    }

    /// The usual case, cheaply, of a model with one lane: the request that was just queued last is
    /// alone, joins the candidate that takes all who wait, or comes behind a candidate that is
    /// valid without it. `None`, if it is not so simple.
    #[inline]
    pub(crate) fn join(&mut self, view: &View<'_>, now: Time) -> Option<Arrival> {
        if view.waiting.len() == 1 {
            // It is not hopeless, and so it is gathered under every rule.
            (self.skip, self.due) = (0, view.due(0));
            self.candidate = self.shape(view, now, 1);
            return Some(Arrival::Changed);
        }
        let candidate = self.candidate().filter(|candidate| candidate.latest >= now)?;
        let was_held = self.skip == 0 && candidate.is_held(now);
        let size = view.waiting.len() - self.skip();
        if candidate.size as usize + 1 < size
            || size > self.reach.max_batch()
            || now + self.reach.latency(size) > self.due
        {
            // Which of them go is decided when an executor is granted, or the latest moment passes.
            return Some(Arrival::Unchanged);
        }
        self.candidate = self.shape(view, now, size);
        if was_held && self.candidate.is_held(now) {
            return Some(Arrival::Held);
        }
        Some(Arrival::Changed)
    }

    /// Whether there is a candidate that gives nobody up, and is held.
    #[inline]
    pub(crate) fn is_held(&self, now: Time) -> bool {
        self.skip == 0 && self.candidate().is_some_and(|candidate| candidate.is_held(now))
    }

    /// The candidate that sends `size` requests behind those given up. Nearly every request asks
    /// for it: as a function of its own it would cost a twentieth more.
    #[inline(always)]
    fn shape(&self, view: &View<'_>, now: Time, size: usize) -> Candidate {
        let latest = self.due - self.reach.latency(size);
        let frontrun = self.due - self.reach.latency(size + 1);
        let (ready, urgency) = match view.rules.window {
            Window::Deferred => (frontrun - view.signal.slack, latest),
            Window::Eager => (now, latest),
            Window::Timeout(timeout) => {
                (view.waiting[self.skip()].arrival + timeout.of(*view.slo), latest)
            }
            Window::Priced(_) => (
                view.tuning.ready(size, (frontrun, latest), view.arrivals, view.signal),
                view.tuning.urgency(latest),
            ),
        };
        let due_last = view.due(self.skip() + size - 1);
        Candidate { size: size as u32, ready: ready.max(now), latest, due_last, urgency }
    }

    /// How many urgent requests to give up and how many to send, were a batch decided at `now` for
    /// an executor that is free at `free_at`, that may take `longest`.
    #[inline]
    pub(crate) fn gather(
        &self,
        view: &View<'_>,
        now: Time,
        free_at: Time,
        longest: Span,
    ) -> (usize, usize) {
        let most = match longest {
            Span::MAX => self.reach.max_batch(),
            longest => self.profile.largest_within(longest).max(1),
        };
        let waiting = view.waiting.len();
        if waiting == 0 {
            return (0, 0);
        }
        let in_time = |size: usize, at: usize| {
            let due = view.due(at);
            // Inputs are fetched while the executor is busy: it need not wait for them once it is
            // free.
            (free_at <= now || free_at + self.profile.latency(size) <= due)
                && now + self.reach.latency(size) <= due
        };
        match view.rules.gather {
            Gather::Prefix => {
                // Heads that only a faster class could still serve are left to it.
                let skip = (0..waiting).find(|&at| in_time(1, at));
                skip.map_or((0, 0), |skip| (skip, self.fits(view, now, free_at, skip)))
            }
            Gather::EarlyDrop => {
                let mut heads = self.skip()..waiting;
                let skip = heads.find(|&at| in_time(self.target.min(waiting - at), at));
                skip.map_or((0, 0), |skip| (skip, self.fits(view, now, free_at, skip)))
            }
            Gather::Priced => {
                // Nearly always everything that waits fits.
                let all = waiting.min(most);
                if in_time(all, 0) {
                    return (0, all);
                }
                let fits = |skip: usize, later: Span| {
                    self.fits(view, now + later, free_at + later, skip).min(most)
                };
                view.tuning.gather(waiting, self.target, &self.profile, view.signal, fits)
            }
        }
    }

    /// How many can be sent from place `skip` on.
    #[inline]
    fn fits(&self, view: &View<'_>, now: Time, free_at: Time, skip: usize) -> usize {
        let due = view.due(skip);
        if due < now {
            return 0;
        }
        let size = self.reach.largest_within_at_most(due - now, view.waiting.len() - skip);
        if free_at <= now {
            return size;
        }
        self.profile.largest_within_at_most(due - free_at, size)
    }
}
