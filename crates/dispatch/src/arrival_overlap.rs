//! Whether requests come while others of their model are still there.
//!
//! The gaps between requests do not tell: a client that asks again when it has been answered has a
//! steady rate, and will never join the request that is held for it. So the gaps are told apart by
//! how they ended: with a request that found others waiting or running, or only after all had left.

use fermata_core::{Span, Time};

/// One bucket an octave, from 2^10 ns (a microsecond) to 2^34 ns (17 s).
const BUCKETS: usize = 24;
const FIRST_OCTAVE: u32 = 10;
/// The counts are halved after this time: whoever does not hold learns nothing new about long gaps,
/// and should try again now and then.
const HALF_LIFE: Span = Span(2_000_000_000);
/// So many arrivals must have been expected before their absence says anything: by chance, none of
/// eight come once in three thousand times.
const EVIDENCE: f64 = 8.0;
/// Fewer than this share of the expected arrivals is none. The bursts of table 1 (Gamma 0.1) leave
/// a tenth behind them.
const SHARE_MIN: f64 = 0.05;
/// A gap in which so many arrivals were expected, and none came, is worth thinking about at once.
const SURPRISE: f64 = 4.0;

/// A pattern of arrivals that repeats itself is learned from this many rounds.
const ROUNDS: usize = 3;
/// In each of them so many arrivals were expected, and none came: by chance, that happens to all of
/// three once in two thousand times.
const IN_VAIN: f64 = 2.5;

/// Nobody joins who comes alone again and again, when so many were expected meanwhile: by chance,
/// that happens once in a hundred and fifty times.
const ALONE: f64 = 5.0;

/// Arrivals that found others, until one came after all had left.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The longest gap that ended with a request that found others, in nanoseconds.
    longest: u64,
    /// How many arrivals were expected in the last gap while others were there.
    expected: f64,
}

/// How gaps ended, by their length.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalOverlap {
    halved: Time,
    /// With a request that found others.
    came: [u32; BUCKETS],
    /// With the others gone, so long after the last arrival.
    left: [u32; BUCKETS],
    /// The rounds that ended last.
    rounds: [Round; ROUNDS],
    /// The longest gap so far of the round that goes on.
    longest: u64,
    /// How many rounds of a single arrival there were since one found others, and how many were
    /// expected meanwhile.
    alone: u32,
    expected: f64,
}

impl ArrivalOverlap {
    /// Nothing has come yet.
    pub(crate) fn new(now: Time) -> Self {
        Self {
            halved: now,
            came: [0; BUCKETS],
            left: [0; BUCKETS],
            rounds: [Round::default(); ROUNDS],
            longest: 0,
            alone: 0,
            expected: 0.0,
        }
    }

    /// A request came at `now`, the one before it at `last`; others were there until `until`. True,
    /// if it is a surprise that it did not come while they were, at `rate` arrivals a nanosecond,
    /// or that it did.
    #[inline]
    pub(crate) fn note(&mut self, now: Time, last: Time, until: Time, rate: f64) -> bool {
        if now - self.halved > HALF_LIFE {
            self.halved = now;
            self.came.iter_mut().chain(&mut self.left).for_each(|count| *count /= 2);
        }
        if until >= now {
            let gap = (now - last).0;
            self.came[bucket(gap)] += 1;
            self.longest = self.longest.max(gap);
            if self.alone == 0 {
                return false;
            }
            let was_alone = self.is_alone();
            (self.alone, self.expected) = (0, 0.0);
            return was_alone;
        }
        let there = (until - last).0;
        self.left[bucket(there)] += 1;
        let (expected, known) = (there as f64 * rate, self.repeats());
        self.end_round(expected);
        expected > SURPRISE || self.repeats() != known
    }

    /// A round ended, with a gap in which so many were expected in vain.
    fn end_round(&mut self, expected: f64) {
        let longest = std::mem::take(&mut self.longest);
        if longest == 0 {
            self.alone += 1;
            self.expected += expected;
        }
        // Once a pattern is known nobody is waited for, so that nobody is expected: it stays known
        // while it repeats itself.
        let is_known = self.repeats().is_some_and(|within| longest <= within.0);
        let expected = if is_known { expected.max(IN_VAIN) } else { expected };
        self.rounds.rotate_left(1);
        self.rounds[ROUNDS - 1] = Round { longest, expected };
    }

    /// Whether whoever comes has come alone for long enough.
    fn is_alone(&self) -> bool {
        self.alone as usize >= ROUNDS && self.expected >= ALONE
    }

