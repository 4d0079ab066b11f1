//! Clockwork: batches are planned a little ahead of a free executor, the most urgent candidate
//! first.
//!
//! There is a candidate for every model and batch size `b`: its first `b` requests, with `d - e(b)`
//! as its latest executable moment, where `d` is the head's deadline and `e` the estimate. When an
//! executor will be free within [`HORIZON`], it is given the candidate with the earliest latest
//! moment among those that can still be in time there (Symphony 2.2). Of one model's candidates
//! that is the largest that fits, so one candidate a model is looked at; but the choice is made
//! early and without regard to efficiency, so that batches are small. Batch sizes are arbitrary, as
//! Symphony's authors gave it, not powers of two.
//!
//! Model loading, and workers that refuse what comes too late, are not here.

use fermata_core::{ClassId, ExecutorId, ModelId, Profile, Span, Time};

use super::Strategy;
use super::pool::{Model, Pool};
use crate::event::{Actions, Network};
use crate::min_tree::MinTree;

/// How long before an executor is free its next batch is chosen.
const HORIZON: Span = Span(10_000_000);
/// Taken off every deadline, as a reserve for what the estimates do not see.
const BUFFER: Span = Span(5_000_000);
/// An estimate is the 99th percentile of this many runs: the longest of them.
const RUNS: usize = 10;

/// The estimates, and which executors come free when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clockwork {
    models: Vec<Outlook>,
    classes: Vec<Horizon>,
}

/// What is expected of one model.
#[derive(Clone, Debug, Default)]
struct Outlook {
    /// What comes off its deadlines: [`BUFFER`], or half of what the SLO leaves beside a batch of
    /// one, if that is less. Taking all of 5 ms from a tight SLO would leave a model that can never
    /// be served.
    buffer: Span,
    /// By class.
    estimates: Vec<Option<Estimates>>,
}

/// How long batches take on one class of executor.
#[derive(Clone, Debug)]
struct Estimates {
    /// By size less one.
    runs: Vec<Runs>,
    /// By size less one; made monotone, so that the largest batch that fits is found by bisection.
    expected: Vec<Span>,
}

/// The last runs of one batch size; before the first, its profile.
#[derive(Clone, Copy, Debug)]
struct Runs {
    latest: [Span; RUNS],
    count: usize,
}

/// The executors of one class that may be given a batch.
#[derive(Clone, Debug, Default)]
struct Horizon {
    /// Those that are free later than the horizon, by when they are free.
    beyond: MinTree,
    /// Those within it; idle ones stand at the beginning of time, so that low ids are used first.
    within: MinTree,
}

impl Clockwork {
    /// The largest batch that would be in time on an executor that is free at `free_at`, and its
    /// latest executable moment.
    fn candidate(
        &self,
        now: Time,
        network: Network,
        (id, model): (ModelId, &Model),
        (class, free_at): (ClassId, Time),
    ) -> Option<(Time, usize)> {
        let outlook = &self.models[id.index()];
        let expected = &outlook.estimates[class.index()].as_ref()?.expected;
        let due = model.due(model.queue.head()?) - outlook.buffer;
        let most = expected.len().min(model.queue.len());
        let in_time =
            |size: usize| (now + network.lead(size)).max(free_at) + expected[size - 1] <= due;
        let (mut size, mut above) = (0, most + 1);
        while above - size > 1 {
            // All that waits fits more often than not.
            let middle = if above > most { most } else { size.midpoint(above) };
            if in_time(middle) {
                size = middle
            } else {
                above = middle
            }
            if size == most {
                break;
            }
        }
        (size > 0).then(|| (due - expected[size - 1], size))
    }

    /// The best candidate for any executor within the horizon.
    fn choose(&self, now: Time, pool: &Pool) -> Option<((Time, usize), ModelId, ExecutorId)> {
        let choices = (0..).zip(&self.classes).filter_map(|(class, horizon)| {
            let executor = ExecutorId(horizon.within.first()? as u32);
            let place = (ClassId(class), horizon.within.earliest());
            let (key, model) = pool.pick_for(ClassId(class), |id, model, _| {
                self.candidate(now, pool.network, (id, model), place)
            })?;
            Some((key, model, executor))
        });
        choices.min()
    }

