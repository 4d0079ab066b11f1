//! Models that take turns on one executor: the shortest round in which all of them keep up.
//!
//! In a round of length `d` a demand gathers `b = max(1, ceil(rate d))` requests and runs them as
//! one batch; a request waits for at most a round, and then for its own batch. So a set of demands
//! may share an executor if there is a `d` with `sum l(b) <= d` and `d + l(b) <= slo` for each
//! (Nexus 6.1, constraints e to g). Both sides of the second only grow with `d`, so the least `d`
//! that satisfies the first decides, and iterating `d <- sum l(b)` from `sum l(1)` finds it: no
//! search over `d` is needed. Fewer members have a shorter least round, so every part of a set that
//! fits does too.

use fermata_core::{Profile, Span};

/// A demand as one executor sees it.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// How long batches take on this executor.
    pub profile: &'a Profile,
    /// From arrival to answer.
    pub slo: Span,
    /// Requests a second.
    pub rate: f64,
}

/// A fraction of a request that is a rounding error, and not one more request.
const ROUNDING: f64 = 1e-6;

impl Turn<'_> {
    /// How many requests come in a round: at least one, since a turn must be kept for it.
    #[inline]
    pub fn batch(&self, round: Span) -> usize {
        let gathered = self.rate * (round.0 as f64 * 1e-9) - ROUNDING;
        // Rounded up by hand, since `ceil` is a call. Conversion saturates, and a batch that is too
        // large has no latency.
        let whole = gathered as usize;
        (whole + usize::from((whole as f64) < gathered)).max(1)
    }

    /// How long its batch takes in such a round.
    #[inline]
    pub fn latency(&self, round: Span) -> Span {
        self.profile.latency(self.batch(round))
    }
}

/// The shortest round in which all turns keep up and every objective holds; `None`, if there is
/// none.
pub fn shortest_round<'a, 'b: 'a>(
    turns: impl Iterator<Item = &'a Turn<'b>> + Clone,
) -> Option<Span> {
    let sum = |round: Span| turns.clone().fold(Span::ZERO, |sum, turn| sum + turn.latency(round));
    let mut round = sum(Span::ZERO);
    loop {
        let holds = |turn: &Turn<'_>| round + turn.latency(round) <= turn.slo;
        if !turns.clone().all(holds) {
            return None;
        }
        let next = sum(round);
        if next <= round {
            return Some(round);
        }
        round = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(latencies: &[(usize, f64)]) -> Profile {
        let mut table = Vec::new();
        for &(size, ms) in latencies {
            table.resize(size, Span::from_ms(ms));
        }
        Profile::from_table(table).unwrap()
    }

    #[test]
    fn the_example_of_nexus_puts_a_with_b_and_not_with_c() {
        let a = profile(&[(4, 50.0), (8, 75.0), (16, 100.0)]);
        let b = profile(&[(4, 50.0), (8, 90.0), (16, 125.0)]);
        let c = profile(&[(4, 60.0), (8, 95.0), (16, 125.0)]);
        let turn = |profile, slo, rate| Turn { profile, slo: Span::from_ms(slo), rate };
        let (a, b, c) = (turn(&a, 200.0, 64.0), turn(&b, 250.0, 32.0), turn(&c, 250.0, 32.0));
        assert_eq!(shortest_round([&a, &b].into_iter()), Some(Span::from_ms(125.0)));
        assert_eq!((a.batch(Span::from_ms(125.0)), b.batch(Span::from_ms(125.0))), (8, 4));
        assert_eq!(shortest_round([&a, &c].into_iter()), None);
    }
}
