//! Keeps the profile of a model true whose run time depends on the input: by how much batches take
//! longer than they should, taken together.
//!
//! What a request takes alone is the online profiler's: it re-runs them. What that cannot see is
//! how batches fare among their neighbours, and this is one factor, on the growth. A single batch
//! tells nothing, since to be longer or shorter than the mean is in its nature: only a mean that is
//! off by more than chance counts.

use std::collections::VecDeque;
use std::sync::Arc;

use fermata_core::{Growth, Profile, Span, Spread, Time};

/// How many batches are remembered, and for how long.
const WINDOW: usize = 128;
const MEMORY: Span = Span(10_000_000_000);
/// Fewer say nothing.
const FEW: usize = 16;
/// Less is not worth a new profile.
const CHANGE_MIN: f64 = 0.03;
/// A mean is off by chance by less than so many of its deviations.
const CHANCE: f64 = 2.0;
const INTERVAL: Span = Span(250_000_000);
/// A batch that takes longer than this many times its plan counts as so many: one that hangs is not
/// a slow device.
const RATIO_MAX: f64 = 8.0;
const FACTOR_MIN: f64 = 0.25;
/// Slower than this is a broken device rather than a busy one.
const FACTOR_MAX: f64 = 8.0;
/// The factor ends where a request alone would need this share of the SLO: were everything dropped
/// as hopeless, nobody would find out when the device is fast again. The margin may take an eighth
/// of it, and a busy machine as much until a request is decided about.
const SLO_SHARE: f64 = 0.75;

/// By how much the batches of a model are stretched.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// As it was measured.
    base: Arc<Spread>,
    slo: Span,
    factor: f64,
    changed_at: Option<Time>,
    /// When batches ended, what they should have taken under the present factor, what they took as
    /// a multiple of it.
    recent: VecDeque<(Time, f64, f64)>,
}

impl Stretch {
    /// Begins with what was measured of a model with this SLO.
    pub fn new(base: Arc<Spread>, slo: Span) -> Self {
        let recent = VecDeque::with_capacity(WINDOW);
        Self { base, slo, factor: 1.0, changed_at: None, recent }
    }

    /// Takes note that a batch ended at `now` that should have taken `latency` on average and took
    /// `took`. Gives the profile with which to go on, where it should change.
    pub fn observe(&mut self, now: Time, latency: Span, took: Span) -> Option<Profile> {
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        let expected = latency.0.max(1) as f64;
        self.recent.push_back((now, expected, (took.0 as f64 / expected).min(RATIO_MAX)));
        while self.recent.front().is_some_and(|(at, ..)| *at + MEMORY < now) {
            self.recent.pop_front();
        }
        let since = self.changed_at.map_or(Span::MAX, |at| now - at);
        if self.recent.len() < FEW || since < INTERVAL {
            return None;
        }
        let ratio = self.ratio()?;
        let factor = (self.factor * ratio).clamp(FACTOR_MIN, self.factor_max());
        if (factor / self.factor - 1.0).abs() < CHANGE_MIN {
            return None;
        }
        (self.factor, self.changed_at) = (factor, Some(now));
        // They were planned with another.
        self.recent.clear();
        Some(self.profile())
    }

    /// The requests themselves have become others.
    pub fn rebase(&mut self, base: Arc<Spread>) -> Profile {
        self.base = base;
        self.recent.clear();
        self.factor = self.factor.min(self.factor_max());
        self.profile()
    }

    /// The profile to go by.
    pub fn profile(&self) -> Profile {
        if self.factor == 1.0 {
            return Profile::spread_out(self.base.clone());
        }
        let Growth { fixed, base, each } = *self.base.growth();
        let [fixed, base, each] = [fixed, base, each].map(|part| part * self.factor);
        Profile::spread_out(Arc::new(self.base.with_growth(Growth { fixed, base, each })))
    }

    /// By how much batches took longer than they should, if that is more than chance. Long ones
    /// count for more: it is time that is to be foretold.
    fn ratio(&self) -> Option<f64> {
        let planned: f64 = self.recent.iter().map(|(_, planned, _)| planned).sum();
        let took: f64 = self.recent.iter().map(|(_, planned, ratio)| planned * ratio).sum();
        let ratio = took / planned;
        let error: f64 = self
            .recent
            .iter()
            .map(|(_, planned, each)| (planned * (each - ratio)).powi(2))
            .sum::<f64>()
            .sqrt()
            / planned;
        ((ratio - 1.0).abs() > CHANCE * error).then_some(ratio)
    }

    fn factor_max(&self) -> f64 {
        let alone = self.base.mixture().mean(self.base.grid());
        let alone = self.base.growth().latency_ns(1, alone).max(1.0);
        (SLO_SHARE * self.slo.0 as f64 / f64::from(alone)).clamp(1.0, FACTOR_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of 10 to 30 ms alone, batches of which are free.
    fn spread() -> Arc<Spread> {
        let runs = (0..200).map(|at| Span::from_ms(10.0 + f64::from(at) / 10.0)).collect();
        Arc::new(Spread::new(&vec![(1.0, runs)], Growth::FREE, 8).unwrap())
    }

    struct World {
        stretch: Stretch,
        now: Time,
        seed: u64,
        changes: usize,
    }

    impl World {
        fn new() -> Self {
            let stretch = Stretch::new(spread(), Span::from_ms(200.0));
            Self { stretch, now: Time::START, seed: 3, changes: 0 }
        }

        fn random(&mut self) -> f64 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.seed >> 33) as f64 / (1_u64 << 31) as f64
        }

        /// Single requests, anywhere between half as long and half as long again as the mean of 20
        /// ms.
        fn run_many(&mut self, count: usize, factor: f64) {
            for _ in 0..count {
                let took = Span::from_ms(20.0 * (0.5 + self.random()) * factor);
                let planned = Span::from_ms(20.0 * self.stretch.factor);
                self.now += took;
                self.changes +=
                    usize::from(self.stretch.observe(self.now, planned, took).is_some());
            }
        }
    }

    #[test]
    fn batches_that_differ_by_nature_change_nothing() {
        let mut world = World::new();
        world.run_many(5000, 1.0);
        assert!((0.9..1.1).contains(&world.stretch.factor), "{}", world.stretch.factor);
        assert!(world.changes < 100, "{}", world.changes);
    }

    #[test]
    fn a_slow_neighbour_stretches_all_and_is_forgotten_when_it_goes() {
        let mut world = World::new();
        world.run_many(200, 1.0);
        world.run_many(200, 1.6);
        assert!((1.45..1.75).contains(&world.stretch.factor), "{}", world.stretch.factor);
        let before = spread().profile().latency(4);
        let ratio = world.stretch.profile().latency(4).0 as f64 / before.0 as f64;
        assert!((ratio - world.stretch.factor).abs() < 0.01);
        world.run_many(200, 1.0);
        assert!((0.9..1.1).contains(&world.stretch.factor), "{}", world.stretch.factor);
    }

    #[test]
    fn something_is_always_left_to_run() {
        let mut world = World::new();
        world.stretch.slo = Span::from_ms(40.0);
        world.run_many(500, 50.0);
        let alone = world.stretch.profile().shortest();
        assert!(alone <= Span::from_ms(30.5), "{alone}");
        world.stretch.observe(Time::NEVER, Span::ZERO, Span::MAX);
        world.run_many(10, 1.0);
        let rebased = world.stretch.rebase(spread());
        assert!(rebased.shortest() <= Span::from_ms(30.5));
    }
}
