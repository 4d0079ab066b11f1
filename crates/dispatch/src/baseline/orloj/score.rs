//! The priority of a request in a batch of one size, as time passes (Orloj 4.1, equation 2).
//!
//! What is gained by running it now and not later, over the time that this takes: `(E[C(t + tau +
//! L)] - E[C(t + L)]) / E[L]` for a cost C that steps up at the deadline, a delay tau that is
//! exponential with rate b, and a batch that takes L. Where L is a histogram, each bin adds
//! something of the form `alpha e^(bt) + beta` as long as the deadline is beyond the bin, within
//! it, or before it. The deadline is within one bin at most: so the sums over all bins that are
//! behind are made beforehand, and the priority of a request is one exponential and a table's row,
//! until its deadline comes to the next bin.
//!
//! The text's h must be a density, the probability of a bin over its width: with the probability
//! itself the priority would jump where bins of different widths meet.

use fermata_core::{Distribution, KindId, Profile, Span, Spread, Time};

use super::hull::Point;

/// What a request of one kind may expect in a batch of one size.
#[derive(Clone, Debug)]
pub(super) struct Score {
    /// The parameter of the anticipated delay, per nanosecond.
    rate: f64,
    /// From the decision to the end of the batch, as feasibility is judged.
    estimate: Span,
    /// By the time that is left, the least first.
    rows: Vec<Row>,
}

/// The priority while the time left is above `from` and not above the next row's.
#[derive(Clone, Copy, Debug)]
struct Row {
    from: Span,
    /// `alpha`, if the deadline were as far from the base time as `from`.
    rise: f64,
    /// `beta`.
    level: f64,
}

/// A priority, and until when it is of this form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) point: Point,
    /// When the priority must be computed anew: a milestone. Never, if it stays at nothing.
    pub(super) until: Time,
}

impl Score {
    /// For a request of a kind that is joined by `size - 1` others of any kind. `lead` passes
    /// before a batch begins, and the anticipated delay has this rate, per nanosecond.
    pub(super) fn of(profile: &Profile, kind: KindId, size: usize, lead: Span, rate: f64) -> Self {
        let Some(spread) = profile.spread() else {
            let always = profile.latency(size);
            let point = (1.0, always.0 as f64, always.0 as f64);
            let rows = rows(std::iter::once(point), always.0 as f64, lead, rate);
            return Self { rate, estimate: always + lead, rows };
        };
        let (grid, growth) = (spread.grid(), spread.growth());
        let took = |alone: f32| f64::from(growth.latency_ns(size, alone)).max(1.0);
        let longest = longest(spread, kind, size);
        let bins = longest.bins(grid);
        let bins = bins.map(|(share, from, to)| (f64::from(share), took(from), took(to)));
        let rows = rows(bins, took(longest.mean(grid)), lead, rate);
        Self { rate, estimate: Span(took(spread.mean(kind)) as u64) + lead, rows }
    }

    /// From the decision to the end of a batch, if the request is neither shorter nor longer than
    /// its kind is on average, and the longest of the batch (the text's `EstimateBatchLatency`).
    pub(super) fn estimate(&self) -> Span {
        self.estimate
    }

    /// The priority for a cost that steps up to each of these values at its deadline (appendix B):
    /// the sum over the steps. Times are counted from `base` on, which is not after `now`.
    pub(super) fn place(&self, now: Time, base: Time, costs: &[(Time, f64)]) -> Place {
        let mut sum = Place { point: Point::default(), until: Time::NEVER };
        let mut before = 0.0;
        for &(due, cost) in costs {
            let step = cost - before;
            before = cost;
            let left = due - now;
            let row = self.rows.partition_point(|row| row.from < left);
            let Some(row) = row.checked_sub(1).map(|row| &self.rows[row]) else { continue };
            let until = due - row.from;
            let away = (until - base).0 as f64;
            sum.point.alpha += step * row.rise * (-self.rate * away).exp();
            sum.point.beta += step * row.level;
            sum.until = sum.until.min(until);
        }
        sum
    }
}

/// How long the longest takes of a request of a kind and `size - 1` others of any kind.
fn longest(spread: &Spread, kind: KindId, size: usize) -> Distribution {
    let mut longest = spread.mixture().longest_of(size - 1);
    longest.join(spread.alone(kind));
    longest
}

