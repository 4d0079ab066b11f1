//! The model machine: one model's queue, the batch it would send now, and what it must drop.
//!
//! It sees its own requests only. Free executors, other models and the choice between them belong to the
//! rank machine; the two exchange plain values.

use std::collections::VecDeque;

use fermata_core::{ClassId, Profile, Request, RequestId, Span, Time};

use crate::event::{ModelSpec, Network};
use crate::pace::Pace;
use crate::price::{Report, Signal};
use crate::rank::Candidate;
use crate::rules::{Gather, Rules, Window};
use crate::tuning::Tuning;

/// Below this load of the pool, a model's batch in the full pool is no longer extrapolated.
const LOAD_MIN: f64 = 0.05;

/// One model's queue and candidates.
#[derive(Clone, Debug)]
pub struct ModelMachine {
    rules: Rules,
    network: Network,
    slo: Span,
    /// Sorted by deadline, then id.
    queue: VecDeque<Request>,
    /// One per class that can run the model.
    lanes: Vec<Lane>,
    /// From the decision to the end of a batch of one, on the fastest class: nothing is in time sooner.
    shortest: Span,
    pace: Pace,
    tuning: Tuning,
    /// What the market was told last.
    reported: Report,
}

/// The model on one class of executor.
#[derive(Clone, Debug)]
struct Lane {
    class: ClassId,
    profile: Profile,
    /// From the decision to the end of a batch, by size: the profile and the network's lead.
    reach: Profile,
    /// The batch of a staggered execution, rounded down: the batch to keep up.
    target: usize,
    /// How many urgent requests the candidate gives up.
    skip: usize,
    candidate: Option<Candidate>,
}

/// What became of a request that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits, and the candidates are others than before.
    Changed,
    /// It cannot be in time.
    Refused(Request),
    /// It waits behind a candidate that is the same as before.
    Unchanged,
}

/// A batch that is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// When its execution begins.
    pub start: Time,
    /// How long it takes.
    pub latency: Span,
}

