//! How long a batch runs, by its size: a table, since real devices are not linear.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::{Distribution, Span, Spread};

/// Latency by batch size. Never empty, never falling; cheap to copy.
#[derive(Clone, PartialEq, Eq)]
pub struct Table {
    /// `latency[b - 1]` is the time a batch of `b` takes.
    latency: Arc<[Span]>,
}

/// What is known of how long batches of one model run on one class of executor: a table, which for
/// a model whose run time depends on the input has the means, and for such a model how its run
/// times are spread.
#[derive(Clone, PartialEq, Eq)]
pub struct Profile {
    table: Table,
    spread: Option<Arc<Spread>>,
}

/// Why a profile was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// There is no batch size at all.
    Empty,
    /// The latency of a batch of this size is zero.
    Zero(usize),
}

/// No table is longer than this: a batch of 4,096 is past the knee of every model we have seen.
const BATCH_MAX: usize = 4096;

impl Profile {
    /// From measured latencies for batches of 1, 2, 3, ...; made monotone, since a larger batch
    /// that was measured faster is noise or can be had by padding.
    pub fn from_table(latencies: impl IntoIterator<Item = Span>) -> Result<Self, ProfileError> {
        let mut highest = Span::ZERO;
        let latency: Arc<[Span]> = latencies
            .into_iter()
            .map(|span| {
                highest = highest.max(span);
                highest
            })
            .collect();
        if latency.is_empty() {
            return Err(ProfileError::Empty);
        }
        match latency.iter().position(|&span| span == Span::ZERO) {
            Some(at) => Err(ProfileError::Zero(at + 1)),
            None => Ok(Self { table: Table { latency }, spread: None }),
        }
    }

    /// `l(b) = alpha b + beta`, with as many sizes as finish within `longest` (at least one).
    pub fn linear(alpha: Span, beta: Span, longest: Span) -> Result<Self, ProfileError> {
        let fitting = (longest - beta).0.checked_div(alpha.0).unwrap_or(BATCH_MAX as u64);
        let sizes = (fitting as usize).clamp(1, BATCH_MAX);
        Self::from_table((1..=sizes as u64).map(|b| alpha * b + beta))
    }

    /// Of a model whose run time depends on the input: the table is that of the means.
    pub fn spread_out(spread: Arc<Spread>) -> Self {
        Self { table: spread.profile().table, spread: Some(spread) }
    }

    /// The table alone.
    #[inline]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// How run times are spread, where they depend on the input.
    #[inline]
    pub fn spread(&self) -> Option<&Arc<Spread>> {
        self.spread.as_ref()
    }
}

impl Spread {
    /// The mean time that a batch of requests of any kind takes, by size.
    pub fn profile(&self) -> Profile {
        let mut longest = Distribution::NOTHING;
        let means = (1..=self.max_batch()).map(|size| {
            longest.join(self.mixture());
            Span((self.growth().latency_ns(size, longest.mean(self.grid())) as u64).max(1))
        });
        Profile::from_table(means.collect::<Vec<_>>())
            .expect("there is a batch size, and runs take time")
    }
}

/// A profile is read as its table is.
impl Deref for Profile {
    type Target = Table;

    #[inline]
    fn deref(&self) -> &Table {
        &self.table
    }
}

impl Table {
    /// The largest batch that may be run.
    #[inline]
    pub fn max_batch(&self) -> usize {
        self.latency.len()
    }

    /// How long a batch of `size` takes; `Span::MAX` for a size that cannot be run.
    #[inline]
    pub fn latency(&self, size: usize) -> Span {
        debug_assert!(size > 0, "an empty batch has no latency");
        self.latency.get(size - 1).copied().unwrap_or(Span::MAX)
    }

    /// How long a batch of one takes: nothing is faster.
    #[inline]
    pub fn shortest(&self) -> Span {
        self.latency[0]
    }

    /// The largest batch that finishes within `budget`; zero if not even one does.
    #[inline]
    pub fn largest_within(&self, budget: Span) -> usize {
        self.latency.partition_point(|&latency| latency <= budget)
    }

