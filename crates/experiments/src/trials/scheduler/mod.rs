//! A pool under an offered load, to see how much it carries: real threads and clocks, emulated
//! executors and requests without a network or a payload (Symphony 5.5).

mod executors;
mod offered;
mod stalls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fermata_core::{ClassId, ExecutorId, ModelId, Profile, Span, Time};
use fermata_dispatch::{Action, Actions, Hub, ModelSpec, Network, Rules, Shard};
use fermata_scheduler::{Bell, RankSide, Room, ShardEnd, link};
use hdrhistogram::Histogram;

use self::executors::Emulated;
use self::offered::Offered;

pub use self::stalls::{Stalls, stalls};

/// What is tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// How the pool decides.
    pub rules: Rules,
    /// How many threads have models.
    pub model_threads: usize,
    /// How many models there are.
    pub models: usize,
    /// How many executors.
    pub executors: usize,
    /// Requests a second, of all models together; each has the same share.
    pub rate: f64,
    /// How long requests come.
    pub length: Span,
    /// Whether threads that have nothing to do keep looking, in place of sleeping.
    pub spin: bool,
    /// Whether each thread stays on a core of its own.
    pub pin: bool,
    /// Of the requests.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Requests that came.
    pub offered: u64,
    /// Those that were sent off in time.
    pub sent: u64,
    /// Those that were not.
    pub dropped: u64,
    /// Batches.
    pub batches: u64,
    /// The most that waited at once.
    pub waiting_max: u64,
    /// How long after a batch could have been decided it was, in nanoseconds.
    pub lag: Histogram<u64>,
}

/// Batches are no larger than this: with more, a request would cost less.
pub const MAX_BATCH: usize = 16;
/// How busy the executors are with such batches.
const BUSY: f64 = 0.8;
/// What a batch costs whatever its size, in requests: ResNet50's on a 1080Ti.
const FIXED: f64 = 5.072 / 1.053;
/// The least SLO.
const SLO_MIN: f64 = 0.025;
/// A thread is behind if requests have waited for it for this part of their SLO.
const BEHIND: u64 = 4;
/// So many requests come in a step of virtual time.
const STEP: f64 = 24.0;
/// A turn takes no more requests than this, however many have come.
const TURN: usize = 512;

impl Trial {
    /// The model of all: as fast as the executors need to be for the rate, and an SLO that leaves
    /// time to gather a batch, to wait and to run.
    pub fn spec(&self) -> ModelSpec {
        let cost = BUSY * self.executors as f64 / self.rate;
        let slope = cost * MAX_BATCH as f64 / (MAX_BATCH as f64 + FIXED);
        let longest = cost * MAX_BATCH as f64;
        let gathering = MAX_BATCH as f64 * self.models as f64 / self.rate;
        let slo = Span::from_secs((2.0 * (longest + gathering)).max(SLO_MIN));
        let latencies = (1..=MAX_BATCH).map(|size| Span::from_secs(slope * (size as f64 + FIXED)));
        let profile = Profile::from_table(latencies).expect("rising and above zero");
        ModelSpec::uniform(slo, profile)
    }

    /// Runs it on threads, against the clock.
    pub fn run(&self) -> Outcome {
        let hub_bell = Arc::new(Bell::default());
        let (mut rank, mut executors, mut sides) = self.parts(&hub_bell);
        let (done, working) = (AtomicBool::new(false), AtomicUsize::new(sides.len()));
        let began = Instant::now();
        let clock = || Time(began.elapsed().as_nanos() as u64);
        thread::scope(|scope| {
            for (at, side) in sides.iter_mut().enumerate() {
                let (done, working, hub_bell) = (&done, &working, &hub_bell);
                scope.spawn(move || {
                    if self.pin {
                        stay_on_core(at + 1);
                    }
                    side.drive(self.spin, &clock);
                    if working.fetch_sub(1, Ordering::AcqRel) == 1 {
                        done.store(true, Ordering::Release);
                        hub_bell.ring();
                    }
                });
            }
            if self.pin {
                stay_on_core(0);
            }
            while !done.load(Ordering::Acquire) {
                let now = clock();
                if rank.turn(now, &mut executors) || self.spin {
                    continue;
                }
                let next = rank.next_wakeup().min(executors.next());
                idle(&hub_bell, next, &clock, || rank.has_work() || done.load(Ordering::Acquire));
            }
        });
        gather(sides)
    }

