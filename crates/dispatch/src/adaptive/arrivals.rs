//! The requests that came lately, and streams of requests that could come next: pieces of what came, in random order.

use fermata_core::{KindId, ModelId, Span, Time};

/// How many requests are remembered.
const KEPT: usize = 16_384;
/// A stream is made of pieces of so many requests. Within a piece, bursts are as they were.
const PIECE: usize = 32;

/// A request that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    ring: Vec<Arrival>,
    /// How many have come: the next one has its place in the ring by that.
    count: u64,
    /// How many of the last ones are remembered.
    known: usize,
}

impl Arrivals {
    /// How many have come.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    pub(super) fn note(&mut self, arrival: Arrival) {
        let at = self.count as usize % KEPT;
        match self.ring.get_mut(at) {
            Some(place) => *place = arrival,
            None => self.ring.push(arrival),
        }
        self.count += 1;
        self.known = (self.known + 1).min(KEPT);
    }

    /// Only the last `most` are remembered.
    pub(super) fn forget_before(&mut self, most: usize) {
        self.known = self.known.min(most);
    }

    /// How many are remembered.
    pub(super) fn known(&self) -> usize {
        self.known
    }

    /// The one that came `ago` requests before the last one.
    fn back(&self, ago: usize) -> &Arrival {
        &self.ring[(self.count as usize - 1 - ago) % KEPT]
    }

    /// The last ones of those that are remembered, at most so many, from the last one back.
    pub(super) fn last(&self, most: usize) -> impl Iterator<Item = &Arrival> {
        (0..most.min(self.known)).map(|ago| self.back(ago))
    }

    /// How long ago the request before the last `requests` came, if it is remembered.
    pub(super) fn duration_of(&self, requests: usize) -> Option<Span> {
        (requests < self.known).then(|| self.back(0).at - self.back(requests).at)
    }

    /// A stream of `most` requests from `from` on, with gaps that are `gap` nanoseconds in the mean. Equal seeds give equal
    /// streams.
    pub(super) fn stream(&self, seed: u64, from: Time, most: usize, gap: f64) -> Vec<Arrival> {
        let mut stream = Vec::with_capacity(most + PIECE);
        let mut random = SplitMix(seed);
        let mut at = from;
        // A piece begins with a request whose gap to the one before is known.
        let starts = self.known.saturating_sub(PIECE).max(1);
        while stream.len() < most && self.known > 1 {
            let first = self.known - 2 - random.below(starts).min(self.known - 2);
            for ago in (first.saturating_sub(PIECE - 1)..=first).rev() {
                let arrival = self.back(ago);
                at = at + (arrival.at - self.back(ago + 1).at);
                stream.push(Arrival { at, ..*arrival });
            }
        }
        stream.truncate(most);
        scale(&mut stream, from, gap);
        stream
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

/// A small generator of random numbers (Steele, Lea and Flood's), so that the same events give the same contest.
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
    fn a_stream_has_the_gaps_and_the_order_of_what_came() {
        for count in [2, 20, 1_000, 20_000] {
            let arrivals = arrivals(count);
            let stream = arrivals.stream(1, Time(5_000_000), 300, 100.0);
            assert_eq!(stream.len(), 300);
            assert_eq!(stream[0].at, Time(5_000_100));
            assert!(stream.windows(2).all(|pair| pair[1].at - pair[0].at == Span(100)), "{count}");
            let in_order = |pair: &&[Arrival]| pair[1].model.0 == (pair[0].model.0 + 1) % 3;
            assert!(count < 20 || stream.windows(2).filter(in_order).count() > 280, "{count}");
            assert_eq!(stream, arrivals.stream(1, Time(5_000_000), 300, 100.0));
        }
        assert!(arrivals(1).stream(1, Time::START, 10, 100.0).is_empty());
    }

    #[test]
    fn only_the_last_requests_are_remembered() {
        let mut arrivals = arrivals(20_000);
        assert_eq!((arrivals.count(), arrivals.known()), (20_000, KEPT));
        assert_eq!(arrivals.duration_of(8), Some(Span(800)));
        arrivals.forget_before(10);
        assert_eq!((arrivals.last(100).count(), arrivals.duration_of(10)), (10, None));
        assert_eq!(arrivals.duration_of(9), Some(Span(900)));
    }
}
