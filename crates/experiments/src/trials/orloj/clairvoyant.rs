//! A dispatcher that knows what every request takes: what others are held against, since nobody can
//! know that.
//!
//! It tries the batches that are worth most by a simple measure, plays each of them out to a
//! horizon, and takes the one after which most requests are in time. It serves one model on one
//! executor, and is as slow as it needs to be.

use fermata_core::{ExecutorId, Growth, ModelId, Request, RequestId, Span, Time};
use fermata_dispatch::{Action, Actions, Dispatch, DropReason, Event};
use fermata_sim::Scenario;

/// The largest batch.
const BATCH_MAX: usize = 16;
/// So many batches are played out.
const TRIED: usize = 16;
/// They are played out over so many objectives.
const HORIZON: f64 = 2.0;
/// Of the requests that could still be in time later, so many are taken to be.
const LATER: f64 = 0.5;
/// The size of a batch later.
const LATER_SIZE: usize = 4;

/// It knows every alone time, and maybe who will come and when.
#[derive(Clone, Debug)]
pub struct Clairvoyant {
    growth: Growth,
    /// By request. Those that have not come yet are looked at only if it foresees.
    items: Vec<Item>,
    foresees: bool,
    waiting: Vec<usize>,
    is_idle: bool,
    horizon: Span,
}

/// What is known of a request.
#[derive(Clone, Copy, Debug)]
struct Item {
    arrival: Time,
    deadline: Time,
    alone: Span,
}

impl Clairvoyant {
    /// For a scenario of one model with sizes. If it `foresees`, it knows the arrivals too.
    pub fn new(scenario: &Scenario, foresees: bool) -> Self {
        let load = &scenario.loads[0];
        let sizes = load.sizes.as_ref().expect("a clairvoyant is asked where lengths differ");
        let mut stream = load.stream(scenario.seed, 0);
        let items = (0..scenario.end.requests() as usize).map(|at| {
            let arrival = stream.next_arrival();
            let alone = sizes.requests[at % sizes.requests.len()].0;
            Item { arrival, deadline: arrival + load.slo(), alone }
        });
        Self {
            growth: sizes.growth,
            items: items.collect(),
            foresees,
            waiting: Vec::new(),
            is_idle: false,
            horizon: Span((HORIZON * load.slo().0 as f64) as u64),
        }
    }

    /// When a batch ends that starts at `now`.
    fn end(&self, now: Time, batch: &[usize]) -> Time {
        let longest = batch.iter().map(|&at| self.items[at].alone).max().unwrap_or(Span::ZERO);
        now + self.growth.latency(batch.len(), longest)
    }

    fn is_hopeless(&self, now: Time, at: usize) -> bool {
        now + self.growth.latency(1, self.items[at].alone) > self.items[at].deadline
    }

    /// Batches that are in time as a whole, the ones worth most first: for each longest request and
    /// size, those that cannot wait.
    fn candidates(&self, now: Time, waiting: &[usize]) -> Vec<(f64, Vec<usize>)> {
        let mut by_length = waiting.to_vec();
        by_length.sort_by_key(|&at| (self.items[at].alone, at));
        let mut candidates = Vec::new();
        for (count, &longest) in by_length.iter().enumerate() {
            for size in 1..=BATCH_MAX.min(count + 1) {
                let takes = self.growth.latency(size, self.items[longest].alone);
                let in_time = by_length[..=count].iter().copied();
                let in_time = in_time.filter(|&at| now + takes <= self.items[at].deadline);
                let gain = |at: usize| {
                    let later = self.growth.latency(LATER_SIZE, self.items[at].alone);
                    if now + takes + later <= self.items[at].deadline { LATER } else { 1.0 }
                };
                let mut batch: Vec<(f64, usize)> = in_time.map(|at| (gain(at), at)).collect();
                if batch.len() < size || self.items[longest].deadline < now + takes {
                    continue;
                }
                let key = |at: usize| (self.items[at].deadline, at);
                batch.sort_by(|one, other| {
                    other.0.total_cmp(&one.0).then(key(one.1).cmp(&key(other.1)))
                });
                batch.truncate(size);
                let worth = batch.iter().map(|&(gain, _)| gain).sum::<f64>() / takes.0 as f64;
                candidates.push((worth, batch.into_iter().map(|(_, at)| at).collect()));
            }
        }
        candidates.sort_by(|one: &(f64, Vec<usize>), other| other.0.total_cmp(&one.0));
        candidates
    }

