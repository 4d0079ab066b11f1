//! How many executors a pool should have, from what it lost and how idle it was (Symphony 3.5).
//!
//! With a flat top, the share `r` of lost requests says how many are missing: `N r / (1 - r)`. With
//! load-proportional use, the share `f` of idle time says how many are spare: `N f`. [`needed`] is
//! that rule, and remembers nothing; [`Advisor`] is what a pool can follow interval by interval
//! without swinging.
//!
//! Use is in proportion to the load only where batches are filled. Where spare executors are used
//! to answer requests sooner, batches are small while executors are spare, and executors are busy
//! for longer than the load needs: by idleness alone, no executor would ever be spare. Batches are
//! filled by themselves when executors are taken away, so what the load needs is what its requests
//! keep busy in filled batches, which the planner knows from the rates
//! ([`staggered_load`](crate::staggered_load)). The time that was busy is then an upper limit.

/// What a pool did in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// How many executors it had.
    pub executors: usize,
    /// The share of its requests that were dropped or late.
    pub bad: f64,
    /// The share of its executors' time that was busy.
    pub busy: f64,
    /// How many executors its requests would keep busy in filled batches; infinite where batches
    /// are filled anyway, so that `busy` tells.
    pub filled: f64,
}

impl Observed {
    /// How many executors' worth of time the requests need.
    fn load(&self) -> f64 {
        (self.busy * self.executors as f64).min(self.filled)
    }
}

/// Below this share of lost requests nothing is missing: the objective allows one in a hundred.
pub const BAD_MAX: f64 = 0.01;
/// Where executors are less busy than this, requests are lost for other reasons than too few of
/// them: deadlines that are too short, a machine that is too slow to send answers.
const BUSY_MIN: f64 = 0.75;

/// How many executors the load needs: more than there are, if too many requests were lost; else as
/// many as were busy, or as filled batches keep busy.
pub fn needed(seen: Observed) -> f64 {
    let executors = seen.executors as f64;
    if !is_short(seen) {
        return if seen.bad > BAD_MAX { executors } else { seen.load() };
    }
    // Should nothing be in time, all that can be said is that there are too few.
    executors + executors * seen.bad / (1.0 - seen.bad).max(0.01)
}

/// Whether requests were lost because there are too few executors. What was busy counts here,
/// filled or not: a shortage that an estimate hides would stay, and a loss of another kind asks for
/// few executors.
fn is_short(seen: Observed) -> bool {
    seen.bad > BAD_MAX && seen.busy >= BUSY_MIN
}

/// Executors are released until this share of their time is busy: the rest is for bursts.
const BUSY_WANTED: f64 = 0.9;
/// Nothing is released while so much of the time is busy: between this and more, the load may
/// change and nothing happens.
const BUSY_ENOUGH: f64 = 0.86;
/// Nothing is released before so many intervals were idle in a row.
const PATIENCE: u32 = 2;
/// The patience grows up to this where a release turned out to be too much.
const PATIENCE_MAX: u32 = 32;

/// Follows the load of one pool.
///
/// It grows at once, by all that is missing, and shrinks slowly: after some idle intervals in a
/// row, by half of what is spare, and never below what the busiest of these intervals needed. If
/// requests are lost soon after that, it waits twice as long before it tries again.
#[derive(Clone, Debug)]
pub struct Advisor {
    patience: u32,
    /// How many intervals in a row were idle.
    idle: u32,
    /// How many executors' worth of time was busy at most in these.
    busiest: f64,
    /// How many intervals ago executors were released; `None`, if that has proved right.
    released: Option<u32>,
}

impl Default for Advisor {
    fn default() -> Self {
        Self { patience: PATIENCE, idle: 0, busiest: 0.0, released: None }
    }
}

