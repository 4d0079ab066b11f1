//! Counts of spans in logarithmic buckets: every quantile to within one part in 64.

use fermata_core::Span;

/// Sub-buckets per octave, as a power of two.
const FINE: u32 = 6;

/// A histogram of spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    /// The longest of all: no quantile is above it, though its bucket's end may be.
    longest: Span,
}

impl Histogram {
    /// Counts one span.
    #[inline]
    pub fn add(&mut self, span: Span) {
        let at = bucket(span.0);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.longest = self.longest.max(span);
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }

    /// The span that `share` of all are not longer than; zero if there are none.
    pub fn quantile(&self, share: f64) -> Span {
        let rank = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Span(bucket_top(at)).min(self.longest);
            }
        }
        Span::ZERO
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    let octave = (63 - (value | 1 << FINE).leading_zeros()) - FINE;
    ((octave as usize) << FINE) + (value >> octave) as usize
}

fn bucket_top(at: usize) -> u64 {
    if at < 2 << FINE {
        return at as u64;
    }
    let octave = (at >> FINE) - 1;
    let low = ((at - (octave << FINE)) as u64) << octave;
    low + (1 << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_sixty_fourth() {
        let mut histogram = Histogram::default();
        (1..=100_000u64).for_each(|n| histogram.add(Span(n * 1000)));
        for share in [0.01, 0.5, 0.99, 0.999, 1.0] {
            let (exact, found) = (share * 1e8, histogram.quantile(share).0 as f64);
            assert!(found >= exact && found <= exact * (1.0 + 1.0 / 64.0), "{share}: {found}");
        }
        assert_eq!(histogram.quantile(1.0), Span(100_000_000));
        assert_eq!(Histogram::default().quantile(0.5), Span::ZERO);
    }
}