    /// Runs it on this thread, in steps of virtual time: the same instructions each time. After
    /// each step `look` is told how many requests have come.
    pub fn run_in_steps(&self, mut look: impl FnMut(u64)) -> Outcome {
        let step = self.step();
        let (mut rank, mut executors, mut sides) = self.parts(&Arc::default());
        let mut now = Time::START;
        while sides.iter().any(|side| !side.is_done()) {
            for side in &mut sides {
                side.turn(now, &|| now);
            }
            rank.turn(now, &mut executors);
            now += step;
            look(sides.iter().map(|side| side.came).sum());
        }
        gather(sides)
    }

    /// As long as a turn takes under load; but a batch takes some twenty of them, or they would
    /// wait for the steps.
    fn step(&self) -> Span {
        let turn = Span::from_secs(STEP / self.rate);
        let spec = self.spec();
        let longest = spec.profiles.iter().flatten().map(|p| p.latency(MAX_BATCH)).max();
        turn.min(Span(longest.unwrap_or(Span::MAX).0 / 20)).max(Span(1))
    }

    fn parts(&self, hub_bell: &Arc<Bell>) -> (RankSide, Emulated, Vec<ModelSide>) {
        let spec = self.spec();
        let shards = self.model_threads.clamp(1, self.models);
        let mut hub = Hub::new(Network::default());
        for executor in (0..self.executors as u32).map(ExecutorId) {
            hub.join(Time::START, executor, ClassId(0));
        }
        let (mut sides, mut ends) = (Vec::new(), Vec::new());
        for index in 0..shards {
            let models = (self.models - index).div_ceil(shards);
            let room = Room { index, shards, models, classes: 1, executors: self.executors };
            let bell = Arc::new(Bell::default());
            let (mut end, hub_end) = link(&room, bell.clone(), hub_bell.clone());
            let mut shard = Shard::new(self.rules, Network::default(), index, shards, 1);
            for model in (0..models).map(|place| ModelId((place * shards + index) as u32)) {
                shard.add(Time::START, model, &spec, &mut end);
            }
            let share = self.rate * models as f64 / self.models as f64;
            let seed = self.seed + index as u64;
            sides.push(ModelSide {
                shard,
                end,
                bell,
                offered: Offered::new(share, index, shards, models, seed),
                until: Time::START + self.length,
                slo: spec.slo,
                behind: Span(spec.slo.0 / BEHIND),
                actions: Actions::default(),
                last: Time::START,
                came: 0,
                sent: 0,
                dropped: 0,
                batches: 0,
                waiting_max: 0,
                lag: histogram(),
            });
            ends.push(hub_end);
        }
        (RankSide::new(hub, ends), Emulated::new(self.executors), sides)
    }
}

/// A model thread.
#[derive(Debug)]
struct ModelSide {
    shard: Shard,
    end: ShardEnd,
    bell: Arc<Bell>,
    offered: Offered,
    until: Time,
    slo: Span,
    actions: Actions,
    /// Requests that come to be taken later than this are refused at the door.
    behind: Span,
    /// The last turn's moment.
    last: Time,
    came: u64,
    sent: u64,
    dropped: u64,
    batches: u64,
    waiting_max: u64,
    lag: Histogram<u64>,
}

impl ModelSide {
    fn drive(&mut self, spin: bool, clock: &impl Fn() -> Time) {
        while !self.is_done() {
            if self.turn(clock(), clock) || spin {
                continue;
            }
            let next = self.shard.next_wakeup().min(self.offered.next());
            idle(&self.bell.clone(), next, clock, || self.end.has_work());
        }
    }

    /// All that came has left, and no more will come.
    fn is_done(&self) -> bool {
        self.offered.next() >= self.until && self.sent + self.dropped == self.came
    }

    fn turn(&mut self, now: Time, clock: &impl Fn() -> Time) -> bool {
        if let Some(signal) = self.end.new_signal() {
            self.shard.set_signal(signal);
        }
        let mut requests = 0;
        while self.offered.next() <= now && self.offered.next() < self.until && requests < TURN {
            requests += 1;
            let (model, request) = self.offered.take(self.slo);
            if now - request.arrival > self.behind {
                // Who is taken this late would only go in a small batch, if at all, and cost the
                // more: a thread that has fallen behind would never catch up.
                self.dropped += 1;
                continue;
            }
            // The machines' time does not go back, even for those that were taken late.
            let at = request.arrival.max(self.last);
            self.shard.arrive(at, model, request, &mut self.actions, &mut self.end);
        }
        self.came += requests as u64;
        self.last = now;
        let mut busy = requests > 0;
        while let Some(promise) = self.end.next_promise() {
            busy = true;
            self.shard.granted(now, promise, &mut self.actions, &mut self.end);
            let due = promise.ready.max(promise.grant.free_at);
            self.lag.saturating_record((clock() - due).0);
        }
        if self.shard.next_wakeup() <= now {
            busy = true;
            self.shard.wake(now, &mut self.actions, &mut self.end);
        }
        if busy {
            self.end.ring();
            self.count();
        }
        busy
    }

