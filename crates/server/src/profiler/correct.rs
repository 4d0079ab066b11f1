//! Keeps a profile true while serving: what executions really take, against what they should.
//!
//! A slow neighbour, a throttled clock or a profile taken at a bad moment show in every batch. The
//! correction covers all but three of the last 64 executions (their 95th percentile), by the
//! cheaper of two explanations: all batches take a factor longer, or all take the same time longer.
//! Told the time, never asking: same executions, same profiles.
//!
//! Where the median is planned with it is simpler: the median of the last 64 ratios is the factor.
//! A few slow batches in a row are nothing unusual there, and what waits on a device for others is
//! not part of what a batch takes.

use std::collections::VecDeque;

use fermata_core::{Profile, Span, Time};

use super::Planned;

/// How many executions are remembered.
const WINDOW: usize = 64;
/// For how long: of a model that is seldom asked for, old executions tell nothing of its neighbours
/// now.
const MEMORY: Span = Span(10_000_000_000);
/// So many executions in a row that were all slower than expected by this much are a new time: what
/// was before it tells nothing.
const SHIFT: usize = 4;
const SHIFT_MIN: f64 = 1.05;
/// A single execution changes nothing, and three of the whole window do not.
const OUTLIERS: usize = 3;
/// A profile that was measured at a bad moment may be too long by this much.
const FACTOR_MIN: f64 = 0.5;
/// Slower than this is a broken device rather than a busy one.
const FACTOR_MAX: f64 = 8.0;
/// The correction ends where a request alone would need this share of the SLO: were everything
/// dropped as hopeless, nobody would find out when the device is fast again. The margin may take an
/// eighth of it, and a busy machine as much until a request is decided about.
const SLO_SHARE: f64 = 0.75;
/// A profile that turned out too short makes requests late: this is told soon, though it be little,
const RISE_MIN: f64 = 0.01;
const RISE_INTERVAL: Span = Span(10_000_000);
/// and one that is too long only makes batches smaller: this is told at leisure.
const FALL_MIN: f64 = 0.05;
const FALL_INTERVAL: Span = Span(250_000_000);
/// A median that moves is told in either direction alike.
const MEDIAN_INTERVAL: Span = Span(100_000_000);

/// The correction of one model's profile on one class of executors.
#[derive(Clone, Debug)]
pub struct Corrector {
    /// As it was measured.
    base: Profile,
    /// As it was last published.
    published: Profile,
    correction: Correction,
    published_at: Option<Time>,
    factor_max: f64,
    planned: Planned,
    recent: VecDeque<Execution>,
}

#[derive(Clone, Copy, Debug)]
struct Execution {
    at: Time,
    expected: Span,
    observed: Span,
}

/// How to get from a measured latency to a real one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Correction {
    factor: f64,
    overhead: Span,
}

impl Correction {
    const NONE: Self = Self { factor: 1.0, overhead: Span::ZERO };

    fn apply(self, latency: Span) -> Span {
        Span((latency.0 as f64 * self.factor).round() as u64) + self.overhead
    }
}

impl Corrector {
    /// Begins with a measured profile of a model with this SLO.
    pub fn new(base: Profile, slo: Span, planned: Planned) -> Self {
        let room = SLO_SHARE * slo.0 as f64 / base.shortest().0 as f64;
        Self {
            published: base.clone(),
            base,
            correction: Correction::NONE,
            published_at: None,
            factor_max: room.clamp(1.0, FACTOR_MAX),
            planned,
            recent: VecDeque::with_capacity(WINDOW),
        }
    }

