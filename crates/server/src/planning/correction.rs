//! By how much a pool needs more executors than its plan says, or fewer: learnt from what it loses
//! and how much it idles (Symphony, section 3.5).

use fermata_plan::advice::{BAD_MAX, needed};

use super::trigger::Seen;

/// Executors that are less busy than this are more than the load needs, bursts counted.
const IDLE: f64 = 0.5;
/// Executors that are busier than this are not too many: what was given up is taken back.
const BUSY: f64 = 0.75;
/// What was learnt is forgotten, and what idles is given up, by this part a plan: slowly, since
/// losing requests costs more than executors.
const STEP: f64 = 0.95;
/// Never more and never fewer than these parts of the plan: beyond, the plan is wrong in a way that
/// counting cannot mend.
const MOST: f64 = 2.0;
const LEAST: f64 = 0.6;

/// A pool's executors as a part of those planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Correction(f64);

impl Default for Correction {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Correction {
    /// Learns from what was seen of a pool of so many executors, for which `planned` had been
    /// planned.
    pub(super) fn learn(&mut self, planned: usize, executors: usize, seen: &Seen) {
        let needed_share = seen.needed_share(executors);
        if seen.loses() {
            // What comes beyond the plan is the next plan's matter.
            if !seen.rises() {
                let needed = needed(seen.observed(executors));
                self.0 = self.0.max(needed / planned.max(1) as f64).min(MOST);
            }
        } else if self.0 > 1.0 {
            self.0 = (self.0 * STEP).max(1.0);
        } else if needed_share < IDLE && seen.lost() <= BAD_MAX / 10.0 && seen.good > 0 {
            self.0 = (self.0 * STEP).max(LEAST);
        } else if needed_share > BUSY {
            self.0 = (self.0 / STEP).min(1.0);
        }
    }

    /// How many executors in place of so many.
    pub(super) fn apply(&self, executors: usize) -> usize {
        // What is left of rounding is no executor.
        (executors as f64 * self.0 - 1e-9).ceil() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(good: u64, bad: u64, busy: f64) -> Seen {
        Seen { good, bad, busy, planned: 8.0, load: 8.0, ..Seen::default() }
    }

    #[test]
    fn a_third_lost_asks_for_half_as_many_more_and_is_forgotten_slowly() {
        let mut correction = Correction::default();
        correction.learn(8, 8, &seen(2_000, 1_000, 0.98));
        assert_eq!(correction.apply(8), 12);
        correction.learn(8, 12, &seen(3_000, 0, 0.7));
        assert_eq!(correction.apply(8), 12);
        for _ in 0..20 {
            correction.learn(8, 12, &seen(3_000, 0, 0.7));
        }
        assert_eq!(correction, Correction::default());
    }

    #[test]
    fn losses_of_idle_executors_or_beyond_the_plan_teach_nothing() {
        let mut correction = Correction::default();
        correction.learn(8, 8, &seen(2_000, 1_000, 0.6));
        assert_eq!(correction, Correction::default());
        correction.learn(8, 8, &Seen { load: 12.0, ..seen(2_000, 1_000, 0.98) });
        assert_eq!(correction, Correction::default());
    }

    #[test]
    fn executors_that_idle_are_given_up_one_by_one_and_never_below_what_is_sane() {
        let mut correction = Correction::default();
        correction.learn(20, 20, &seen(3_000, 0, 0.3));
        assert_eq!(correction.apply(20), 19);
        for _ in 0..50 {
            correction.learn(20, 19, &seen(3_000, 0, 0.3));
        }
        assert_eq!(correction.apply(20), 12);
        correction.learn(20, 12, &seen(3_000, 0, 0.9));
        assert_eq!(correction.apply(20), 13);
        let mut unknown = Correction::default();
        unknown.learn(20, 20, &seen(0, 0, 0.0));
        assert_eq!(unknown, Correction::default(), "no load teaches nothing");
    }

    #[test]
    fn executors_that_are_busy_with_small_batches_idle() {
        let small = |load| Seen { load, uses_spare: true, ..seen(3_000, 0, 0.95) };
        let mut correction = Correction::default();
        correction.learn(20, 20, &small(6.0));
        assert_eq!(correction.apply(20), 19);
        // Filled batches would keep 17 of 20 busy.
        correction.learn(20, 19, &small(17.0));
        assert_eq!(correction.apply(20), 20);
    }

    #[test]
    fn all_lost_asks_for_twice_as_many() {
        let mut correction = Correction::default();
        correction.learn(8, 8, &seen(0, 1_000, 1.0));
        assert_eq!(correction.apply(8), 16);
    }
}
