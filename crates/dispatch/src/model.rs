//! The model machine: one model's queue, the batch it would send now, and what it must drop.
//!
//! It sees its own requests only. Free executors, other models and the choice between them belong
//! to the rank machine; the two exchange plain values.

mod mixed;

use fermata_core::{ClassId, Request, RequestId, Span, Table, Time};

use crate::arrival_overlap::ArrivalOverlap;
use crate::arrival_stats::ArrivalStats;
use crate::blocking::Need;
use crate::candidate::Candidate;
use crate::event::{ModelSpec, Network};
use crate::lane::{Arrival, Lane, View};
use crate::price::{Report, Signal};
use crate::queue::Queue;
use crate::rules::{Gather, Rules, Spare, Window};
use crate::spread::Mixed;
use crate::tuning::{Learned, Tuning};

/// Clients wait for their answers if hardly any request joins others of its model later than this
/// number of mean gaps after the last arrival.
const LOOP_GAPS: f64 = 1.5;
/// Below this load of the pool, a model's batch in the full pool is no longer extrapolated.
const LOAD_MIN: f64 = 0.05;

/// One model's queue and candidates. What every request needs that comes is in the first two cache
/// lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct ModelMachine {
    queue: Queue,
    /// One per class that can run the model.
    lanes: Box<[Lane]>,
    /// From the decision to the end of a batch of one, on the fastest class: nothing is in time
    /// sooner.
    shortest: Span,
    /// From the end of a batch to its clients.
    resp: Span,
    rules: Rules,
    /// Whether arrivals are looked at closely, for rules that need it now or later.
    looks_closely: bool,
    /// Whether there is anything new for the market.
    has_news: bool,
    /// Whether `mixed` is there: a byte in a line of the cache that every request needs anyway.
    is_mixed: bool,
    arrivals: ArrivalStats,
    overlap: ArrivalOverlap,
    /// Until when those who were sent off count as being there.
    there_until: Time,
    slo: Span,
    network: Network,
    tuning: Tuning,
    /// What the market was told last.
    reported: Report,
    /// Those who wait, where run times depend on the input: then `queue` is empty, and candidates
    /// only say how urgent they are.
    mixed: Option<Box<Mixed>>,
}

/// A batch that is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// When its execution begins.
    pub start: Time,
    /// How long it takes.
    pub latency: Span,
}

/// A view of the model for its lanes: a macro, since it borrows all fields but the lanes.
macro_rules! view {
    ($machine:ident, $signal:expr) => {
        View {
            rules: &$machine.rules,
            resp: $machine.resp,
            slo: &$machine.slo,
            waiting: $machine.queue.as_slice(),
            arrivals: &$machine.arrivals,
            tuning: &$machine.tuning,
            signal: $signal,
        }
    };
}

impl ModelMachine {
    /// A model with nothing waiting.
    pub fn new(now: Time, spec: &ModelSpec, rules: Rules, network: Network) -> Self {
        let network = network.carrying(spec);
        let lanes = lanes(spec, network);
        let mixed = mixed(spec, &lanes, rules, network);
        Self {
            queue: Queue::default(),
            shortest: shortest(&lanes),
            is_mixed: mixed.is_some(),
            mixed,
            lanes,
            resp: network.resp,
            rules,
            looks_closely: matches!(rules.window, Window::Priced(_)),
            has_news: false,
            arrivals: ArrivalStats::new(now),
            overlap: ArrivalOverlap::new(now),
            there_until: Time::START,
            slo: spec.slo,
            network,
            tuning: Tuning::default(),
            reported: Report::default(),
        }
    }

    /// It goes by other rules from now on, with what it learned under them before; `set_profile`
    /// must follow.
    pub(crate) fn set_rules(&mut self, rules: Rules, learned: Option<Learned>) {
        self.rules = rules;
        if let Some(learned) = learned {
            self.tuning.recall(learned, self.slo);
        }
    }

    /// What it learned of its losses.
    pub(crate) fn learned(&self) -> Learned {
        self.tuning.learned()
    }