    /// How many are in time before the horizon if this batch goes now, and then always the one
    /// worth most.
    fn play(&self, now: Time, batch: &[usize]) -> f64 {
        let (mut now, until) = (now, now + self.horizon);
        let mut waiting = self.waiting.clone();
        let mut next = self.items.partition_point(|item| item.arrival <= now);
        let (mut batch, mut in_time) = (batch.to_vec(), 0.0);
        loop {
            let end = self.end(now, &batch);
            // A batch that ends beyond counts for as much of it as is before.
            let share = ((until - now).0 as f64 / (end - now).0 as f64).min(1.0);
            let good = batch.iter().filter(|&&at| end <= self.items[at].deadline).count();
            in_time += share * good as f64;
            waiting.retain(|at| !batch.contains(at));
            now = end;
            loop {
                while self.foresees && self.items.get(next).is_some_and(|item| item.arrival <= now)
                {
                    waiting.push(next);
                    next += 1;
                }
                waiting.retain(|&at| !self.is_hopeless(now, at));
                match self.items.get(next).filter(|_| self.foresees && waiting.is_empty()) {
                    Some(item) => now = item.arrival,
                    None => break,
                }
            }
            if now >= until || waiting.is_empty() {
                return in_time;
            }
            match self.candidates(now, &waiting).into_iter().next() {
                Some((_, best)) => batch = best,
                None => return in_time,
            }
        }
    }

    fn choose(&self, now: Time) -> Vec<usize> {
        let mut candidates = self.candidates(now, &self.waiting);
        candidates.truncate(TRIED);
        let played = candidates.into_iter().map(|(_, batch)| (self.play(now, &batch), batch));
        // Of equally good ones the first, which is worth most.
        let best = played.reduce(|best, other| if other.0 > best.0 { other } else { best });
        best.map(|(_, batch)| batch).unwrap_or_default()
    }

    fn request(&self, at: usize) -> Request {
        let Item { arrival, deadline, .. } = self.items[at];
        Request { deadline, id: RequestId(at as u64), arrival, kind: Default::default() }
    }
}

impl Dispatch for Clairvoyant {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions) {
        match event {
            Event::Arrive { request, .. } => self.waiting.push(request.0 as usize),
            Event::Join { .. } | Event::Done { .. } => self.is_idle = true,
            Event::AddModel { .. } | Event::Wakeup => {}
            other => unreachable!("{other:?} is not in the scenarios that it is asked for"),
        }
        let hopeless = |&at: &usize| self.is_hopeless(now, at);
        let gone: Vec<usize> = self.waiting.iter().copied().filter(hopeless).collect();
        self.waiting.retain(|at| !gone.contains(at));
        gone.into_iter()
            .for_each(|at| actions.drop(ModelId(0), self.request(at), DropReason::Overload));
        if !self.is_idle || self.waiting.is_empty() {
            return;
        }
        let batch = self.choose(now);
        if batch.is_empty() {
            return;
        }
        let latency = self.end(now, &batch) - now;
        self.waiting.retain(|at| !batch.contains(at));
        self.is_idle = false;
        let (first, size) = (actions.requests.len() as u32, batch.len() as u32);
        actions.requests.extend(batch.iter().map(|&at| self.request(at)));
        let (executor, model) = (ExecutorId(0), ModelId(0));
        actions.list.push(Action::Run { executor, model, start: now, latency, first, size });
    }

    fn next_wakeup(&self) -> Time {
        let hopeless = |&at: &usize| {
            let Item { deadline, alone, .. } = self.items[at];
            (deadline - self.growth.latency(1, alone)).next()
        };
        self.waiting.iter().map(hopeless).min().unwrap_or(Time::NEVER)
    }
}