    /// How long after an arrival nobody joined in any of the last rounds, though many were
    /// expected: twice the longest gap. Counts by length tell the same, but only when those of
    /// another pattern have faded.
    fn repeats(&self) -> Option<Span> {
        if self.is_alone() {
            return Some(Span::ZERO);
        }
        let in_vain = self.rounds.iter().all(|round| round.expected >= IN_VAIN);
        let longest = self.rounds.iter().map(|round| round.longest).max();
        longest.filter(|_| in_vain).map(|longest| Span(2 * longest))
    }

    /// How long after an arrival nobody joins any more, if requests come at `rate` a nanosecond on
    /// average: the least age of a gap beyond which hardly any came, of those expected in the time
    /// that others were there.
    pub(crate) fn ends_after(&self, rate: f64) -> Span {
        let (mut end, mut others, mut came, mut exposed) = (Span::MAX, 0.0, 0.0, 0.0);
        for at in (0..BUCKETS).rev() {
            let (from, to) = (bucket_start(at), bucket_start(at + 1));
            let here = f64::from(self.came[at]) + f64::from(self.left[at]);
            exposed += (others + here / 2.0) * (to - from);
            others += here;
            came += f64::from(self.came[at]);
            let expected = rate * exposed;
            if expected >= EVIDENCE && came < SHARE_MIN * expected {
                end = Span(from as u64);
            }
        }
        self.repeats().map_or(end, |within| end.min(within))
    }
}

#[inline]
fn bucket(gap: u64) -> usize {
    let octave = 63 - (gap | 1 << FIRST_OCTAVE).leading_zeros();
    ((octave - FIRST_OCTAVE) as usize).min(BUCKETS - 1)
}

fn bucket_start(at: usize) -> f64 {
    if at == 0 { 0.0 } else { (1u64 << (FIRST_OCTAVE as usize + at)) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn one_who_asks_again_when_answered_has_no_company() {
        let mut overlap = ArrivalOverlap::new(Time::START);
        for turn in 1..50u64 {
            let last = Time(turn * 2 * MS);
            // Answered after a millisecond, it asks again after two.
            overlap.note(last + Span(2 * MS), last, last + Span(MS), 0.0);
        }
        assert_eq!(overlap.ends_after(1.0 / (2 * MS) as f64), Span::ZERO);
    }

    #[test]
    fn another_pattern_is_known_after_three_rounds() {
        let mut overlap = ArrivalOverlap::new(Time::START);
        let rate = 1.0 / MS as f64;
        let mut now = Time::START;
        for _ in 0..5_000 {
            let last = now;
            now += Span(MS);
            overlap.note(now, last, Time::NEVER, rate);
        }
        assert_eq!(overlap.ends_after(rate), Span::MAX);
        for _ in 0..5 {
            assert_eq!(overlap.repeats(), None, "not yet");
            let last = now;
            now += Span(4 * MS);
            overlap.note(now, last, last + Span(3 * MS / 2), rate);
        }
        assert_eq!(overlap.ends_after(rate), Span::ZERO, "one client asks in a loop");
        for _ in 0..50 {
            let last = now;
            now += Span(6 * MS);
            overlap.note(now, last, last + Span(3 * MS), rate);
        }
        assert_eq!(overlap.ends_after(rate), Span::ZERO, "though nobody is waited for");
        let last = now;
        now += Span(MS);
        overlap.note(now, last, Time::NEVER, rate);
        overlap.note(now + Span(9 * MS), now, now + Span(3 * MS), rate);
        assert_eq!(overlap.repeats(), Some(Span(2 * MS)), "but for another who came");
    }

    #[test]
    fn four_who_ask_together_are_waited_for_and_no_fifth() {
        let mut overlap = ArrivalOverlap::new(Time::START);
        let mut now = Time::START;
        for _ in 0..30 {
            for _ in 0..3 {
                let last = now;
                now += Span(100_000);
                overlap.note(now, last, Time::NEVER, 0.0);
            }
            let last = now;
            now += Span(20 * MS);
            assert!(overlap.note(now, last, last + Span(15 * MS), 1.0 / MS as f64));
        }
        let end = overlap.ends_after(4.0 / (20.3 * MS as f64));
        assert!((100_000..2 * MS).contains(&end.0), "{end}");
    }

    #[test]
    fn those_who_come_whatever_happens_are_waited_for() {
        let mut overlap = ArrivalOverlap::new(Time::START);
        let mut random = 1u64;
        let mut now = Time::START;
        for _ in 0..2000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let uniform = ((random >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            let last = now;
            now += Span((-uniform.ln() * MS as f64) as u64);
            overlap.note(now, last, last + Span(2 * MS), 0.0);
        }
        assert!(overlap.ends_after(1.0 / MS as f64) > Span(MS));
    }
}