    /// Takes note that a batch of `size` ended at `now` after running for `observed`. Gives the
    /// profile with which to go on, where it should change.
    pub fn observe(&mut self, now: Time, size: usize, observed: Span) -> Option<Profile> {
        let expected = self.base.latency(size);
        if expected == Span::MAX {
            return None;
        }
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(Execution { at: now, expected, observed });
        while self.recent.front().is_some_and(|first| first.at + MEMORY < now) {
            self.recent.pop_front();
        }
        if self.planned == Planned::Tail {
            self.forget_before_shift();
        }
        let since = self.published_at.map_or(Span::MAX, |at| now - at);
        if since < RISE_INTERVAL {
            return None;
        }
        let correction = self.estimate()?;
        let change = self.change_to(correction);
        let due = match self.planned {
            Planned::Median => change.abs() >= RISE_MIN && since >= MEDIAN_INTERVAL,
            Planned::Tail if change > 0.0 => change >= RISE_MIN,
            Planned::Tail => change <= -FALL_MIN && since >= FALL_INTERVAL,
        };
        if !due {
            return None;
        }
        let table = (1..=self.base.max_batch())
            .map(|size| correction.apply(self.base.latency(size)).max(Span(1)));
        self.published = Profile::from_table(table)
            .expect("a corrected profile has the sizes of the measured one");
        (self.correction, self.published_at) = (correction, Some(now));
        Some(self.published.clone())
    }

    /// The profile to go by.
    pub fn profile(&self) -> &Profile {
        &self.published
    }

    /// How much longer than measured a request alone is expected to take, as a ratio.
    pub fn factor(&self) -> f64 {
        self.published.shortest().0 as f64 / self.base.shortest().0 as f64
    }

    /// Without this, the fast executions of before would hide all but the slowest of now.
    fn forget_before_shift(&mut self) {
        let slower = |execution: &Execution| {
            let expected = self.correction.apply(execution.expected).0 as f64;
            execution.observed.0 as f64 > SHIFT_MIN * expected
        };
        let before = self.recent.len().saturating_sub(SHIFT);
        if before > 0 && self.recent.iter().skip(before).all(slower) {
            self.recent.drain(..before);
        }
    }

    /// The cheapest correction that covers what was observed, less the outliers. `None` where too
    /// little is known.
    fn estimate(&self) -> Option<Correction> {
        let ratio = |execution: &Execution| {
            execution.observed.0 as f64 / execution.expected.0.max(1) as f64
        };
        let count = self.recent.len();
        if count < 2 {
            // One execution may be an outlier upwards; that the bad times are over it may well
            // tell.
            let factor = ratio(self.recent.front()?).max(1.0);
            let fallen = Correction { factor, overhead: Span::ZERO };
            return (self.change_to(fallen) < 0.0).then_some(fallen);
        }
        let outliers = match self.planned {
            Planned::Tail => 1 + (OUTLIERS - 1) * count / WINDOW,
            Planned::Median => count / 2,
        };
        // That the measured profile is too long is believed of a whole window only.
        let least = if count == WINDOW { FACTOR_MIN } else { 1.0 };
        let factor = largest_but(outliers, self.recent.iter().map(ratio));
        let factor =
            Correction { factor: factor.clamp(least, self.factor_max), overhead: Span::ZERO };
        if self.planned == Planned::Median {
            return Some(factor);
        }
        let late =
            self.recent.iter().map(|execution| (execution.observed - execution.expected).0 as f64);
        let room = (self.factor_max - 1.0) * self.base.shortest().0 as f64;
        let overhead = largest_but(outliers, late).min(room);
        let overhead = Correction { factor: 1.0, overhead: Span(overhead.round() as u64) };
        // A few executions, or those of one size, cannot tell the two apart. Then it is the factor,
        // which neighbours mostly are.
        let cost = |correction: Correction| -> u128 {
            self.recent
                .iter()
                .map(|execution| u128::from(correction.apply(execution.expected).0))
                .sum()
        };
        let (of_factor, of_overhead) = (cost(factor), cost(overhead));
        let is_overhead = count >= WINDOW / 2 && of_overhead + of_overhead / 200 < of_factor;
        Some(if is_overhead { overhead } else { factor })
    }

    /// By how much the profile would change, relative to what is published: where it changes most.
    fn change_to(&self, next: Correction) -> f64 {
        let change = |size: usize| {
            let latency = self.base.latency(size);
            let (before, after) =
                (self.correction.apply(latency).0 as f64, next.apply(latency).0 as f64);
            after / before.max(1.0) - 1.0
        };
        let (first, last) = (change(1), change(self.base.max_batch()));
        if first.abs() > last.abs() { first } else { last }
    }
}