    /// The same, when the answer is known to be at most `limit`, and likely to be near it.
    #[inline]
    pub fn largest_within_at_most(&self, budget: Span, limit: usize) -> usize {
        let limit = limit.min(self.latency.len());
        if limit == 0 || self.latency[limit - 1] <= budget {
            return limit;
        }
        self.latency[..limit - 1].partition_point(|&latency| latency <= budget)
    }

    /// The largest batch that gathers and runs within `budget`, at `rate` requests a nanosecond:
    /// `l(b) + b / rate <= budget` (Symphony 3.3, equation 1; Nexus 6.1, equation 2). Zero, if not
    /// even one request does.
    pub fn gathered_within(&self, budget: Span, rate: f64) -> usize {
        let budget = budget.0 as f64;
        let (mut fits, mut above) = (0, self.max_batch() + 1);
        while above - fits > 1 {
            let middle = fits.midpoint(above);
            let time = self.latency(middle).0 as f64 + middle as f64 / rate;
            if time <= budget { fits = middle } else { above = middle }
        }
        fits
    }

    /// Executor time per request in a batch of `size`, in nanoseconds.
    pub fn cost(&self, size: usize) -> f64 {
        self.latency(size).0 as f64 / size as f64
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.latency[0], self.latency[self.latency.len() - 1]);
        write!(f, "({first} at 1 .. {last} at {})", self.latency.len())
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profile{:?}", self.table)?;
        self.spread.as_ref().map_or(Ok(()), |spread| write!(f, " {spread:?}"))
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a profile needs the latency of at least one batch size"),
            Self::Zero(size) => write!(f, "the latency of a batch of {size} is zero"),
        }
    }
}

impl std::error::Error for ProfileError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn resnet50() -> Profile {
        Profile::linear(Span::from_ms(1.053), Span::from_ms(5.072), Span::from_ms(25.0)).unwrap()
    }

    #[test]
    fn linear_profiles_end_where_the_longest_latency_does() {
        let profile = resnet50();
        assert_eq!(profile.max_batch(), 18);
        assert_eq!(profile.latency(1), Span::from_ms(6.125));
        assert_eq!(profile.latency(19), Span::MAX);
    }

    #[test]
    fn largest_within_is_the_inverse_of_latency() {
        let profile = resnet50();
        for size in 1..=profile.max_batch() {
            let exactly = profile.latency(size);
            assert_eq!(profile.largest_within(exactly), size);
            assert_eq!(profile.largest_within(exactly - Span(1)), size - 1);
            for limit in 0..=20 {
                let expected = profile.largest_within(exactly).min(limit);
                assert_eq!(profile.largest_within_at_most(exactly, limit), expected);
            }
        }
    }

    #[test]
    fn batches_gather_and_run_within_the_budget() {
        let profile = resnet50();
        let gathered = |rate| profile.gathered_within(Span::from_ms(25.0), rate);
        // Eight executors at 16 / l(16) each: equation 1 holds with equality at about that rate.
        assert_eq!(gathered(5_839e-9), 16);
        assert_eq!((gathered(0.0), gathered(1.0)), (0, 18));
        for rate in [1e-8, 1e-7, 1e-6, 1e-5] {
            let time = |size: usize| profile.latency(size).0 as f64 + size as f64 / rate;
            let size = gathered(rate);
            assert!(size == 0 || time(size) <= 25e6, "{rate}");
            assert!(size == profile.max_batch() || time(size + 1) > 25e6, "{rate}");
        }
    }

    #[test]
    fn tables_become_monotone_and_bad_ones_are_refused() {
        let ms = |list: &[f64]| Profile::from_table(list.iter().map(|&ms| Span::from_ms(ms)));
        assert_eq!(ms(&[2.0, 1.0, 3.0]).unwrap().latency(2), Span::from_ms(2.0));
        assert_eq!(ms(&[]), Err(ProfileError::Empty));
        assert_eq!(ms(&[0.0, 1.0]), Err(ProfileError::Zero(1)));
    }
}
