//! Ranges of lengths whose requests take about as long, from what was measured alone.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fermata_core::{KindId, Span};

/// Requests of one range differ by about this much in what they take.
const APART: f64 = 1.07;
/// Nobody asks for more.
const LENGTH_MAX: usize = 1 << 32;
/// More ranges than this would make a decision slow.
const MOST: usize = 32;

/// What requests of each length take alone, and the ranges that were made of it.
#[derive(Debug)]
pub(crate) struct Lengths {
    /// The longest length of each range, rising. Never empty.
    ends: Box<[usize]>,
    /// What was measured: lengths that rise, and what one of it takes alone, which never falls.
    /// Never empty.
    alone: Vec<(usize, Span)>,
    /// What is longer fails, and with it the batch that it is in.
    limit: Option<usize>,
    /// It was said that requests are longer than what was measured.
    warned: AtomicBool,
}

impl Lengths {
    /// From what requests of some lengths take; `None` without any. Beyond `limit` the model fails.
    pub(crate) fn new(mut alone: Vec<(usize, Span)>, limit: Option<usize>) -> Option<Self> {
        alone.sort_unstable();
        alone.dedup_by_key(|(length, _)| *length);
        // A longer request that was measured faster is noise.
        let mut highest = Span(1);
        for (_, took) in &mut alone {
            highest = highest.max(*took);
            *took = highest;
        }
        let (&(shortest, first), &(longest, last)) = (alone.first()?, alone.last()?);
        let ratio = (last.0 as f64 / first.0 as f64).powf(1.0 / (MOST - 1) as f64).max(APART);
        let (first_ends, warned) = (Box::new([longest]), AtomicBool::new(false));
        let mut found = Self { ends: first_ends, alone, limit, warned };
        let mut ends = Vec::with_capacity(MOST);
        let mut limit = first.0 as f64 * ratio;
        for length in shortest..longest {
            let next = found.alone(length + 1).0 as f64;
            if next > limit {
                ends.push(length);
                limit = next * ratio;
            }
        }
        // Rounding must not make one too many.
        ends.truncate(MOST - 1);
        ends.push(longest);
        found.ends = ends.into();
        Some(found)
    }

    /// How many ranges there are.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The range of a length. One beyond all is like the longest.
    #[inline]
    pub(super) fn kind(&self, length: usize) -> KindId {
        let at = self.ends.partition_point(|&end| end < length);
        KindId(at.min(self.ends.len() - 1) as u16)
    }

    /// The lengths of each range.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = std::ops::RangeInclusive<usize>> {
        let starts = [self.alone[0].0.min(self.ends[0])].into_iter();
        let starts = starts.chain(self.ends.iter().map(|end| end + 1));
        starts.zip(&*self.ends).map(|(start, &end)| start..=end)
    }

    /// What a request of this length takes alone: a straight line between lengths that were
    /// measured, and beyond them as it grew between the last two, at least in proportion.
    pub(crate) fn alone(&self, length: usize) -> Span {
        let after = self.alone.partition_point(|&(measured, _)| measured < length);
        let at = |index: usize| (self.alone[index].0 as f64, self.alone[index].1.0 as f64);
        let length = length as f64;
        let took = if after == 0 {
            at(0).1
        } else if let Some(&(to, end)) = self.alone.get(after) {
            let (from, start) = at(after - 1);
            start + (end.0 as f64 - start) * (length - from) / (to as f64 - from)
        } else {
            let (to, end) = at(after - 1);
            let exponent = after.checked_sub(2).map_or(1.0, |before| {
                let (from, start) = at(before);
                (end / start).ln() / (to / from.max(1.0)).ln()
            });
            // Attention grows with the square: more is noise.
            end * (length / to.max(1.0)).powf(exponent.clamp(1.0, 2.0))
        };
        Span(took as u64)
    }

    /// The longest request that was measured.
    pub(crate) fn longest(&self) -> usize {
        self.ends[self.ends.len() - 1]
    }

    /// The longest request that the model takes, if there is one.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// The longest request that takes no longer than this, alone; zero if none does.
    pub(crate) fn longest_within(&self, budget: Span) -> usize {
        let (mut fits, mut beyond) = (0, self.longest().max(1));
        while self.alone(beyond) <= budget && beyond < LENGTH_MAX {
            beyond *= 2;
        }
        while beyond - fits > 1 {
            let middle = usize::midpoint(fits, beyond);
            match self.alone(middle) <= budget {
                true => fits = middle,
                false => beyond = middle,
            }
        }
        fits
    }

    /// Whether it is to be said that a request was longer than what was measured: once.
    pub(crate) fn warns(&self) -> bool {
        !self.warned.swap(true, Relaxed)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A millisecond for every ten, and one more.
    pub(in super::super) fn linear() -> Lengths {
        let took = |length: usize| Span::from_ms(1.0 + length as f64 / 10.0);
        Lengths::new([1, 8, 64, 128].map(|length| (length, took(length))).to_vec(), None).unwrap()
    }

    #[test]
    fn requests_of_one_range_take_about_as_long() {
        let lengths = linear();
        assert!((16..=MOST).contains(&lengths.count()), "{}", lengths.count());
        let mut next = 1;
        for (at, range) in lengths.ranges().enumerate() {
            assert_eq!(*range.start(), next, "every length is in one range");
            next = range.end() + 1;
            let ratio =
                lengths.alone(*range.end()).0 as f64 / lengths.alone(*range.start()).0 as f64;
            assert!(ratio < 1.1, "{range:?}: {ratio}");
            assert!(range.clone().all(|length| lengths.kind(length).index() == at));
        }
        assert_eq!(next, 129);
        assert_eq!(lengths.kind(0), KindId(0));
        assert_eq!(lengths.kind(usize::MAX).index(), lengths.count() - 1);
    }

    #[test]
    fn what_was_not_measured_is_drawn_on() {
        let lengths = linear();
        assert_eq!(lengths.alone(4).as_ms(), 1.4);
        assert_eq!(lengths.alone(0).as_ms(), 1.1);
        let twice = lengths.alone(256).as_ms();
        assert!((27.0..29.0).contains(&twice), "{twice}");
        assert_eq!(lengths.longest_within(Span::from_ms(7.4)), 64);
        assert_eq!(lengths.longest_within(Span::from_ms(0.5)), 0);
        let beyond = lengths.longest_within(Span::from_ms(20.0));
        assert!((180..200).contains(&beyond), "{beyond}");
        assert!(lengths.warns() && !lengths.warns());
    }

    #[test]
    fn noise_and_single_measurements_do_no_harm() {
        assert!(Lengths::new(Vec::new(), None).is_none());
        let one = Lengths::new(vec![(16, Span::from_ms(2.0))], None).unwrap();
        assert_eq!((one.count(), one.kind(3), one.kind(99)), (1, KindId(0), KindId(0)));
        assert_eq!(one.alone(32).as_ms(), 4.0);
        let odd = [(8, 3.0), (4, 5.0), (8, 9.0), (16, 0.0), (2, 0.0)];
        let odd = Lengths::new(odd.map(|(at, ms)| (at, Span::from_ms(ms))).to_vec(), None).unwrap();
        assert_eq!(odd.alone(16), odd.alone(8));
        assert!(odd.count() <= MOST && odd.longest() == 16);
        let wide = [(1, Span(1)), (100_000, Span::MAX)];
        assert!(Lengths::new(wide.to_vec(), None).unwrap().count() <= MOST);
        assert!(odd.longest_within(Span::MAX) >= 16);
    }
}
