//! How long requests run, as a distribution: a histogram over a grid that all kinds of a model
//! share, so that the longest of several is a product, bin by bin.

use crate::Span;

/// Bins of a histogram. Enough for a deviation of a tenth over a range of twenty; a product of two
/// is sixteen instructions of four floats.
pub const BINS: usize = 64;

/// The edges of the bins: about equal ratios, so that 5 ms and 5 s are told apart equally well.
///
/// A place on the grid is the bit pattern of a float, which is a logarithm but for straight lines
/// between powers of two: it costs a subtraction and a multiplication where a logarithm would cost
/// fifty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    low: f32,
    high: f32,
    /// Bins for each step of the bit pattern.
    scale: f32,
    /// What the values at the edges weigh in an integral over the grid, half a bin to either side.
    weights: [f32; BINS],
}

impl Grid {
    /// From the shortest run to the longest; widened where they are too near to be told apart.
    pub fn new(shortest: Span, longest: Span) -> Self {
        let low = (shortest.0 as f32).max(1.0);
        let least = f32::from_bits(low.to_bits() + BINS as u32);
        Self::between(low, (longest.0 as f32).max(least))
    }

    /// From the nanoseconds of both ends, which must be apart.
    fn between(low: f32, high: f32) -> Self {
        let scale = BINS as f32 / (high.to_bits() - low.to_bits()) as f32;
        let mut grid = Self { low, high, scale, weights: [0.0; BINS] };
        let edges: Vec<f32> = (0..=BINS).map(|at| grid.value(at as f32)).collect();
        for at in 1..=BINS {
            let after = edges.get(at + 1).copied().unwrap_or(edges[at]);
            grid.weights[at - 1] = (after - edges[at - 1]) / 2.0;
        }
        grid
    }

    /// The ends, as they were written down by `ends`; `None` if they cannot be those of a grid.
    pub fn from_ends(low: f32, high: f32) -> Option<Self> {
        let apart =
            |low: f32| high.is_finite() && high >= f32::from_bits(low.to_bits() + BINS as u32);
        (low.is_finite() && low >= 1.0 && apart(low)).then(|| Self::between(low, high))
    }

    /// The nanoseconds of both ends, exactly: with them the same grid is made again.
    pub fn ends(&self) -> (f32, f32) {
        (self.low, self.high)
    }

    /// The shortest run.
    pub fn shortest(&self) -> Span {
        Span(self.low as u64)
    }

    /// The longest run.
    pub fn longest(&self) -> Span {
        Span(self.high as u64)
    }

    /// Where a run of so many nanoseconds is: from 0 at the shortest to `BINS` at the longest.
    #[inline]
    fn place(&self, ns: f32) -> f32 {
        // Below `low` the difference is negative, and so is the place: no run is that short.
        (ns.max(0.0).to_bits() as i32 - self.low.to_bits() as i32) as f32 * self.scale
    }

    /// The nanoseconds of a place.
    fn value(&self, place: f32) -> f32 {
        let steps = (place / self.scale) as u32;
        f32::from_bits(self.low.to_bits() + steps).min(self.high)
    }
}

/// The probability that a run has ended, at each edge of a grid: nothing at the first, all at the
/// last, and a straight line in between (over the places of the grid).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution {
    ended: [f32; BINS + 1],
}

impl Distribution {
    /// Of nothing: the longest of no requests. Every other one leaves it as it is when it is
    /// multiplied.
    pub const NOTHING: Self = Self { ended: [1.0; BINS + 1] };

    /// Of runs that were measured; `None` without any. Those beyond the grid count as the longest
    /// it has.
    pub fn from_runs(grid: &Grid, runs: impl IntoIterator<Item = Span>) -> Option<Self> {
        let mut ended = [0.0f32; BINS + 1];
        let mut count = 0.0f32;
        for run in runs {
            let bin = grid.place(run.0 as f32).clamp(0.0, (BINS - 1) as f32);
            ended[bin as usize + 1] += 1.0;
            count += 1.0;
        }
        if count == 0.0 {
            return None;
        }
        let mut sum = 0.0;
        for share in &mut ended {
            sum += *share;
            *share = sum / count;
        }
        ended[BINS] = 1.0; // Whatever the rounding.
        Some(Self { ended })
    }

    /// From the probabilities at the edges of the bins; `None` unless they rise from zero to one.
    pub fn from_ended(ended: [f32; BINS + 1]) -> Option<Self> {
        // What is not a number is not sorted either.
        (ended[0] == 0.0 && ended.is_sorted() && ended[BINS] == 1.0).then_some(Self { ended })
    }