/// For a batch that takes as long as some distribution says: the probability of each bin, and when
/// it begins and ends, in nanoseconds and in order; `mean` is that of all.
fn rows(bins: impl Iterator<Item = (f64, f64, f64)>, mean: f64, lead: Span, rate: f64) -> Vec<Row> {
    let row = |from: f64, rise, level| Row { from: Span(from as u64) + lead, rise, level };
    let mut rows = Vec::new();
    // What the bins so far add to the rise, for a deadline at `end`.
    let (mut behind, mut end) = (0.0, 0.0);
    for (share, from, to) in bins {
        if from > end && !rows.is_empty() {
            rows.push(row(end, behind, 0.0));
        }
        behind *= (rate * (end - from)).exp();
        if to > from {
            let height = share / (to - from) / (mean * rate);
            rows.push(row(from, behind - height, height));
            let width = rate * (from - to);
            behind = behind * width.exp() - height * width.exp_m1();
        } else {
            behind += share / mean;
        }
        end = to;
    }
    rows.push(row(end, behind, 0.0));
    rows
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fermata_core::Growth;

    use super::*;

    const RATE: f64 = 1e-4 / 1e6;

    fn ms(ms: f64) -> Time {
        Time::from_ms(ms)
    }

    fn score(bins: &[(f64, f64, f64)], rate: f64) -> Score {
        let rows = rows(bins.iter().copied(), mean(bins), Span::ZERO, rate);
        Score { rate, estimate: Span::ZERO, rows }
    }

    /// The priority at a moment.
    fn at(score: &Score, now: Time, base: Time, costs: &[(Time, f64)]) -> f64 {
        let x = (score.rate * (now - base).0 as f64).exp();
        score.place(now, base, costs).point.at(x)
    }

    /// Equation 1 by itself: the mean cost over many delays and lengths, in small steps.
    fn integrated(bins: &[(f64, f64, f64)], rate: f64, left: &[(f64, f64)]) -> f64 {
        let cost = |end: f64| {
            let passed = left.iter().filter(|(due, _)| end > *due);
            passed.map(|(_, cost)| *cost).fold(0.0, f64::max)
        };
        // Quantiles of the delay, which is exponential.
        let delays: Vec<f64> =
            (0..2000).map(|at| -((at as f64 + 0.5) / 2000.0).ln() / rate).collect();
        let (mut mean, mut gain) = (0.0, 0.0);
        for &(share, from, to) in bins {
            for at in 0..50 {
                let length = from + (to - from) * (f64::from(at) + 0.5) / 50.0;
                let later = delays.iter().map(|tau| cost(tau + length)).sum::<f64>() / 2000.0;
                mean += share / 50.0 * length;
                gain += share / 50.0 * (later - cost(length));
            }
        }
        gain / mean
    }

    fn bins() -> Vec<(f64, f64, f64)> {
        vec![(0.2, 10e6, 20e6), (0.3, 20e6, 25e6), (0.4, 60e6, 90e6), (0.1, 90e6, 91e6)]
    }

    fn mean(bins: &[(f64, f64, f64)]) -> f64 {
        bins.iter().map(|(share, from, to)| share * (from + to) / 2.0).sum()
    }

    #[test]
    fn the_priority_is_equation_one() {
        for rate in [1e-4, 1e-3, 1e-2].map(|per_ms| per_ms / 1e6) {
            let bins = bins();
            let score = score(&bins, rate);
            for left in [5.0, 12.0, 20.0, 22.0, 40.0, 61.0, 89.0, 90.5, 95.0, 300.0] {
                let costs = [(ms(1000.0), 1.0)];
                let found = at(&score, ms(1000.0 - left), ms(400.0), &costs);
                let expected = integrated(&bins, rate, &[(left * 1e6, 1.0)]);
                let scale = 1.0 / mean(&bins);
                assert!(
                    (found - expected).abs()
                        < 0.01 * expected + 1e-3 * scale * (rate * 1e8).min(1.0),
                    "{rate} {left}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn a_cost_of_several_steps_is_the_sum_of_its_steps() {
        let bins = bins();
        let rate = 1e-2 / 1e6;
        let score = score(&bins, rate);
        let steps = [(50.0, 1.0), (80.0, 3.0), (200.0, 4.0)];
        let costs = steps.map(|(left, cost)| (ms(500.0 + left), cost));
        let found = at(&score, ms(500.0), ms(0.0), &costs);
        let expected = integrated(&bins, rate, &steps.map(|(left, cost)| (left * 1e6, cost)));
        assert!((found / expected - 1.0).abs() < 0.01, "{found} {expected}");
        let alone = [(50.0, 1.0), (80.0, 2.0), (200.0, 1.0)]
            .map(|(left, cost)| at(&score, ms(500.0), ms(0.0), &[(ms(500.0 + left), cost)]));
        assert!((found / alone.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn between_milestones_the_priority_moves_as_its_line_says_and_is_never_negative() {
        let bins = bins();
        let score = score(&bins, RATE);
        let (base, due) = (ms(0.0), [(ms(120.0), 1.0)]);
        let mut place = score.place(ms(0.0), base, &due);
        let mut milestones = Vec::new();
        for step in 0..1300 {
            let now = ms(f64::from(step) / 10.0);
            if now >= place.until {
                milestones.push(place.until);
                place = score.place(now, base, &due);
            }
            let by_line = place.point.at((RATE * now.0 as f64).exp());
            let exact = at(&score, now, base, &due);
            assert!((by_line - exact).abs() <= 1e-12 * exact.abs().max(1e-12), "{now}");
            assert!(exact >= -1e-20, "{now} {exact}");
        }
        assert_eq!(milestones, [29.0, 30.0, 60.0, 95.0, 100.0, 110.0].map(ms));
        assert_eq!(place, Place { point: Point::default(), until: Time::NEVER });
    }

    #[test]
    fn the_base_time_does_not_matter() {
        let bins = bins();
        let score = score(&bins, RATE);
        let due = [(ms(1e9 + 75.0), 1.0)];
        let [near, far] = [1e9, 1e9 - 1e6].map(|base| at(&score, ms(1e9), ms(base), &due));
        assert!((near / far - 1.0).abs() < 1e-9 && near > 0.0);
    }

    #[test]
    fn a_model_that_always_takes_the_same_is_a_distribution_of_one_point() {
        let profile = Profile::linear(Span::from_ms(1.0), Span::from_ms(5.0), Span::from_ms(20.0));
        let score = Score::of(&profile.unwrap(), KindId(0), 2, Span::from_ms(0.5), RATE);
        assert_eq!(score.estimate(), Span::from_ms(7.5));
        let due = [(ms(30.0), 1.0)];
        // Seven, and half of one before the start.
        for (now, expected) in [(0.0, (-RATE * 22.5e6).exp() / 7e6), (22.4, 1.0 / 7e6), (22.5, 0.0)]
        {
            let found = at(&score, ms(now), ms(0.0), &due);
            assert!((found - expected).abs() < 1e-4 / 7e6, "{now}: {found} {expected}");
        }
    }

    #[test]
    fn the_others_of_a_batch_are_of_any_kind() {
        let runs = |at: f64| (0..100).map(|i| Span::from_ms(at + f64::from(i) / 10.0)).collect();
        let measured = vec![(0.5, runs(50.0)), (0.5, runs(150.0))];
        let growth = Growth { fixed: 0.0, base: 0.9, each: 0.1 };
        let spread = Spread::new(&measured, growth, 16).unwrap();
        let mean = |kind: u16, size| longest(&spread, KindId(kind), size).mean(spread.grid()) / 1e6;
        assert!((mean(0, 1) - 55.0).abs() < 1.0 && (mean(1, 1) - 155.0).abs() < 2.0);
        // Beside one other, a short one is with a short one half of the time.
        assert!((mean(0, 2) - 106.0).abs() < 3.0, "{}", mean(0, 2));
        assert!((mean(1, 2) - 156.0).abs() < 3.0, "{}", mean(1, 2));
        assert!((mean(0, 16) - mean(1, 16)).abs() < 0.5);
        assert!(mean(0, 1) < mean(9, 1) && mean(9, 1) < mean(1, 1), "a kind that is not known");
        let profile = Profile::spread_out(Arc::new(spread));
        let estimate = |kind, size| {
            Score::of(&profile, KindId(kind), size, Span::ZERO, RATE).estimate().as_ms()
        };
        assert!((estimate(0, 4) - 1.3 * 55.0).abs() < 1.0, "{}", estimate(0, 4));
        assert!((estimate(1, 4) - 1.3 * 155.0).abs() < 3.0, "{}", estimate(1, 4));
    }
}
