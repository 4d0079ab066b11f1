//! What was measured of late: a window that forgets the oldest, and all of it when the runs have
//! become others.

use std::collections::VecDeque;

use crate::Span;

/// The last runs of one kind of request.
#[derive(Clone, Debug, Default)]
pub struct History {
    runs: VecDeque<Span>,
    /// How many came since it was looked for a drift.
    unchecked: usize,
}

/// So many are remembered.
const WINDOW: usize = 512;
/// So many new ones are compared with those before them.
const RECENT: usize = 64;
/// The distance between two distributions (Kolmogorov and Smirnov), in units of what is usual for
/// their sizes, that by chance is exceeded once in ten thousand comparisons.
const DRIFT: f64 = 2.23;

impl History {
    /// Notes a run. True, if the runs have become others than before: then the earlier ones are
    /// forgotten.
    pub fn note(&mut self, run: Span) -> bool {
        if self.runs.len() == WINDOW {
            self.runs.pop_front();
        }
        self.runs.push_back(run);
        self.unchecked += 1;
        if self.unchecked < RECENT {
            return false;
        }
        self.unchecked = 0;
        let before = self.runs.len() - RECENT;
        if before < RECENT {
            return false;
        }
        let sorted = |runs: &mut dyn Iterator<Item = &Span>| {
            let mut runs: Vec<Span> = runs.copied().collect();
            runs.sort_unstable();
            runs
        };
        let old = sorted(&mut self.runs.iter().take(before));
        let new = sorted(&mut self.runs.iter().skip(before));
        let (n, m) = (old.len() as f64, new.len() as f64);
        let has_drifted = distance(&old, &new) > DRIFT * ((n + m) / (n * m)).sqrt();
        if has_drifted {
            self.runs.drain(..before);
        }
        has_drifted
    }

    /// The runs that are remembered, the oldest first.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = Span> + '_ {
        self.runs.iter().copied()
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing was measured yet.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

/// The largest difference between the shares of two sorted samples that are below some value.
fn distance(one: &[Span], other: &[Span]) -> f64 {
    let share = |sorted: &[Span], at: Span| {
        sorted.partition_point(|&run| run <= at) as f64 / sorted.len() as f64
    };
    let at = one.iter().chain(other);
    at.map(|&at| (share(one, at) - share(other, at)).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, between 0 and 1.
    fn uniform(count: u64, seed: u64) -> impl Iterator<Item = f64> {
        let mut state = seed;
        (0..count).map(move |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        })
    }

    #[test]
    fn the_same_runs_are_no_drift_and_others_are() {
        let mut history = History::default();
        for u in uniform(20_000, 1) {
            assert!(!history.note(Span::from_ms(50.0 + 20.0 * u)));
        }
        assert_eq!(history.len(), WINDOW);
        let drifts =
            uniform(200, 2).filter(|u| history.note(Span::from_ms(80.0 + 20.0 * u))).count();
        assert!((1..=2).contains(&drifts), "{drifts}");
        assert!(history.len() <= 200 + RECENT);
        let old = history.runs().filter(|&run| run < Span::from_ms(75.0)).count();
        assert!(old < history.len() / 5, "{old} of {}", history.len());
    }
}
