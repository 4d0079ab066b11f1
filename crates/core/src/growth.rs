//! How the time of a batch grows with its size and with the longest of its requests.

use crate::Span;

/// A batch of `k` whose longest request takes `l` alone takes `fixed + (base + each k) l`.
///
/// Orloj's equation 3 is `fixed + each k l`: without `base`, a batch of one would have to take
/// `each l`, which it does not where a device has room for more than one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Nanoseconds that every batch takes.
    pub fixed: f64,
    /// Times the longest request, whatever the size.
    pub base: f64,
    /// Times the longest request, for each request.
    pub each: f64,
}

impl Growth {
    /// A batch takes as long as its longest request.
    pub const FREE: Self = Self { fixed: 0.0, base: 1.0, each: 0.0 };

    /// How many nanoseconds a batch of `size` takes whose longest request takes `alone`
    /// nanoseconds.
    #[inline]
    pub fn latency_ns(&self, size: usize, alone: f32) -> f32 {
        self.fixed as f32 + self.factor(size) * alone
    }

    /// How long a batch of `size` takes whose longest request takes `alone`.
    pub fn latency(&self, size: usize, alone: Span) -> Span {
        Span((self.fixed + (self.base + self.each * size as f64) * alone.0 as f64) as u64)
    }

    /// How long the longest request of a batch of `size` may take alone, for the batch to take
    /// `budget` nanoseconds.
    #[inline]
    pub fn alone_within(&self, size: usize, budget: f32) -> f32 {
        (budget - self.fixed as f32) / self.factor(size)
    }

    #[inline]
    fn factor(&self, size: usize) -> f32 {
        (self.base + self.each * size as f64) as f32
    }

    /// From batches that were measured, as (size, what the longest takes alone, what the batch
    /// took): least squares over the relative errors, none of the three below zero. `None` without
    /// a measurement that says anything.
    pub fn fit(batches: &[(usize, Span, Span)]) -> Option<Self> {
        let rows: Vec<([f64; 3], f64)> = batches
            .iter()
            .filter(|(size, alone, took)| *size > 0 && alone.0 > 0 && took.0 > 0)
            .map(|&(size, alone, took)| {
                let (alone, took) = (alone.0 as f64, took.0 as f64);
                // In milliseconds, so that the three columns are alike.
                ([1e6 / took, alone / took, size as f64 * alone / took], 1.0)
            })
            .collect();
        if rows.is_empty() {
            return None;
        }
        // Of the three, those that would be negative are left out: every subset in which the
        // request counts.
        let fits = (2u8..8).filter_map(|used| {
            let at: Vec<usize> = (0..3).filter(|&column| used >> column & 1 == 1).collect();
            let found = least_squares(&rows, &at)?;
            if found.iter().any(|&value| value < 0.0) {
                return None;
            }
            let mut full = [0.0; 3];
            at.iter().zip(&found).for_each(|(&column, &value)| full[column] = value);
            let error: f64 = rows
                .iter()
                .map(|(row, is)| {
                    let said: f64 = row.iter().zip(&full).map(|(x, y)| x * y).sum();
                    (said - is).powi(2)
                })
                .sum();
            Some((error, full))
        });
        let (_, [fixed, base, each]) = fits.min_by(|one, other| one.0.total_cmp(&other.0))?;
        let growth = Self { fixed: fixed * 1e6, base, each };
        (growth.base + growth.each > 0.0).then_some(growth)
    }
}

/// Solves the normal equations for some columns by elimination; `None` where they do not tell the
/// columns apart.
fn least_squares(rows: &[([f64; 3], f64)], columns: &[usize]) -> Option<Vec<f64>> {
    let n = columns.len();
    let mut matrix = vec![vec![0.0; n + 1]; n];
    for (row, is) in rows {
        for (i, &one) in columns.iter().enumerate() {
            for (j, &other) in columns.iter().enumerate() {
                matrix[i][j] += row[one] * row[other];
            }
            matrix[i][n] += row[one] * is;
        }
    }
    for at in 0..n {
        let largest =
            (at..n).max_by(|&a, &b| matrix[a][at].abs().total_cmp(&matrix[b][at].abs()))?;
        matrix.swap(at, largest);
        let scale = matrix[at].iter().take(n).map(|value| value.abs()).fold(0.0, f64::max);
        if matrix[at][at].abs() <= 1e-9 * scale.max(1e-9) {
            return None;
        }
        let pivot = matrix[at].clone();
        for (row, line) in matrix.iter_mut().enumerate() {
            if row != at {
                let times = line[at] / pivot[at];
                line.iter_mut().zip(&pivot).for_each(|(value, above)| *value -= times * above);
            }
        }
    }
    Some((0..n).map(|at| matrix[at][n] / matrix[at][at]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_finds_what_made_the_batches() {
        for growth in [
            Growth { fixed: 2e6, base: 0.0, each: 0.3 },
            Growth { fixed: 0.0, base: 0.95, each: 0.05 },
            Growth { fixed: 1e6, base: 0.8, each: 0.2 },
        ] {
            let batches: Vec<_> = [1, 2, 4, 8]
                .into_iter()
                .flat_map(|size| [5.0, 20.0, 80.0].map(|ms| (size, Span::from_ms(ms))))
                .map(|(size, alone)| (size, alone, growth.latency(size, alone)))
                .collect();
            let found = Growth::fit(&batches).unwrap();
            for (size, alone, took) in batches {
                let error = found.latency(size, alone).0 as f64 / took.0 as f64 - 1.0;
                assert!(error.abs() < 1e-4, "{growth:?} {found:?}");
            }
        }
    }

    #[test]
    fn a_fit_is_never_negative_and_needs_something() {
        assert_eq!(Growth::fit(&[]), None);
        assert_eq!(Growth::fit(&[(1, Span::ZERO, Span(5))]), None);
        // Larger batches that are faster: noise.
        let odd = [(1, Span(1000), Span(1000)), (4, Span(1000), Span(900))];
        let found = Growth::fit(&odd).unwrap();
        assert!(found.fixed >= 0.0 && found.base >= 0.0 && found.each >= 0.0, "{found:?}");
        let growth = Growth { fixed: 100.0, base: 0.5, each: 0.5 };
        assert!((growth.alone_within(3, growth.latency_ns(3, 500.0)) - 500.0).abs() < 0.1);
    }
}