    /// The model turned out to be faster or slower. Who waits stays; `wake` must follow, for those
    /// who can no longer be in time.
    pub fn set_profile(&mut self, spec: &ModelSpec, signal: &Signal) {
        let waiting = self.take_all();
        self.lanes = lanes(spec, self.network);
        self.shortest = shortest(&self.lanes);
        self.mixed = mixed(spec, &self.lanes, self.rules, self.network);
        self.is_mixed = self.mixed.is_some();
        waiting.into_iter().for_each(|request| self.enqueue(request));
        self.slo = spec.slo;
        self.retune(signal);
    }

    /// The classes that can run the model, with the batch that would be sent to each.
    #[inline]
    pub fn candidates(&self) -> impl Iterator<Item = (ClassId, Option<&Candidate>)> {
        self.lanes.iter().map(|lane| (lane.class, lane.candidate()))
    }

    /// The candidate of a model that runs on one class only.
    #[inline]
    pub fn held(&self) -> Option<(ClassId, &Candidate)> {
        let lane = self.lanes.first()?;
        Some((lane.class, lane.candidate()?))
    }

    /// A request came.
    #[inline]
    pub fn arrive(&mut self, now: Time, request: Request, signal: &Signal) -> Arrival {
        let mut retune = false;
        if self.looks_closely {
            let until = if self.is_empty() { self.there_until } else { now };
            retune = self.overlap.note(now, self.arrivals.last(), until, self.arrivals.rate());
        }
        if self.arrivals.arrive(now, !self.looks_closely) || retune {
            self.retune(signal);
        }
        if self.is_hopeless(now, &request) {
            return Arrival::Refused;
        }
        if self.is_mixed {
            return self.arrive_mixed(now, request, signal);
        }
        if !self.queue.push(request) {
            self.forget_skips();
        } else if let [lane] = &mut self.lanes[..]
            && let Some(arrival) = lane.join(&view!(self, signal), now)
        {
            return arrival;
        }
        self.form(now, signal);
        Arrival::Changed
    }

    /// A request that was running on an executor that failed comes back. It is given back if it can
    /// no longer be in time.
    pub fn come_back(
        &mut self,
        now: Time,
        request: Request,
        signal: &Signal,
    ) -> Result<(), Request> {
        if self.is_hopeless(now, &request) {
            return Err(request);
        }
        self.enqueue(request);
        self.forget_skips();
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
        let request = match &mut self.mixed {
            Some(mixed) => mixed.remove(key)?,
            None => self.queue.remove(key)?,
        };
        self.forget_skips();
        self.form(now, signal);
        Some(request)
    }

    /// Takes every waiting request out.
    pub fn clear(&mut self) -> Vec<Request> {
        self.lanes.iter_mut().for_each(Lane::clear);
        self.take_all()
    }

    /// The moment that `next_timer` named has come: what became hopeless is handed to `dropped`,
    /// and candidates that passed their latest moment are formed anew.
    pub fn wake(&mut self, now: Time, signal: &Signal, mut dropped: impl FnMut(Request)) {
        let mut lost = 0;
        while let Some(&head) = self.queue.head().filter(|head| self.is_hopeless(now, head)) {
            dropped(head);
            self.queue.pop();
            lost += 1;
        }
        while let Some(request) = self.mixed.as_mut().and_then(|mixed| mixed.pop_hopeless(now)) {
            dropped(request);
            lost += 1;
        }
        if lost > 0 {
            self.note(0, lost, signal);
            for lane in &mut self.lanes {
                lane.forget_skips(lost);
            }
        }
        if self.arrivals.quiet_at() < now {
            self.arrivals.fall_quiet();
            self.retune(signal);
        }
        self.form(now, signal);
    }

    /// When to call `wake`, should it not be granted an executor before: one nanosecond after the
    /// head became hopeless or a candidate passed its latest moment; with nothing waiting, when the
    /// model counts as quiet.
    #[inline]
    pub fn next_timer(&self) -> Time {
        let mut timer = match self.queue.head() {
            Some(head) => self.due(head) - self.shortest,
            None => match self.mixed().filter(|mixed| !mixed.is_empty()) {
                Some(mixed) => mixed.hopeful_until(),
                None => return self.arrivals.quiet_at().next(),
            },
        };
        for lane in &self.lanes {
            if let Some(candidate) = lane.candidate() {
                timer = timer.min(candidate.latest);
            }
        }
        timer.next()
    }

