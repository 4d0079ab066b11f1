//! The requests that came lately, and streams of requests that could come next: what came, again.

use fermata_core::{KindId, ModelId, Span, Time};

/// How many requests are remembered.
pub(super) const KEPT: usize = 131_072;
/// The variation of arrivals is that of the time in which so many come.
const PIECE: usize = 32;

/// A request that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// When it came, or comes.
    pub(super) at: Time,
    /// How long after that it had to be answered.
    pub(super) slack: Span,
    pub(super) model: ModelId,
    pub(super) kind: KindId,
}

/// The last requests of a pool, in a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    /// Empty until a request comes.
    ring: Vec<Arrival>,
    /// How many have come: the next one has its place in the ring by that.
    count: u64,
    /// The number of the first one that is remembered, if it is still in the ring.
    first: u64,
}

impl Arrivals {
    /// How many have come.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    pub(super) fn note(&mut self, arrival: Arrival) {
        if self.ring.len() < KEPT {
            self.make_room();
        }
        self.ring[self.count as usize % KEPT] = arrival;
        self.count += 1;
    }

    #[cold]
    fn make_room(&mut self) {
        self.ring.resize(KEPT, Arrival::default());
    }

    /// Only the last `most` are remembered.
    pub(super) fn forget_before(&mut self, most: usize) {
        self.first = self.count - self.known().min(most) as u64;
    }

    /// How many are remembered.
    pub(super) fn known(&self) -> usize {
        ((self.count - self.first) as usize).min(KEPT)
    }

    /// The one that came `ago` requests before the last one.
    fn back(&self, ago: usize) -> &Arrival {
        &self.ring[(self.count as usize - 1 - ago) % KEPT]
    }

    /// This many of those that are remembered without the last `skipped`, from the last one back.
    pub(super) fn last(&self, skipped: usize, most: usize) -> impl Iterator<Item = &Arrival> {
        (skipped..(skipped + most).min(self.known())).map(|ago| self.back(ago))
    }

    /// How long this many requests took to come, without the last `skipped`, if all are remembered.
    pub(super) fn duration_of(&self, skipped: usize, requests: usize) -> Option<Span> {
        let first = skipped + requests;
        (first < self.known()).then(|| self.back(skipped).at - self.back(first).at)
    }

    /// When the first request came that is remembered.
    pub(super) fn first_at(&self) -> Time {
        self.known().checked_sub(1).map_or(Time::START, |ago| self.back(ago).at)
    }

    /// The last `most` requests that are remembered, in their order, as if they came again from
    /// `from` on, with gaps of `gap` nanoseconds in the mean. If fewer than `least` are remembered,
    /// pieces of `piece` requests follow each other at random until there are as many; within a
    /// piece, bursts are as they were. Equal seeds give equal streams.
    pub(super) fn again(
        &self,
        seed: u64,
        from: Time,
        (least, most): (usize, usize),
        piece: usize,
        gap: f64,
    ) -> Vec<Arrival> {
        // The first one has no gap to the one before.
        let most = self.known().saturating_sub(1).min(most);
        let piece = if most < least { piece.min(most) } else { most };
        let mut stream = Vec::with_capacity(least.max(most) + piece);
        let (mut at, mut random) = (from, SplitMix(seed));
        while most > 0 && stream.len() < least.max(most) {
            let end = random.below(most - piece + 1);
            for ago in (end..end + piece).rev() {
                let arrival = self.back(ago);
                at += arrival.at - self.back(ago + 1).at;
                stream.push(Arrival { at, ..*arrival });
            }
        }
        scale(&mut stream, from, gap);
        stream
    }

    /// How much more the time varies in which a few requests come than if they came at random: one
    /// for a Poisson process.
    pub(super) fn variation(&self) -> f64 {
        let times = (0..self.known().saturating_sub(PIECE)).step_by(PIECE);
        let times = times.map(|ago| (self.back(ago).at - self.back(ago + PIECE).at).0 as f64);
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for time in times {
            (count, sum, squares) = (count + 1.0, sum + time, squares + time * time);
        }
        if sum == 0.0 { 1.0 } else { PIECE as f64 * (squares * count / (sum * sum) - 1.0) }
    }
}

/// Moves all arrivals so that their mean gap is `gap` nanoseconds.
fn scale(stream: &mut [Arrival], from: Time, gap: f64) {
    let Some(last) = stream.last() else { return };
    let times = gap * stream.len() as f64 / ((last.at - from).0 as f64).max(1.0);
    for arrival in stream {
        arrival.at = from + Span(((arrival.at - from).0 as f64 * times) as u64);
    }
}

/// A small generator of random numbers (Steele, Lea and Flood's), so that the same events give the
/// same contest.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(count: u64) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for number in 0..count {
            arrivals.note(Arrival {
                at: Time(number * 100),
                slack: Span(7),
                model: ModelId((number % 3) as u32),
                kind: KindId(0),
            });
        }
        arrivals
    }

    #[test]
    fn requests_come_again_in_their_order_at_the_mean_gap() {
        for count in [2, 20, 1_000, 140_000] {
            let arrivals = arrivals(count);
            let stream = arrivals.again(1, Time(5_000_000), (300, KEPT), 32, 200.0);
            assert!(stream.len() >= 300.max(arrivals.known() - 1), "{count}");
            assert_eq!(stream[0].at, Time(5_000_200));
            assert!(stream.windows(2).all(|pair| pair[1].at - pair[0].at == Span(200)), "{count}");
            let in_order = |pair: &&[Arrival]| pair[1].model.0 == (pair[0].model.0 + 1) % 3;
            assert!(count < 20 || stream.windows(2).filter(in_order).count() > 280, "{count}");
            assert_eq!(stream, arrivals.again(1, Time(5_000_000), (300, KEPT), 32, 200.0));
        }
        assert!(arrivals(1).again(1, Time::START, (10, KEPT), 32, 100.0).is_empty());
    }

    #[test]
    fn regular_requests_do_not_vary_and_bursts_do() {
        assert_eq!(arrivals(1_000).variation(), 0.0);
        let mut bursts = Arrivals::default();
        for number in 0..1_000 {
            let at = Time(number + 1_000_000 * (number / 100));
            bursts.note(Arrival { at, slack: Span(7), model: ModelId(0), kind: KindId(0) });
        }
        assert!(bursts.variation() > 20.0);
    }

    #[test]
    fn only_the_last_requests_are_remembered() {
        let mut arrivals = arrivals(140_000);
        assert_eq!((arrivals.count(), arrivals.known()), (140_000, KEPT));
        assert_eq!(arrivals.duration_of(0, 8), Some(Span(800)));
        arrivals.forget_before(10);
        assert_eq!((arrivals.last(0, 100).count(), arrivals.duration_of(0, 10)), (10, None));
        assert_eq!(arrivals.duration_of(4, 5), Some(Span(500)));
    }
}