    fn advance_horizon(&mut self, now: Time) {
        for horizon in &mut self.classes {
            while horizon.beyond.earliest() <= now + HORIZON {
                let Some(executor) = horizon.beyond.first() else { break };
                horizon.within.set(executor, horizon.beyond.earliest());
                horizon.beyond.clear(executor);
            }
        }
    }

    fn update_margin(&self, pool: &mut Pool, model: ModelId) {
        let outlook = &self.models[model.index()];
        let shortest = outlook.estimates.iter().flatten().map(|estimates| estimates.expected[0]);
        let shortest = shortest.min().unwrap_or(Span::MAX);
        pool.set_margin(model, pool.network.lead(1) + shortest + outlook.buffer);
    }
}

impl Strategy for Clockwork {
    fn add_model(&mut self, pool: &mut Pool, model: ModelId) {
        let Some(state) = pool.model(model) else { return };
        if model.index() >= self.models.len() {
            self.models.resize_with(model.index() + 1, Outlook::default);
        }
        let spare = state.slo - pool.network.resp - state.shortest();
        let estimates =
            state.lanes.iter().map(|lane| Some(Estimates::new(&lane.as_ref()?.profile)));
        self.models[model.index()] =
            Outlook { buffer: BUFFER.min(Span(spare.0 / 2)), estimates: estimates.collect() };
        self.update_margin(pool, model);
    }

    fn measure(&mut self, now: Time, pool: &mut Pool, executor: ExecutorId) {
        let Some((model, requests)) = pool.executors.running(executor) else { return };
        let Some(state) = pool.executors.get(executor) else { return };
        let Some(booking) = state.running else { return };
        let estimates = self.models[model.index()].estimates.get_mut(state.class.index());
        let Some(estimates) = estimates.and_then(Option::as_mut) else { return };
        if estimates.measure(requests.len(), now - booking.start) {
            self.update_margin(pool, model);
        }
    }

    fn executor_changed(&mut self, pool: &Pool, executor: ExecutorId) {
        let classes = pool.executors.classes().count();
        if classes > self.classes.len() {
            self.classes.resize_with(classes, Horizon::default);
        }
        let state = pool.executors.get(executor);
        let open = state.filter(|state| !state.leaving && state.next.is_none());
        for (class, horizon) in (0..).zip(&mut self.classes) {
            let (mut within, mut beyond) = (Time::NEVER, Time::NEVER);
            match open.filter(|state| state.class == ClassId(class)) {
                Some(state) if state.running.is_some() => beyond = state.free_at(),
                Some(_) => within = Time::START,
                None => {}
            }
            horizon.within.grow(executor.index() + 1);
            horizon.beyond.grow(executor.index() + 1);
            horizon.within.set(executor.index(), within);
            horizon.beyond.set(executor.index(), beyond);
        }
    }

    fn dispatch(&mut self, now: Time, pool: &mut Pool, actions: &mut Actions) {
        self.advance_horizon(now);
        if pool.waiting().is_empty() {
            return;
        }
        while let Some(((_, size), model, executor)) = self.choose(now, pool) {
            let class = pool.executors.get(executor).expect("it was chosen").class;
            let estimates = self.models[model.index()].estimates[class.index()].as_ref();
            let expected = estimates.expect("the model runs on this class").expected[size - 1];
            pool.start(now, (model, executor), size, expected, actions);
            self.executor_changed(pool, executor);
            self.advance_horizon(now);
        }
    }

    fn next_wakeup(&self, pool: &Pool) -> Time {
        let earliest = self.classes.iter().map(|horizon| horizon.beyond.earliest()).min();
        match earliest.filter(|_| !pool.waiting().is_empty()) {
            Some(free_at) if free_at != Time::NEVER => free_at - HORIZON,
            _ => Time::NEVER,
        }
    }
}