impl ModelMachine {
    /// A model with nothing waiting.
    pub fn new(now: Time, spec: &ModelSpec, rules: Rules, network: Network) -> Self {
        let lanes: Vec<Lane> = (0..spec.profiles.len())
            .map(|class| ClassId(class as u16))
            .filter_map(|class| Some(Lane::new(class, spec.profile(class)?, network)))
            .collect();
        let shortest = lanes.iter().map(|lane| lane.reach.shortest()).min().unwrap_or(Span::MAX);
        Self {
            rules,
            network,
            slo: spec.slo,
            queue: VecDeque::new(),
            lanes,
            shortest,
            pace: Pace::new(now),
            tuning: Tuning::default(),
            reported: Report::default(),
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The classes that can run the model, with the batch that would be sent to each.
    pub fn candidates(&self) -> impl Iterator<Item = (ClassId, Option<&Candidate>)> {
        self.lanes.iter().map(|lane| (lane.class, lane.candidate.as_ref()))
    }

    /// A request came.
    #[inline]
    pub fn arrive(&mut self, now: Time, request: Request, signal: &Signal) -> Arrival {
        if self.pace.arrive(now) {
            self.retune(signal);
        }
        if self.is_hopeless(now, &request) {
            return Arrival::Refused(request);
        }
        match self.queue.back() {
            Some(last) if last.key() > request.key() => self.insert(request),
            _ => {
                self.queue.push_back(request);
                if let Some(arrival) = self.join_candidate(now, signal) {
                    return arrival;
                }
            }
        }
        self.form(now, signal);
        Arrival::Changed
    }

    /// The usual case, cheaply: the request that was just queued last joins the candidate that takes all who
    /// wait, or comes behind a candidate that is valid without it. `None`, if it is not so simple.
    #[inline]
    fn join_candidate(&mut self, now: Time, signal: &Signal) -> Option<Arrival> {
        let [lane] = &self.lanes[..] else { return None };
        let candidate = lane.candidate.as_ref().filter(|candidate| candidate.latest >= now)?;
        let size = self.queue.len() - lane.skip;
        let due = self.due(&self.queue[lane.skip]);
        if candidate.size as usize + 1 < size || now + lane.reach.latency(size) > due {
            // Which of them go is decided when an executor is granted, or the latest moment passes.
            return Some(Arrival::Unchanged);
        }
        let candidate = self.candidate(lane, now, lane.skip, size, signal);
        self.lanes[0].candidate = Some(candidate);
        Some(Arrival::Changed)
    }

    /// A request that was running on an executor that failed comes back. It is given back if it can no
    /// longer be in time.
    pub fn come_back(
        &mut self,
        now: Time,
        request: Request,
        signal: &Signal,
    ) -> Result<(), Request> {
        if self.is_hopeless(now, &request) {
            return Err(request);
        }
        self.insert(request);
        self.form(now, signal);
        Ok(())
    }

    /// Takes a waiting request out.
    pub fn cancel(
        &mut self,
        now: Time,
        key: (Time, RequestId),
        signal: &Signal,
    ) -> Option<Request> {
        let at = self.queue.binary_search_by_key(&key, Request::key).ok()?;
        let request = self.queue.remove(at);
        self.forget_skips();
        self.form(now, signal);
        request
    }

    /// Takes every waiting request out.
    pub fn clear(&mut self) -> impl Iterator<Item = Request> + '_ {
        for lane in &mut self.lanes {
            (lane.candidate, lane.skip) = (None, 0);
        }
        self.queue.drain(..)
    }

    /// The moment that `next_timer` named has come: what became hopeless is handed to `dropped`, and
    /// candidates that passed their latest moment are formed anew.
    pub fn wake(&mut self, now: Time, signal: &Signal, mut dropped: impl FnMut(Request)) {
        let mut lost = 0;
        while let Some(head) = self.queue.front().filter(|head| self.is_hopeless(now, head)) {
            dropped(*head);
            self.queue.pop_front();
            lost += 1;
        }
        if lost > 0 {
            self.tuning.note(0, lost, self.slo, signal);
            for lane in &mut self.lanes {
                lane.skip = lane.skip.saturating_sub(lost);
            }
        }
        if self.pace.quiet_at() < now {
            self.pace.fall_quiet();
            self.retune(signal);
        }
        self.form(now, signal);
    }

    /// When to call `wake`, should it not be granted an executor before: one nanosecond after the head
    /// became hopeless or a candidate passed its latest moment; with nothing waiting, when the model counts
    /// as quiet.
    #[inline]
    pub fn next_timer(&self) -> Time {
        let Some(head) = self.queue.front() else { return self.pace.quiet_at().next() };
        let mut timer = self.due(head) - self.shortest;
        for lane in &self.lanes {
            if let Some(candidate) = &lane.candidate {
                timer = timer.min(candidate.latest);
            }
        }
        timer.next()
    }

    /// An executor of `class` is the model's. Moves the finalised batch to `batch` and what it gives up to
    /// `dropped`; `None`, if there is nothing to send.
    pub fn granted(
        &mut self,
        now: Time,
        class: ClassId,
        free_at: Time,
        signal: &Signal,
        batch: &mut Vec<Request>,
        mut dropped: impl FnMut(Request),
    ) -> Option<Start> {
        let at = self.lanes.iter().position(|lane| lane.class == class)?;
        let (skip, size) = self.gather(at, now, free_at, signal);
        if size == 0 {
            return None;
        }
        // What this batch gives up is lost, unless another class's candidate still counts on it.
        let others = self.lanes.iter().filter(|lane| lane.class != class);
        let kept_from = others.map(|lane| lane.skip).min().unwrap_or(skip).min(skip);
        batch.extend(self.queue.drain(skip..skip + size));
        self.queue.drain(..kept_from).for_each(&mut dropped);
        self.forget_skips();
        let start = (now + self.network.lead(size)).max(free_at);
        let latency = self.lanes[at].profile.latency(size);
        self.tuning.note(size, kept_from, self.slo, signal);
        self.form(now, signal);
        Some(Start { start, latency })
    }

    /// Whether every candidate is held: then none can pass its latest moment before it becomes ready.
    #[inline]
    pub fn is_held(&self, now: Time) -> bool {
        let held =
            |lane: &Lane| matches!(&lane.candidate, Some(candidate) if candidate.ready > now);
        self.lanes.iter().all(held)
    }

    /// What the market should know: before and after, if it changed since this was last called.
    #[inline]
    pub fn news(&mut self) -> Option<(Report, Report)> {
        let (before, after) = (self.reported, self.tuning.report());
        if before.load == after.load {
            return None;
        }
        self.reported = after;
        Some((before, after))
    }

    /// What the market was told last.
    pub fn reported(&self) -> Report {
        self.reported
    }

    #[inline]
    fn due(&self, request: &Request) -> Time {
        request.deadline - self.network.resp
    }

    #[inline]
    fn is_hopeless(&self, now: Time, request: &Request) -> bool {
        // A model that runs nowhere has no moment to wait for, whatever the deadline.
        self.shortest == Span::MAX || now + self.shortest > self.due(request)
    }

    fn insert(&mut self, request: Request) {
        let at = self.queue.partition_point(|other| other.key() < request.key());
        self.queue.insert(at, request);
        self.forget_skips();
    }

    fn forget_skips(&mut self) {
        for lane in &mut self.lanes {
            lane.skip = 0;
        }
    }

    fn retune(&mut self, signal: &Signal) {
        let budget = self.slo - self.network.resp;
        let mut rate = self.pace.rate();
        let priced = self.rules.window == Window::Priced;
        if priced && signal.load > 0.0 {
            // The batch of the full pool: what this model would send if all grew until then.
            rate /= signal.load.clamp(LOAD_MIN, 1.0);
        }
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let batch = staggered_batch(&lane.reach, budget, rate);
            lane.target = batch as usize;
            if priced && at == 0 {
                self.tuning.retune(&self.pace, &lane.profile, batch, self.slo, signal);
            }
        }
    }