impl Advisor {
    /// How many executors the pool should have from now on, after an interval in which it had the
    /// same number all the time. It is never zero.
    pub fn advise(&mut self, seen: Observed) -> usize {
        self.released = self.released.map(|ago| ago + 1);
        if is_short(seen) {
            if self.released.take().is_some() {
                self.patience = (self.patience * 2).min(PATIENCE_MAX);
            }
            self.idle = 0;
            return (needed(seen).ceil() as usize).max(seen.executors + 1);
        }
        if self.released.is_some_and(|ago| ago > self.patience) {
            self.released = None;
            self.patience = (self.patience / 2).max(PATIENCE);
        }
        let busy = seen.load();
        if seen.bad > BAD_MAX || busy > BUSY_ENOUGH * seen.executors as f64 {
            self.idle = 0;
            return seen.executors.max(1);
        }
        self.busiest = if self.idle == 0 { busy } else { self.busiest.max(busy) };
        self.idle += 1;
        if self.idle < self.patience {
            return seen.executors.max(1);
        }
        // What comes next is judged by the intervals from now on.
        self.idle = 0;
        let enough = ((self.busiest / BUSY_WANTED).ceil() as usize).max(1);
        let spare = seen.executors.saturating_sub(enough);
        if spare > 0 {
            self.released = Some(0);
        }
        (seen.executors - spare.div_ceil(2)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(executors: usize, bad: f64, busy: f64) -> Observed {
        Observed { executors, bad, busy, filled: f64::INFINITY }
    }

    #[test]
    fn a_third_lost_asks_for_half_as_many_more() {
        assert_eq!(Advisor::default().advise(seen(8, 1.0 / 3.0, 1.0)), 12);
        assert!((needed(seen(100, 0.2, 0.9)) - 125.0).abs() < 1e-9);
    }

    #[test]
    fn losses_of_idle_executors_are_not_mended_by_more_of_them() {
        assert_eq!(Advisor::default().advise(seen(8, 0.3, 0.25)), 8);
    }

    #[test]
    fn spare_executors_are_released_in_steps_and_never_too_many() {
        let (mut advisor, mut executors, mut sizes) = (Advisor::default(), 100, vec![100]);
        for _ in 0..30 {
            executors = advisor.advise(seen(executors, 0.0, 45.0 / executors as f64));
            sizes.push(executors);
        }
        assert_eq!(sizes[..6], [100, 100, 75, 75, 62, 62], "{sizes:?}");
        // 45 are busy: 90 % of 50, and nothing happens between that and 86 %.
        assert!((50..=53).contains(&executors), "{sizes:?}");
    }

    #[test]
    fn executors_that_are_busy_with_small_batches_are_spare() {
        // Filled batches keep 45 busy; small ones keep all busy, however many there are.
        let small = |executors| Observed { filled: 45.0, ..seen(executors, 0.0, 1.0) };
        assert_eq!(needed(small(100)), 45.0);
        let (mut advisor, mut executors) = (Advisor::default(), 100);
        for _ in 0..30 {
            executors = advisor.advise(small(executors));
        }
        assert!((50..=53).contains(&executors), "{executors}");
        // An estimate above what was busy does not count, and a shortage is one, whatever the
        // estimate.
        assert_eq!(needed(Observed { filled: 45.0, ..seen(50, 0.0, 0.8) }), 40.0);
        assert!(needed(Observed { filled: 5.0, ..seen(10, 0.2, 1.0) }) > 10.0);
    }

    #[test]
    fn the_busiest_idle_interval_counts() {
        let mut advisor = Advisor::default();
        assert_eq!(advisor.advise(seen(10, 0.0, 0.8)), 10);
        assert_eq!(advisor.advise(seen(10, 0.0, 0.1)), 9);
    }

    #[test]
    fn a_release_that_was_too_much_is_tried_again_later_and_later() {
        // Ten are needed, though they are busy for 80 % of the time only.
        let (mut advisor, mut executors, mut changes) = (Advisor::default(), 11, 0);
        for _ in 0..200 {
            let bad = if executors < 10 { 0.02 } else { 0.0 };
            let next = advisor.advise(seen(executors, bad, 8.0 / executors as f64));
            changes += u32::from(next != executors);
            executors = next;
        }
        assert!(executors >= 9 && changes < 30, "{executors}, {changes}");
    }

    #[test]
    fn nothing_to_do_leaves_one() {
        let (mut advisor, mut executors) = (Advisor::default(), 5);
        for _ in 0..20 {
            executors = advisor.advise(seen(executors, 0.0, 0.0));
        }
        assert_eq!(executors, 1);
        assert_eq!(advisor.advise(seen(0, 0.0, 0.0)), 1);
    }
}
