//! How a model's requests arrive: their rate, and the distribution of the gaps between them.
//!
//! The gaps are kept as a decaying histogram with two buckets an octave, so that a burst is seen
//! ending: under a bursty load most gaps are tiny, and once the current one has outgrown them, the
//! next arrival is far away.

use fermata_core::{Span, Time};

/// A sample of the rate is taken when this many nanoseconds have passed and enough requests have
/// come to tell something, or when many have passed.
const BEAT_NS: u64 = 50_000_000;
const BEAT_REQUESTS: u32 = 64;
const BEAT_NS_MAX: u64 = 500_000_000;
/// The first few requests are taken to have come over at least this long: two that come together
/// are no rate.
const FIRST_NS: u64 = BEAT_NS / 8;
/// A model without a request for this long is quiet: it takes no part in the market.
const QUIET: Span = Span(10_000_000_000);
/// The rate forgets with this time constant.
const MEMORY_NS: f64 = 2.5e9;
/// Two buckets an octave, from 2^10 ns (a microsecond) to 2^34 ns (17 s).
const BUCKETS: usize = 48;
const FIRST_OCTAVE: u32 = 10;
/// The histogram halves its counts when it has this many: it remembers about the last thousand
/// gaps.
const GAPS_MAX: u32 = 1024;

/// Where not to hold is the rule, some time is held if that gains this share of what an arrival is
/// worth. Less may be an accident of the gaps that were seen.
const GAIN_TO_HOLD: f64 = 0.1;

/// The arrivals of one model, summarised.
#[derive(Clone, Debug)]
#[repr(C)] // The histogram last: not every policy needs it.
pub struct ArrivalStats {
    last: Time,
    beat: Time,
    count: u32,
    /// How long the samples lasted that the rate remembers; zero before the first.
    sampled_ns: f64,
    /// Requests per nanosecond.
    rate: f64,
    total: u32,
    gaps: [u16; BUCKETS],
}

impl ArrivalStats {
    /// Nothing has arrived yet.
    pub fn new(now: Time) -> Self {
        Self {
            last: now,
            beat: now,
            count: 0,
            sampled_ns: 0.0,
            rate: 0.0,
            total: 0,
            gaps: [0; BUCKETS],
        }
    }

    /// A request arrived. True when it is time to derive from the arrivals anew: at each sample of
    /// the rate, after 64 gaps, and often at the beginning, when every gap tells much. Who needs
    /// only the rate says so: the histogram is a cache line of its own.
    #[inline]
    pub fn arrive(&mut self, now: Time, rate_only: bool) -> bool {
        let gap = (now - self.last).0;
        self.last = now;
        self.count += 1;
        if self.sampled_ns == 0.0 && self.count == 1 {
            self.beat = now; // There is no gap before the first request.
            return false;
        }
        if !rate_only {
            self.note_gap(gap);
        }
        let elapsed = (now - self.beat).0;
        if elapsed < if self.count < BEAT_REQUESTS { BEAT_NS_MAX } else { BEAT_NS } {
            if self.sampled_ns == 0.0 {
                self.rate = f64::from(self.count - 1) / elapsed.max(FIRST_NS) as f64;
                return self.count.is_power_of_two();
            }
            return self.count.is_multiple_of(BEAT_REQUESTS);
        }
        // A sample weighs as much as it lasted: it ends with a request, so that short ones tell of
        // too high a rate. At first every moment weighs the same; later the old ones fade.
        let elapsed = elapsed as f64;
        let sample = f64::from(self.count) / elapsed;
        self.rate += (sample - self.rate) * elapsed / (elapsed + self.sampled_ns);
        self.sampled_ns = (self.sampled_ns + elapsed).min(MEMORY_NS);
        self.beat = now;
        self.count = 0;
        true
    }

    #[inline]
    fn note_gap(&mut self, gap: u64) {
        self.gaps[bucket(gap)] += 1;
        self.total += 1;
        if self.total == GAPS_MAX {
            self.total = 0;
            for count in &mut self.gaps {
                *count /= 2;
                self.total += u32::from(*count);
            }
        }
    }

    /// When the last request came.
    #[inline]
    pub fn last(&self) -> Time {
        self.last
    }

    /// When the model counts as quiet, should no request come before; never if it is.
    #[inline]
    pub fn quiet_at(&self) -> Time {
        if self.rate > 0.0 { self.last + QUIET } else { Time::NEVER }
    }

    /// The model is quiet: its rate is zero until requests come again.
    pub fn fall_quiet(&mut self) {
        (self.rate, self.count, self.sampled_ns) = (0.0, 0, 0.0);
    }

    /// Requests per nanosecond; zero before there are two requests.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The squared coefficient of variation of the gaps; that of a Poisson process before there are
    /// any.
    pub fn variation(&self) -> f64 {
        if self.total == 0 {
            return 1.0;
        }
        let (mut sum, mut squares) = (0.0, 0.0);
        for (at, &count) in self.gaps.iter().enumerate() {
            let (from, to) = (bucket_start(at), bucket_end(at));
            sum += f64::from(count) * (from + to) / 2.0;
            squares += f64::from(count) * (from * from + from * to + to * to) / 3.0;
        }
        (squares * f64::from(self.total) / (sum * sum) - 1.0).max(0.0)
    }

    /// How long after an arrival to hold for the next one, where not to hold is the rule: not at
    /// all, unless to hold for some time is clearly better. It is the `t` that maximises `saving
    /// P(gap <= t) - price E[min(gap, t)]`: the next arrival is worth `saving` nanoseconds of
    /// executor time, and waiting costs `price` per nanosecond.
    pub fn patience(&self, saving: f64, price: f64) -> Span {
        let (mut patience, mut best) = (Span::ZERO, GAIN_TO_HOLD * saving);
        let (mut waited, mut left, mut from) = (0.0, 1.0, 0.0);
        for (at, &count) in self.gaps.iter().enumerate() {
            if count == 0 {
                continue;
            }
            let (start, end) = (bucket_start(at), bucket_end(at));
            let share = f64::from(count) / f64::from(self.total);
            waited += left * (start - from) + (left - share / 2.0) * (end - start);
            left -= share;
            from = end;
            let gain = saving * (1.0 - left) - price * waited;
            if gain > best {
                (patience, best) = (Span(end as u64), gain);
            }
        }
        patience
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
    if at.is_multiple_of(2) { octave * 1.5 } else { octave * 2.0 }
}

fn bucket_start(at: usize) -> f64 {
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
            assert!(gap < 2048 || gap as f64 >= bucket_start(at), "{gap}");
        }
    }

    #[test]
    fn patience_ends_with_the_burst() {
        let mut arrivals = ArrivalStats::new(Time::START);
        let mut now = Time::START;
        for i in 0..1000u64 {
            now.0 += if i % 10 == 0 { 100_000_000 } else { 100_000 };
            arrivals.arrive(now, false);
        }
        let patience = arrivals.patience(1e6, 0.5);
        assert!((100_000..1_000_000).contains(&patience.0), "{patience}");
        assert_eq!(arrivals.patience(1e3, 0.5), Span::ZERO, "worth nothing, not waited for");
        assert!(arrivals.patience(1e6, 0.0).0 > 100_000_000, "waiting that costs nothing");
        assert!(arrivals.variation() > 5.0);
    }
}