    /// Whether every candidate is held and gives nobody up: then none can pass its latest moment,
    /// nor anybody become hopeless, before it becomes ready.
    #[inline]
    pub fn is_held(&self, now: Time) -> bool {
        // Where kinds differ somebody may become hopeless while others are held.
        !self.is_mixed && self.lanes.iter().all(|lane| lane.is_held(now))
    }

    /// An executor of `class` is the model's, from `free_at` on for a batch that takes `longest` at
    /// most. Moves the finalised batch to `batch` and what it gives up to `dropped`; `None`, if
    /// there is nothing to send.
    pub fn granted(
        &mut self,
        now: Time,
        class: ClassId,
        (free_at, longest): (Time, Span),
        signal: &Signal,
        batch: &mut Vec<Request>,
        dropped: impl FnMut(Request),
    ) -> Option<Start> {
        if self.is_mixed {
            return self.granted_mixed(now, class, free_at, signal, batch);
        }
        let lane = self.lanes.iter().find(|lane| lane.class == class)?;
        let (skip, size) = lane.gather(&view!(self, signal), now, free_at, longest);
        if size == 0 {
            return None;
        }
        let start = (now + self.network.lead(size)).max(free_at);
        let latency = lane.profile.latency(size);
        // Whoever comes in the first half of a run does not come because it has ended: profiles are
        // often slower than what happens, but seldom twice as slow.
        self.there_until = self.there_until.max(start + Span(latency.0 / 2));
        // What this batch gives up is lost, unless another class's candidate still counts on it.
        let others = self.lanes.iter().filter(|lane| lane.class != class);
        let mut lost = others.map(Lane::skip).min().unwrap_or(skip).min(skip);
        if self.rules.gather == Gather::Prefix {
            // It gives up nobody who could still go with another executor: this one may be free
            // later than it seemed when it was asked for.
            let heads = self.queue.as_slice()[..lost].iter();
            lost = heads.take_while(|head| self.is_hopeless(now, head)).count();
        }
        batch.extend_from_slice(&self.queue.as_slice()[skip..skip + size]);
        self.queue.take(lost).iter().copied().for_each(dropped);
        if lost == skip {
            self.queue.take(size);
        } else {
            self.queue.remove_many(skip - lost, size);
        }
        self.forget_skips();
        self.note(size, lost, signal);
        self.form(now, signal);
        Some(Start { start, latency })
    }

    /// Those who wait, where run times depend on the input.
    #[inline]
    fn mixed(&self) -> Option<&Mixed> {
        if self.is_mixed { self.mixed.as_deref() } else { None }
    }