    /// The probability that a run has ended at each edge.
    pub fn ended(&self) -> &[f32; BINS + 1] {
        &self.ended
    }

    /// Of a request that is one of several kinds, with these shares.
    pub fn mixed<'a>(parts: impl IntoIterator<Item = (f32, &'a Self)>) -> Self {
        let mut mixed = Self { ended: [0.0; BINS + 1] };
        let mut total = 0.0;
        for (share, part) in parts {
            total += share;
            for (sum, ended) in mixed.ended.iter_mut().zip(&part.ended) {
                *sum += share * ended;
            }
        }
        mixed.ended.iter_mut().for_each(|ended| *ended /= total.max(f32::MIN_POSITIVE));
        mixed.ended[BINS] = 1.0;
        mixed
    }

    /// One more request runs beside: the longest has ended when all have (equation 6 for equal
    /// distributions, equation 8 for different ones, which is this product).
    #[inline]
    pub fn join(&mut self, other: &Self) {
        for (ended, other) in self.ended.iter_mut().zip(&other.ended) {
            *ended *= other;
        }
    }

    /// The longest of so many requests of this distribution.
    pub fn longest_of(&self, count: usize) -> Self {
        Self { ended: self.ended.map(|ended| ended.powi(count as i32)) }
    }

    /// The probability that a run has ended after so many nanoseconds.
    #[inline]
    pub fn ended_by(&self, grid: &Grid, ns: f32) -> f32 {
        let place = grid.place(ns).clamp(0.0, BINS as f32);
        // By way of 32 bits: from there to a float and back is one instruction each.
        let bin = (place as i32).min(BINS as i32 - 1);
        let (before, after) = (self.ended[bin as usize], self.ended[bin as usize + 1]);
        before + (after - before) * (place - bin as f32)
    }

    /// How long a run takes on average, in nanoseconds: the integral of the probability that it has
    /// not ended.
    #[inline]
    pub fn mean(&self, grid: &Grid) -> f32 {
        // In lanes, since a sum in one order cannot be vectorised.
        let mut sums = [0.0f32; 8];
        let ended = self.ended[1..].chunks_exact(8);
        for (ended, weights) in ended.zip(grid.weights.chunks_exact(8)) {
            for lane in 0..8 {
                sums[lane] += ended[lane] * weights[lane];
            }
        }
        (grid.high - sums.iter().sum::<f32>()).max(grid.low)
    }

    /// After how many nanoseconds a run has ended with this probability.
    pub fn quantile(&self, grid: &Grid, probability: f32) -> f32 {
        let bin = self.ended[1..].partition_point(|&ended| ended < probability).min(BINS - 1);
        let (before, after) = (self.ended[bin], self.ended[bin + 1]);
        let within = (probability - before) / (after - before).max(f32::MIN_POSITIVE);
        grid.value(bin as f32 + within.clamp(0.0, 1.0))
    }

    /// The squared coefficient of variation: the variance over the square of the mean.
    pub fn variation(&self, grid: &Grid) -> f64 {
        let (mut mean, mut square) = (0.0, 0.0);
        for (share, from, to) in self.bins(grid) {
            let middle = f64::from(from + to) / 2.0;
            mean += f64::from(share) * middle;
            square += f64::from(share) * middle * middle;
        }
        (square / (mean * mean) - 1.0).max(0.0)
    }

    /// The bins that may be: the probability of each, with the nanoseconds at which it begins and
    /// ends.
    pub fn bins<'a>(&'a self, grid: &'a Grid) -> impl Iterator<Item = (f32, f32, f32)> + 'a {
        (0..BINS).filter_map(move |bin| {
            let share = self.ended[bin + 1] - self.ended[bin];
            let edges = (grid.value(bin as f32), grid.value((bin + 1) as f32));
            (share > 0.0).then_some((share, edges.0, edges.1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(list: &[f64]) -> Vec<Span> {
        list.iter().map(|&ms| Span::from_ms(ms)).collect()
    }

    /// Runs evenly spread between two bounds.
    fn even(from: f64, to: f64) -> Vec<Span> {
        (0..2000).map(|at| Span::from_ms(from + (to - from) * (at as f64 + 0.5) / 2000.0)).collect()
    }

    fn grid() -> Grid {
        Grid::new(Span::from_ms(10.0), Span::from_ms(200.0))
    }

    #[test]
    fn places_and_values_are_inverse() {
        let grid = grid();
        for at in 0..=BINS {
            let value = grid.value(at as f32);
            assert!((grid.place(value) - at as f32).abs() < 0.01, "{at} {value}");
        }
        assert_eq!(grid.place(grid.low), 0.0);
        assert!(grid.place(1.0) < 0.0);
        assert!((grid.place(grid.high) - BINS as f32).abs() < 1e-3);
    }

    #[test]
    fn mean_quantile_and_probability_are_those_of_the_runs() {
        let grid = grid();
        let spread = Distribution::from_runs(&grid, even(50.0, 150.0)).unwrap();
        assert!((spread.mean(&grid) / 1e6 - 100.0).abs() < 1.0, "{}", spread.mean(&grid));
        assert!((spread.quantile(&grid, 0.25) / 1e6 - 75.0).abs() < 2.0);
        assert!((spread.ended_by(&grid, 120e6) - 0.7).abs() < 0.02);
        assert_eq!(spread.ended_by(&grid, 9e6), 0.0);
        assert_eq!(spread.ended_by(&grid, 200e6), 1.0);
    }

    #[test]
    fn the_longest_of_several_is_a_product() {
        let grid = grid();
        let spread = Distribution::from_runs(&grid, even(50.0, 150.0)).unwrap();
        // The longest of k even ones is at k / (k + 1) on average.
        for count in [1, 2, 4, 16] {
            let mut longest = Distribution::NOTHING;
            (0..count).for_each(|_| longest.join(&spread));
            let expected = 50.0 + 100.0 * count as f32 / (count as f32 + 1.0);
            assert!((longest.mean(&grid) / 1e6 - expected).abs() < 1.5, "{count}");
            assert!((spread.longest_of(count).mean(&grid) - longest.mean(&grid)).abs() < 1e4);
        }
    }

    /// Equation 8 sums over all subsets of the batch, with alternating signs; the product's slope
    /// must be the same.
    #[test]
    fn the_product_is_equation_eight() {
        let grid = grid();
        let lists = [even(20.0, 60.0), even(50.0, 150.0), even(100.0, 180.0), even(15.0, 190.0)];
        let kinds: Vec<Distribution> = lists
            .iter()
            .map(|runs| Distribution::from_runs(&grid, runs.clone()).unwrap())
            .collect();
        for size in 2..=kinds.len() {
            let batch = &kinds[..size];
            for place in 1..40 {
                let ns = 20e6 + place as f32 * 4e6;
                let f = |kind: &Distribution| f64::from(kind.ended_by(&grid, ns));
                let step = 2e5f32;
                let slope = |kind: &Distribution| {
                    let (after, before) =
                        (kind.ended_by(&grid, ns + step), kind.ended_by(&grid, ns - step));
                    f64::from(after - before) / f64::from(2.0 * step)
                };
                let product: f64 = (0..size)
                    .map(|at| {
                        let others = (0..size).filter(|&other| other != at);
                        slope(&batch[at]) * others.map(|other| f(&batch[other])).product::<f64>()
                    })
                    .sum();
                let factorial: f64 = (1..=size).map(|n| n as f64).product();
                let printed: f64 = (1u32..1 << size)
                    .map(|subset| {
                        let members = (0..size).filter(|&at| subset >> at & 1 == 1);
                        let n = f64::from(subset.count_ones());
                        let mean_f = members.clone().map(|at| f(&batch[at])).sum::<f64>() / n;
                        let mean_slope = members.map(|at| slope(&batch[at])).sum::<f64>() / n;
                        let sign = if (size as u32 - subset.count_ones()).is_multiple_of(2) {
                            1.0
                        } else {
                            -1.0
                        };
                        let k = size as i32;
                        sign * n.powi(k) / factorial * size as f64 * mean_f.powi(k - 1) * mean_slope
                    })
                    .sum();
                assert!(
                    (product - printed).abs() < 1e-12 + 1e-6 * product.abs(),
                    "{product} {printed}"
                );
            }
        }
    }

    #[test]
    fn nothing_and_too_much_are_bounded() {
        let grid = grid();
        assert_eq!(Distribution::from_runs(&grid, []), None);
        let beyond = Distribution::from_runs(&grid, ms(&[1e9])).unwrap();
        assert!(beyond.mean(&grid) <= grid.high);
        let point = Grid::new(Span::from_ms(5.0), Span::from_ms(5.0));
        let exact = Distribution::from_runs(&point, ms(&[5.0, 5.0])).unwrap();
        assert!((exact.mean(&point) / 5e6 - 1.0).abs() < 1e-4);
    }
}
