//! When a new plan is made, and why: every epoch, and at once when the load leaves what was planned
//! for. No clock.

use std::fmt;

use fermata_core::Span;
use fermata_plan::advice::{Observed, needed};

use super::meter::DEVIATIONS;

/// Above this part of the load that was planned for, the head-room is being used up (Nexus re-plans
/// there too).
const RISE: f64 = 1.1;
/// Below this part of it, GPUs are wasted (Nexus).
const FALL: f64 = 0.8;
/// Less than this part of a GPU is nobody's business.
const CHANGE_MIN: f64 = 0.25;
/// So many of an epoch must pass before another plan for a reason that harms nobody: 10 s of 30, as
/// in Nexus.
const CALM_PART: u64 = 3;
/// So many before one that adds executors: 1 s of 30.
const HURRY_PART: u64 = 30;
/// Fewer requests than these may be lost by accident.
const LOST_MIN: u64 = 10;

/// How often plans are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplanTrigger {
    pub(super) epoch: Span,
}

/// Why a plan was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It was time.
    Epoch,
    /// A pool has less to do than was planned for.
    Fall { pool: String },
    /// A pool loses requests.
    Loss { pool: String },
    /// There are other models than before.
    Models,
    /// Moves were left over.
    Moves,
    /// A pool has more to do than was planned for.
    Rise { pool: String },
}

/// A pool since the last plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) name: String,
    /// GPUs that the load would keep busy by the last plan, and by what comes now; by how much the
    /// latter may be accident.
    pub(super) planned: f64,
    pub(super) load: f64,
    pub(super) deviation: f64,
    /// Requests in time, and those dropped or late.
    pub(super) good: u64,
    pub(super) bad: u64,
    /// The share of its executors' time that was busy.
    pub(super) busy: f64,
    /// Whether it uses spare executors: then batches are small, and `busy` says nothing about how
    /// many are spare.
    pub(super) uses_spare: bool,
}

impl ReplanTrigger {
    /// Whether a plan is due, so long after the last.
    pub(super) fn why(
        &self,
        since: Span,
        other_models: bool,
        moves_left: bool,
        pools: &[Seen],
    ) -> Option<Why> {
        if since.0 < self.epoch.0 / HURRY_PART {
            return None;
        }
        if let Some(pool) = pools.iter().find(|pool| pool.rises()) {
            return Some(Why::Rise { pool: pool.name.clone() });
        }
        if let Some(pool) = pools.iter().find(|pool| pool.loses()) {
            return Some(Why::Loss { pool: pool.name.clone() });
        }
        if since.0 < self.epoch.0 / CALM_PART {
            return None;
        }
        if other_models {
            return Some(Why::Models);
        }
        if moves_left {
            return Some(Why::Moves);
        }
        if let Some(pool) = pools.iter().find(|pool| pool.falls()) {
            return Some(Why::Fall { pool: pool.name.clone() });
        }
        (since >= self.epoch).then_some(Why::Epoch)
    }
}

impl Seen {
    /// Whether more comes than was planned for.
    pub(super) fn rises(&self) -> bool {
        let more = self.load - self.planned;
        self.load > RISE * self.planned && more > CHANGE_MIN.max(DEVIATIONS * self.deviation)
    }

    fn falls(&self) -> bool {
        let less = self.planned - self.load;
        self.load < FALL * self.planned && less > CHANGE_MIN.max(DEVIATIONS * self.deviation)
    }

    /// Whether it loses too many requests for want of executors.
    pub(super) fn loses(&self) -> bool {
        self.bad >= LOST_MIN && needed(self.observed(1)) > 1.0
    }

    /// What a pool of so many executors did.
    pub(super) fn observed(&self, executors: usize) -> Observed {
        let filled = if self.uses_spare { self.load } else { f64::INFINITY };
        Observed { executors, bad: self.lost(), busy: self.busy, filled }
    }

    /// The share of the time of so many executors that the load needs.
    pub(super) fn needed_share(&self, executors: usize) -> f64 {
        if !self.uses_spare {
            return self.busy;
        }
        self.busy.min(self.load / executors.max(1) as f64)
    }

    /// The share of requests that were lost.
    pub(super) fn lost(&self) -> f64 {
        self.bad as f64 / (self.good + self.bad).max(1) as f64
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch => write!(f, "an epoch has passed"),
            Self::Fall { pool } => write!(f, "the load of {pool} fell"),
            Self::Loss { pool } => write!(f, "{pool} loses requests"),
            Self::Models => write!(f, "there are other models"),
            Self::Moves => write!(f, "moves were left over"),
            Self::Rise { pool } => write!(f, "the load of {pool} rose"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIGGER: ReplanTrigger = ReplanTrigger { epoch: Span(30_000_000_000) };

    fn after(seconds: u64, seen: &Seen) -> Option<Why> {
        TRIGGER.why(Span(seconds * 1_000_000_000), false, false, std::slice::from_ref(seen))
    }

    fn pool(load: f64, deviation: f64) -> Seen {
        let name = "p".to_owned();
        Seen {
            name,
            planned: 10.0,
            load,
            deviation,
            good: 1_000,
            bad: 0,
            busy: 0.5,
            uses_spare: false,
        }
    }

    #[test]
    fn a_load_as_planned_waits_for_the_epoch() {
        for load in [8.1, 10.0, 10.9] {
            assert_eq!(after(29, &pool(load, 0.1)), None);
            assert_eq!(after(30, &pool(load, 0.1)), Some(Why::Epoch));
        }
    }

    #[test]
    fn a_rise_is_answered_within_a_second_and_a_fall_within_ten() {
        let rise = Some(Why::Rise { pool: "p".to_owned() });
        assert_eq!(after(0, &pool(20.0, 1.0)), None);
        assert_eq!(after(1, &pool(20.0, 1.0)), rise);
        assert_eq!(after(9, &pool(5.0, 1.0)), None);
        assert_eq!(after(10, &pool(5.0, 1.0)), Some(Why::Fall { pool: "p".to_owned() }));
    }

    #[test]
    fn what_may_be_accident_is_no_change() {
        assert_eq!(after(20, &pool(13.0, 1.1)), None);
        assert_eq!(after(20, &pool(7.0, 1.1)), None);
    }

    #[test]
    fn more_than_one_in_a_hundred_lost_is_answered_at_once() {
        let loss = |bad| Seen { bad, busy: 0.9, ..pool(10.0, 1.0) };
        assert_eq!(after(1, &loss(10)), None);
        assert_eq!(after(1, &loss(11)), Some(Why::Loss { pool: "p".to_owned() }));
        assert_eq!(after(1, &Seen { good: 9, ..loss(9) }), None, "nine may be accident");
        assert_eq!(after(1, &Seen { busy: 0.5, ..loss(99) }), None, "more executors do not help");
    }

    #[test]
    fn other_models_and_moves_that_are_left_wait_for_ten_seconds() {
        let why = |seconds: u64, other, left| {
            TRIGGER.why(Span(seconds * 1_000_000_000), other, left, &[])
        };
        assert_eq!(why(9, true, true), None);
        assert_eq!(why(10, true, true), Some(Why::Models));
        assert_eq!(why(10, false, true), Some(Why::Moves));
    }
}