    #[inline]
    fn enqueue(&mut self, request: Request) {
        match &mut self.mixed {
            Some(mixed) => mixed.push(request),
            None => _ = self.queue.push(request),
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.mixed().is_none_or(|mixed| mixed.is_empty())
    }

    fn take_all(&mut self) -> Vec<Request> {
        let mut all = self.queue.take(self.queue.len()).to_vec();
        all.extend(self.mixed.iter_mut().flat_map(|mixed| mixed.drain().collect::<Vec<_>>()));
        all
    }

    /// Whether there is anything new for the market.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// What the market was told before, and what it should know now.
    pub fn news(&mut self) -> (Report, Report) {
        self.has_news = false;
        let before = std::mem::replace(&mut self.reported, self.tuning.report());
        (before, self.reported)
    }

    /// What others must know of it that may block it.
    pub fn need(&self) -> Need {
        self.tuning.need()
    }

    /// What the market was told last.
    pub fn reported(&self) -> Report {
        self.reported
    }

    #[inline]
    fn due(&self, request: &Request) -> Time {
        request.deadline - self.resp
    }

    #[inline]
    fn is_hopeless(&self, now: Time, request: &Request) -> bool {
        if let Some(mixed) = self.mixed() {
            return mixed.is_hopeless(now, request);
        }
        // A model that runs nowhere has no moment to wait for, whatever the deadline.
        self.shortest == Span::MAX || now + self.shortest > self.due(request)
    }

    fn forget_skips(&mut self) {
        for lane in &mut self.lanes {
            lane.forget_skips(usize::MAX);
        }
    }

    #[inline]
    fn form(&mut self, now: Time, signal: &Signal) {
        if self.is_mixed {
            return self.form_mixed(now, signal);
        }
        for lane in &mut self.lanes {
            lane.form(&view!(self, signal), now);
        }
    }

    #[inline]
    fn is_priced(&self) -> bool {
        matches!(self.rules.window, Window::Priced(_))
    }

    #[inline]
    fn note(&mut self, sent: usize, lost: usize, signal: &Signal) {
        if self.is_priced() {
            self.tuning.note(sent, lost, self.slo, self.arrivals.rate(), signal);
        }
    }

    fn retune(&mut self, signal: &Signal) {
        let budget = self.slo - self.resp;
        let mut rate = self.arrivals.rate();
        let (priced, spare) = match self.rules.window {
            Window::Priced(spare) => (true, spare),
            _ => (false, Spare::default()),
        };
        if priced && signal.load > 0.0 {
            // The batch of the full pool: what this model would send if all grew until then.
            rate /= signal.load.clamp(LOAD_MIN, 1.0);
        }
        let main = self.lanes.iter().position(|lane| lane.class == signal.main_class);
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let batch = staggered_batch(&lane.reach, budget, rate);
            lane.target = batch as usize;
            if priced && at == main.unwrap_or(0) {
                let slack = budget - lane.reach.shortest();
                let overlap = self.overlap.ends_after(self.arrivals.rate());
                self.tuning.retune(&self.arrivals, overlap, &lane.profile, batch, slack, signal);
                // An executor that is released would wait for clients that wait for their answers.
                let in_loop = overlap.0 as f64 * self.arrivals.rate() < LOOP_GAPS;
                if spare == Spare::Latency || in_loop {
                    self.tuning.set_worth(&self.arrivals, overlap, &lane.profile, batch, signal);
                }
                let own = staggered_batch(&lane.reach, budget, self.arrivals.rate());
                self.tuning.set_need(&self.arrivals, &lane.reach, own, budget);
                self.has_news = true;
            }
        }
    }
}

/// Where run times depend on the input, and the policy can make use of it.
fn mixed(spec: &ModelSpec, lanes: &[Lane], rules: Rules, network: Network) -> Option<Box<Mixed>> {
    if rules.gather == Gather::Priced { Mixed::new(spec, lanes, network) } else { None }
}

/// One lane for each class that can run the model.
fn lanes(spec: &ModelSpec, network: Network) -> Box<[Lane]> {
    (0..spec.profiles.len())
        .map(|class| ClassId(class as u16))
        .filter_map(|class| Some(Lane::new(class, spec.profile(class)?, network)))
        .collect()
}

fn shortest(lanes: &[Lane]) -> Span {
    lanes.iter().map(|lane| lane.reach.shortest()).min().unwrap_or(Span::MAX)
}

/// The batch of a staggered execution, as a fraction: the largest that gathers and runs within the
/// budget ([`Table::gathered_within`]), and the part of one more that there is time for. With
/// `n = rate l(b) / b` executors' worth of load, that is `l(b) (1 + 1/n) <= SLO`.
pub fn staggered_batch(reach: &Table, budget: Span, rate: f64) -> f64 {
    let whole = reach.gathered_within(budget, rate);
    if whole == 0 || whole == reach.max_batch() {
        return whole.max(1) as f64;
    }
    let time = |size: usize| reach.latency(size).0 as f64 + size as f64 / rate;
    let left = budget.0 as f64 - time(whole);
    whole as f64 + (left / (time(whole + 1) - time(whole))).min(0.999)
}

#[cfg(test)]
mod tests {
    use fermata_core::Profile;

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