impl Estimates {
    fn new(profile: &Profile) -> Self {
        let none = Runs { latest: [Span::ZERO; RUNS], count: 0 };
        let expected: Vec<Span> = (1..=profile.max_batch()).map(|b| profile.latency(b)).collect();
        // The profile stands in as the first run, and leaves with the eleventh.
        let seed = |&latency: &Span| none.with(latency);
        Self { runs: expected.iter().map(seed).collect(), expected }
    }

    /// Notes a run; true if an estimate changed.
    fn measure(&mut self, size: usize, took: Span) -> bool {
        let Some(runs) = self.runs.get_mut(size - 1) else { return false };
        let before = runs.longest();
        *runs = runs.with(took);
        if runs.longest() == before {
            return false;
        }
        let mut longest = if size > 1 { self.expected[size - 2] } else { Span::ZERO };
        for (expected, runs) in self.expected.iter_mut().zip(&self.runs).skip(size - 1) {
            longest = longest.max(runs.longest());
            *expected = longest;
        }
        true
    }
}

impl Runs {
    fn with(mut self, took: Span) -> Self {
        self.latest[self.count % RUNS] = took;
        self.count += 1;
        self
    }

    fn longest(&self) -> Span {
        self.latest.iter().copied().max().unwrap_or(Span::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Central;
    use super::super::script::Script;
    use super::*;

    fn script() -> Script {
        Script::new(Central::new(Clockwork::default(), Network::default()))
    }

    #[test]
    fn a_second_batch_is_planned_within_the_horizon_and_no_third() {
        let mut script = script();
        script.model(0, 1.0, 5.0, 100.0).join(0);
        script.arrive(0.0, 0, 1).arrive(1.0, 0, 1).arrive(2.0, 0, 1).arrive(3.0, 0, 1);
        // The second starts when the first ends; the others wait for a place.
        script.expect(&["0 x0 m0 r0", "6 x0 m0 r1"]);
        script.until(40.0);
        script.expect(&["12 x0 m0 r2 r3"]);
    }

    #[test]
    fn an_executor_beyond_the_horizon_is_waited_for() {
        let mut script = script();
        script.model(0, 1.0, 19.0, 100.0).join(0);
        script.arrive(0.0, 0, 1).arrive(5.0, 0, 1).arrive(9.0, 0, 1).until(9.5);
        script.expect(&["0 x0 m0 r0"]);
        assert_eq!(script.next_wakeup(), Time::from_ms(10.0));
        script.until(11.0);
        script.expect(&["20 x0 m0 r1 r2"]);
    }

    #[test]
    fn the_earliest_latest_moment_goes_first() {
        let mut script = script();
        script.model(0, 1.0, 19.0, 100.0).model(1, 1.0, 5.0, 80.0).join(0);
        script.arrive(0.0, 0, 1).arrive(1.0, 0, 1).arrive(2.0, 1, 1).until(12.0);
        // 101 - 20 - 5 = 76 against 82 - 6 - 5 = 71.
        script.expect(&["0 x0 m0 r0", "20 x0 m1 r2"]);
    }

    #[test]
    fn the_buffer_leaves_a_tight_slo_its_half() {
        let mut script = script();
        script.model(0, 1.0, 9.0, 14.0).model(1, 1.0, 9.0, 40.0).join(0);
        script.arrive(0.0, 1, 2).arrive(1.0, 0, 1).until(30.0);
        // Two of the four spare milliseconds are buffer: it is hopeless after 1 + 14 - 2 - 10.
        script.expect(&["0 x0 m1 r0", "10 x0 m1 r1", "3.000001 drop r2"]);
    }

    #[test]
    fn the_estimate_is_the_longest_of_the_last_ten() {
        let profile = Profile::linear(Span(10), Span(0), Span(30)).unwrap();
        let mut estimates = Estimates::new(&profile);
        assert!(estimates.measure(1, Span(25)));
        assert_eq!(estimates.expected, [Span(25), Span(25), Span(30)]);
        for _ in 0..9 {
            assert!(!estimates.measure(1, Span(8)));
        }
        assert!(estimates.measure(1, Span(8)), "the long run is forgotten");
        assert_eq!(estimates.expected, [Span(8), Span(20), Span(30)]);
    }
}