/// The largest of these values after so many larger ones.
fn largest_but(outliers: usize, values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    let at = values.len() - 1 - outliers.min(values.len() - 1);
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resnet50() -> Profile {
        Profile::linear(Span::from_ms(1.053), Span::from_ms(5.072), Span::from_ms(25.0)).unwrap()
    }

    /// A device that runs one batch after the other, and a corrector that watches it.
    struct World {
        corrector: Corrector,
        now: Time,
        /// How often a profile was published.
        published: usize,
        /// A small generator of its own: the test is the same each time.
        seed: u64,
    }

    impl World {
        fn new() -> Self {
            let corrector = Corrector::new(resnet50(), Span::from_ms(100.0), Planned::Tail);
            Self { corrector, now: Time::START, published: 0, seed: 7 }
        }

        fn random(&mut self) -> f64 {
            self.seed = self
                .seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.seed >> 33) as f64 / (1_u64 << 31) as f64
        }

        /// Runs a batch; whether it took longer than the profile said when it began.
        fn run(&mut self, size: usize, real: impl Fn(Span) -> f64) -> bool {
            let expected = self.corrector.profile().latency(size);
            let observed = Span::from_ms(real(resnet50().latency(size)));
            self.now += observed;
            self.published +=
                usize::from(self.corrector.observe(self.now, size, observed).is_some());
            observed > expected
        }

        fn run_many(&mut self, count: usize, factor: f64) -> usize {
            let mut late = 0;
            for at in 0..count {
                // Up to 5 % below its worst, as a tail is measured.
                let jitter = 1.0 - 0.05 * self.random();
                late +=
                    usize::from(self.run(1 + at % 18, |latency| latency.as_ms() * factor * jitter));
            }
            late
        }
    }

    #[test]
    fn a_true_profile_stays() {
        let mut world = World::new();
        let late = world.run_many(1000, 1.0);
        assert!(late <= 50, "{late}");
        assert!(world.published <= 2, "{}", world.published);
        assert!((0.95..=1.0).contains(&world.corrector.factor()), "{}", world.corrector.factor());
    }

    #[test]
    fn a_slow_neighbour_costs_a_few_batches_and_is_forgotten_when_it_goes() {
        let mut world = World::new();
        world.run_many(200, 1.0);
        let late = world.run_many(4, 2.0);
        assert_eq!(late, 4);
        let (from, late) = (world.now, world.run_many(200, 2.0));
        assert!(world.now - from > Span::from_secs(3.0));
        assert!(late <= 12, "{late} of 200");
        assert!((1.85..=2.1).contains(&world.corrector.factor()), "{}", world.corrector.factor());
        world.run_many(90, 1.0);
        assert!((0.9..=1.05).contains(&world.corrector.factor()), "{}", world.corrector.factor());
    }

    #[test]
    fn where_batches_wait_on_the_device_half_of_them_are_later_than_planned() {
        let corrector = Corrector::new(resnet50(), Span::from_ms(100.0), Planned::Median);
        let mut world = World { corrector, ..World::new() };
        for factor in [1.0, 1.2, 1.0] {
            world.run_many(100, factor);
            let late = world.run_many(400, factor);
            assert!((120..=280).contains(&late), "{late} of 400");
            // Batches are up to a twentieth faster than that.
            let learnt = world.corrector.factor() / factor;
            assert!((0.96..=0.99).contains(&learnt), "{learnt}");
        }
    }

    #[test]
    fn bursts_are_not_taken_for_the_median() {
        let corrector = Corrector::new(resnet50(), Span::from_ms(100.0), Planned::Median);
        let mut world = World { corrector, ..World::new() };
        let mut sum = 0.0;
        for at in 0..2000 {
            // One batch in five has a neighbour, several in a row.
            let factor = if at % 40 < 8 { 1.15 } else { 1.0 };
            world.run(1 + at % 18, |latency| latency.as_ms() * factor);
            sum += world.corrector.factor();
        }
        let mean = sum / 2000.0;
        assert!((0.99..=1.01).contains(&mean), "{mean}");
    }

    #[test]
    fn a_single_outlier_changes_nothing() {
        for before in [0, 1, 5, 31, 64, 200] {
            let mut world = World::new();
            world.run_many(before, 1.0);
            let factor = world.corrector.factor();
            world.run(4, |latency| latency.as_ms() * 10.0);
            assert_eq!(world.corrector.factor(), factor, "after {before}");
            world.run_many(100, 1.0);
            assert!(
                world.corrector.factor() <= 1.05,
                "after {before}: {}",
                world.corrector.factor()
            );
        }
    }

    #[test]
    fn an_overhead_is_not_taken_for_a_factor() {
        let mut world = World::new();
        for at in 0..100 {
            world.run(1 + at % 18, |latency| latency.as_ms() + 2.0);
        }
        let profile = world.corrector.profile();
        assert_eq!(profile.latency(1), Span::from_ms(8.125));
        assert_eq!(profile.latency(18), resnet50().latency(18) + Span::from_ms(2.0));
    }

    #[test]
    fn a_profile_from_a_bad_moment_becomes_shorter() {
        let mut world = World::new();
        world.run_many(200, 0.7);
        assert!((0.65..=0.72).contains(&world.corrector.factor()), "{}", world.corrector.factor());
        world.run_many(1000, 0.1);
        assert_eq!(world.corrector.factor(), FACTOR_MIN);
    }

    #[test]
    fn something_is_always_left_to_run() {
        let slo = Span::from_ms(25.0);
        let mut world =
            World { corrector: Corrector::new(resnet50(), slo, Planned::Tail), ..World::new() };
        for _ in 0..100 {
            world.run(1, |latency| latency.as_ms() * 50.0);
        }
        assert!(world.corrector.profile().shortest() <= Span::from_ms(18.8));
        assert_eq!(world.corrector.profile().max_batch(), 18);
        // Old executions are forgotten; what comes after a long time tells at once that all is
        // well.
        world.now += Span::from_secs(60.0);
        world.run(1, |latency| latency.as_ms());
        assert_eq!(world.corrector.factor(), 1.0);
    }

    #[test]
    fn a_slo_near_the_latency_of_one_allows_no_rise() {
        let slo = Span::from_ms(6.5);
        let mut world =
            World { corrector: Corrector::new(resnet50(), slo, Planned::Tail), ..World::new() };
        world.run_many(100, 3.0);
        assert_eq!(world.corrector.factor(), 1.0);
    }

    #[test]
    fn profiles_are_not_published_too_often() {
        let mut corrector = Corrector::new(resnet50(), Span::from_ms(100.0), Planned::Tail);
        let mut times = Vec::new();
        for at in 0..10_000_u64 {
            let now = Time::from_ms(at as f64);
            let observed = Span::from_ms(if at % 100 < 50 { 7.0 } else { 20.0 });
            if corrector.observe(now, 1, observed).is_some() {
                times.push(now);
            }
        }
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= RISE_INTERVAL));
        assert!(times.len() < 100, "{}", times.len());
    }

    #[test]
    fn unknown_sizes_and_strange_times_do_no_harm() {
        let mut corrector = Corrector::new(resnet50(), Span::MAX, Planned::Tail);
        assert_eq!(corrector.observe(Time::NEVER, 19, Span::MAX), None);
        for _ in 0..100 {
            corrector.observe(Time::NEVER, 1, Span::MAX);
            corrector.observe(Time::START, 2, Span::ZERO);
        }
        assert!(corrector.factor() <= FACTOR_MAX);
    }

    proptest::proptest! {
        #[test]
        fn any_executions_keep_the_bounds(
            executions in proptest::collection::vec(
                (0..1_000_000_000_u64, 1..30_usize, proptest::num::u64::ANY),
                0..200,
            ),
        ) {
            let mut corrector = Corrector::new(resnet50(), Span::from_ms(25.0), Planned::Tail);
            let mut now = Time::START;
            for (gap, size, observed) in executions {
                now += Span(gap);
                if let Some(profile) = corrector.observe(now, size, Span(observed)) {
                    proptest::prop_assert_eq!(profile.max_batch(), 18);
                    proptest::prop_assert!(profile.shortest() <= Span::from_ms(18.8));
                    proptest::prop_assert!(profile.shortest() >= Span::from_ms(3.0));
                }
            }
        }
    }
}