    fn count(&mut self) {
        for action in &self.actions.list {
            match action {
                Action::Drop { .. } => self.dropped += 1,
                Action::Run { size, .. } => {
                    self.sent += u64::from(*size);
                    self.batches += 1;
                }
                Action::Limit { .. } => {}
                Action::Preempt { .. } => unreachable!("these policies do not"),
            }
        }
        self.actions.clear();
        self.waiting_max = self.waiting_max.max(self.came - self.sent - self.dropped);
    }
}

/// Where that cannot be done it stays where the kernel puts it.
fn stay_on_core(at: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(&core) = cores.get(at) {
        core_affinity::set_for_current(core);
    }
}

/// It takes longer to fall asleep and be woken than this.
const WORTH_SLEEPING: Span = Span(50_000);

/// Nothing to do until `next`, unless somebody rings.
fn idle(bell: &Bell, next: Time, clock: &impl Fn() -> Time, has_work: impl Fn() -> bool) {
    let began = clock();
    while clock() - began < WORTH_SLEEPING {
        if has_work() || next <= clock() {
            return;
        }
        std::hint::spin_loop();
    }
    let left = next - clock();
    if left > WORTH_SLEEPING {
        let longest =
            (next != Time::NEVER).then(|| Duration::from_nanos((left - WORTH_SLEEPING).0));
        bell.sleep(longest, has_work);
    }
}

fn gather(sides: Vec<ModelSide>) -> Outcome {
    let mut outcome =
        Outcome { offered: 0, sent: 0, dropped: 0, batches: 0, waiting_max: 0, lag: histogram() };
    for side in sides {
        outcome.offered += side.came;
        outcome.sent += side.sent;
        outcome.dropped += side.dropped;
        outcome.batches += side.batches;
        outcome.waiting_max += side.waiting_max;
        outcome.lag.add(&side.lag).expect("both have the same bounds");
    }
    outcome
}

/// By how much `measure` grows when so many requests wait for the models of a trial, spread evenly.
pub fn memory(trial: &Trial, waiting: usize, measure: impl Fn() -> u64) -> u64 {
    // Executors are promised, but nobody takes the promises: with an SLO of years all wait.
    let trial = Trial { model_threads: 1, rate: 1.0, ..trial.clone() };
    let (mut rank, mut executors, mut sides) = trial.parts(&Arc::default());
    let side = &mut sides[0];
    let before = measure();
    for came in 0..waiting {
        let (model, request) = side.offered.take(Span::from_secs(1e9));
        let at = request.arrival;
        side.shard.arrive(at, model, request, &mut side.actions, &mut side.end);
        if came % TURN == 0 {
            rank.turn(at, &mut executors);
        }
    }
    measure().saturating_sub(before)
}

/// Up to a minute, in nanoseconds.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("bounds that make sense")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(rules: Rules) -> Trial {
        Trial {
            rules,
            model_threads: 2,
            models: 5,
            executors: 20,
            rate: 1e5,
            length: Span::from_ms(200.0),
            spin: false,
            pin: false,
            seed: 3,
        }
    }

    #[test]
    fn everyone_who_came_leaves_once_on_threads_and_in_steps() {
        for rules in [Rules::DEFERRED, Rules::FERMATA] {
            for outcome in [trial(rules).run(), trial(rules).run_in_steps(|_| ())] {
                assert!((18_000..22_000).contains(&outcome.offered), "{}", outcome.offered);
                assert_eq!(outcome.sent + outcome.dropped, outcome.offered);
                assert!(outcome.batches > 0);
            }
        }
    }

    #[test]
    fn steps_give_the_same_each_time() {
        let [once, again] = [(), ()].map(|()| trial(Rules::FERMATA).run_in_steps(|_| ()));
        assert_eq!((once.sent, once.batches, once.lag), (again.sent, again.batches, again.lag));
    }

    #[test]
    fn more_threads_than_models_lose_nobody() {
        let outcome = Trial { model_threads: 9, models: 2, ..trial(Rules::DEFERRED) }.run();
        assert_eq!(outcome.sent + outcome.dropped, outcome.offered);
    }

    #[test]
    fn many_more_models_than_executors_are_added() {
        let outcome = Trial { models: 20_000, ..trial(Rules::FERMATA) }.run();
        assert_eq!(outcome.sent + outcome.dropped, outcome.offered);
    }

    #[test]
    fn a_waiting_request_needs_no_more_than_its_place_in_the_queue() {
        for rules in [Rules::DEFERRED, Rules::FERMATA] {
            assert_eq!(memory(&trial(rules), 50_000, || 7), 0, "it ends");
        }
    }
}
