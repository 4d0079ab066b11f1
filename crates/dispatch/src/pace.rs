//! How a model's requests arrive: their rate, and the distribution of the gaps between them.
//!
//! The gaps are kept as a decaying histogram with two buckets an octave, so that a burst is seen ending:
//! under a bursty load most gaps are tiny, and once the current one has outgrown them, the next arrival is
//! far away.

use fermata_core::Time;

/// A sample of the rate is taken at the first arrival after this many nanoseconds.
const BEAT_NS: u64 = 50_000_000;
/// The rate forgets with this time constant.
const MEMORY_NS: f64 = 2.5e9;
/// Two buckets an octave, from 2^10 ns (a microsecond) to 2^34 ns (17 s).
const BUCKETS: usize = 48;
const FIRST_OCTAVE: u32 = 10;
/// The histogram halves its counts when it has this many: it remembers about the last thousand gaps.
const GAPS_MAX: u32 = 1024;

/// The arrivals of one model, summarised.
#[derive(Clone, Debug)]
pub struct Pace {
    last: Time,
    beat: Time,
    count: u32,
    beats: u32,
    /// Requests per nanosecond.
    rate: f64,
    total: u32,
    gaps: [u16; BUCKETS],
}

impl Pace {
    /// Nothing has arrived yet.
    pub fn new(now: Time) -> Self {
        Self { last: now, beat: now, count: 0, beats: 0, rate: 0.0, total: 0, gaps: [0; BUCKETS] }
    }

    /// A request arrived. True when the rate was sampled anew, or enough gaps came to look again.
    #[inline]
    pub fn arrive(&mut self, now: Time) -> bool {
        let gap = (now - self.last).0;
        self.last = now;
        self.gaps[bucket(gap)] += 1;
        self.total += 1;
        if self.total == GAPS_MAX {
            self.total = 0;
            for count in &mut self.gaps {
                *count /= 2;
                self.total += u32::from(*count);
            }
        }
        self.count += 1;
        let elapsed = (now - self.beat).0;
        if elapsed < BEAT_NS {
            return self.count % 64 == 0;
        }
        self.beats += 1;
        let sample = f64::from(self.count) / elapsed as f64;
        // At first every sample weighs the same; later the old ones fade.
        let weight = (1.0 - (-(elapsed as f64) / MEMORY_NS).exp()).max(1.0 / f64::from(self.beats));
        self.rate += (sample - self.rate) * weight;
        self.beat = now;
        self.count = 0;
        true
    }

    /// When the last request came.
    #[inline]
    pub fn last(&self) -> Time {
        self.last
    }

    /// Requests per nanosecond; zero before the first sample.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The squared coefficient of variation of the gaps.
    pub fn variation(&self) -> f64 {
        if self.total < 16 {
            return 1.0;
        }
        let (mut mean, mut square) = (0.0, 0.0);
        for (at, &count) in self.gaps.iter().enumerate() {
            let (from, to) = (bucket_end_before(at), bucket_end(at));
            let share = f64::from(count) / f64::from(self.total);
            mean += share * (from + to) / 2.0;
            square += share * (from * from + from * to + to * to) / 3.0;
        }
        (square / (mean * mean) - 1.0).max(0.0)
    }

    /// How long after an arrival it pays to wait for the next one, in nanoseconds, if the next one is
    /// worth `saving` nanoseconds of executor time and waiting costs `price` per nanosecond: the `t` that
    /// maximises `saving P(gap <= t) - price E[min(gap, t)]`.
    pub fn patience(&self, saving: f64, price: f64, hold: bool, edge: f64) -> u64 {
        if self.total < 16 {
            return 0;
        }
        let total = f64::from(self.total);
        let (mut best, mut patience) = (0.0, 0);
        let (mut seen, mut waited, mut from) = (0.0, 0.0, 0.0);
        for (at, &count) in self.gaps.iter().enumerate() {
            if count == 0 {
                continue;
            }
            let to = bucket_end(at);
            let start = bucket_end_before(at);
            let share = f64::from(count) / total;
            waited += (1.0 - seen) * (start - from) + (1.0 - seen - share / 2.0) * (to - start);
            seen += share;
            from = to;
            let gain = saving * seen - price * waited;
            if gain > best {
                (best, patience) = (gain, to as u64);
            }
        }
        let forever = saving - price * waited;
        if hold {
            if best - forever < edge * saving { u64::MAX } else { patience }
        } else if best < edge * saving {
            0
        } else {
            patience
        }
    }
}

#[inline]
fn bucket(gap: u64) -> usize {
    let gap = gap | 1 << FIRST_OCTAVE;
    let octave = 63 - gap.leading_zeros();
    let half = (gap >> (octave - 1)) & 1;
    (((octave - FIRST_OCTAVE) * 2) as usize + half as usize).min(BUCKETS - 1)
}

fn bucket_end(at: usize) -> f64 {
    let octave = (1u64 << (FIRST_OCTAVE as usize + at / 2)) as f64;
    if at % 2 == 0 { octave * 1.5 } else { octave * 2.0 }
}

fn bucket_end_before(at: usize) -> f64 {
    if at == 0 { 0.0 } else { bucket_end(at - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_their_gaps() {
        for gap in [0, 1, 1023, 1024, 1536, 5_000, 1_000_000, 20_000_000_000, u64::MAX] {
            let at = bucket(gap);
            assert!(at == BUCKETS - 1 || (gap as f64) < bucket_end(at), "{gap}");
            assert!(gap < 2048 || gap as f64 >= bucket_end_before(at), "{gap}");
        }
    }

    #[test]
    fn patience_ends_with_the_burst() {
        let mut pace = Pace::new(Time::START);
        let mut now = Time::START;
        for i in 0..1000u64 {
            now.0 += if i % 10 == 0 { 100_000_000 } else { 100_000 };
            pace.arrive(now);
        }
        let patience = pace.patience(1e6, 0.5, false, 0.1);
        assert!((100_000..1_000_000).contains(&patience), "{patience}");
        assert_eq!(pace.patience(1e3, 0.5, false, 0.1), 0, "a worthless arrival is not waited for");
    }
}