    /// Forms every lane's candidate from what waits now.
    #[inline]
    fn form(&mut self, now: Time, signal: &Signal) {
        for at in 0..self.lanes.len() {
            let (skip, size) = self.gather(at, now, Time::START, signal);
            self.lanes[at].skip = skip;
            let lane = &self.lanes[at];
            self.lanes[at].candidate =
                (size > 0).then(|| self.candidate(lane, now, skip, size, signal));
        }
    }

    #[inline]
    fn candidate(
        &self,
        lane: &Lane,
        now: Time,
        skip: usize,
        size: usize,
        signal: &Signal,
    ) -> Candidate {
        let head = &self.queue[skip];
        let due = self.due(head);
        let latest = due - lane.reach.latency(size);
        let frontrun = due - lane.reach.latency(size + 1);
        let mut urgency = latest;
        let ready = match self.rules.window {
            Window::Deferred => frontrun,
            Window::Eager => now,
            Window::Timeout(timeout) => head.arrival + timeout.of(self.slo),
            Window::Priced => {
                urgency = self.tuning.urgency(latest);
                self.tuning.ready(frontrun, latest, &self.pace, signal)
            }
        };
        Candidate { size: size as u32, ready: ready.max(now), latest, urgency }
    }

    /// How many urgent requests to give up and how many to send, were a batch decided at `now` for an
    /// executor that is free at `free_at`.
    #[inline]
    fn gather(&self, at: usize, now: Time, free_at: Time, signal: &Signal) -> (usize, usize) {
        let lane = &self.lanes[at];
        let waiting = self.queue.len();
        let Some(head) = self.queue.front() else { return (0, 0) };
        let fits = |skip: usize| {
            let due = self.due(&self.queue[skip]);
            if due < now {
                return 0;
            }
            let size = lane.reach.largest_within_at_most(due - now, waiting - skip);
            if free_at <= now {
                return size;
            }
            // Inputs are fetched while the executor is busy: it need not wait for them once it is free.
            lane.profile.largest_within_at_most(due - free_at, size)
        };
        let in_time = |size: usize, request: &Request| {
            let due = self.due(request);
            (free_at <= now || free_at + lane.profile.latency(size) <= due)
                && now + lane.reach.latency(size) <= due
        };
        match self.rules.gather {
            Gather::Prefix => {
                // Heads that only a faster class could still serve are left to it.
                let mut skip = 0;
                while !in_time(1, &self.queue[skip]) {
                    skip += 1;
                    if skip == waiting {
                        return (0, 0);
                    }
                }
                (skip, fits(skip))
            }
            Gather::EarlyDrop => {
                let mut skip = lane.skip;
                while skip < waiting {
                    let window = lane.target.min(waiting - skip);
                    if in_time(window, &self.queue[skip]) {
                        return (skip, fits(skip));
                    }
                    skip += 1;
                }
                (0, 0)
            }
            Gather::Priced => {
                // Nearly always everything that waits fits.
                let all = waiting.min(lane.reach.max_batch());
                if in_time(all, head) {
                    return (0, all);
                }
                self.tuning.gather(waiting, lane.target, &lane.profile, signal, fits)
            }
        }
    }
}

impl Lane {
    fn new(class: ClassId, profile: &Profile, network: Network) -> Self {
        let reach = if network.lead(1) == Span::ZERO {
            profile.clone()
        } else {
            let sizes = 1..=profile.max_batch();
            let table = sizes.map(|size| network.lead(size) + profile.latency(size));
            Profile::from_table(table).expect("longer than a profile that was accepted")
        };
        Self { class, profile: profile.clone(), reach, target: 1, skip: 0, candidate: None }
    }
}

/// The batch of a staggered execution (Symphony 3.3), as a fraction: the largest `b` that can be waited for
/// and run within the budget, `l(b) + b / rate <= budget`. With `n = rate l(b) / b` executors' worth of
/// load, that is equation 1, `l(b) (1 + 1/n) <= SLO`.
pub fn staggered_batch(reach: &Profile, budget: Span, rate: f64) -> f64 {
    let time = |size: usize| reach.latency(size).0 as f64 + size as f64 / rate;
    let budget = budget.0 as f64;
    let (mut low, mut high) = (1, reach.max_batch());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if time(middle) <= budget { low = middle } else { high = middle - 1 }
    }
    if low == reach.max_batch() || time(low) > budget {
        return low as f64;
    }
    low as f64 + ((budget - time(low)) / (time(low + 1) - time(low))).min(0.999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_staggered_batch_is_that_of_table_two() {
        let profile = |slo| {
            Profile::linear(Span::from_ms(1.053), Span::from_ms(5.072), Span::from_ms(slo)).unwrap()
        };
        // Eight executors at 16 / l(16) each: equation 1 holds with equality at about that rate.
        let batch = staggered_batch(&profile(25.0), Span::from_ms(25.0), 5839e-9);
        assert!((16.0..17.0).contains(&batch), "{batch}");
        assert_eq!(staggered_batch(&profile(25.0), Span::from_ms(25.0), 0.0), 1.0);
        assert_eq!(staggered_batch(&profile(25.0), Span::from_ms(25.0), 1.0) as usize, 18);
    }
}
