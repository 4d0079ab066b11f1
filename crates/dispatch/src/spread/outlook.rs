//! What a class of executor makes of a model's kinds, computed when the profile changes and not when a batch is formed.

use std::sync::Arc;

use fermata_core::{Distribution, KindId, Span, Spread};

/// A spread with what every decision needs of it.
#[derive(Clone, Debug)]
pub(super) struct Outlook {
    spread: Arc<Spread>,
    /// Places of kinds by the mean of what they take, the shortest first: kinds that are next to each other here go well
    /// together. The place behind the last kind is that of requests of no known kind.
    order: Box<[u16]>,
    /// By place: how long a request takes alone.
    alone: Box<[Distribution]>,
    /// By place: kinds of one group go together, those of different groups hardly ever.
    group: Box<[u16]>,
    /// By place: the least that a batch of one takes.
    shortest: Box<[Span]>,
    /// By place and size, the first being one: what a batch of requests of this place seldom takes longer than.
    tail: Box<[Span]>,
    /// The sizes that are looked at, ascending.
    sizes: Box<[u16]>,
    /// By shortest kind, longest kind (both in the order) and size: no such batch takes less on average, in nanoseconds, and none
    /// does more than one request for each of its own.
    least: Box<[f32]>,
}

/// A batch is held for others until it would be late this often.
const SELDOM: f32 = 0.03;
/// A kind is in a group with others of which the shortest takes at least one in so many of its time.
const ALIKE: f32 = 1.5;

impl Outlook {
    pub(super) fn new(spread: &Arc<Spread>) -> Self {
        let places = spread.kinds() + 1;
        let kind = |place: usize| KindId(place as u16);
        let mut order: Box<[u16]> = (0..places as u16).collect();
        let mean = |place: u16| spread.mean(KindId(place));
        order.sort_by(|&one, &other| mean(one).total_cmp(&mean(other)).then(one.cmp(&other)));
        let alone: Box<[Distribution]> =
            (0..places).map(|place| *spread.alone(kind(place))).collect();
        let (mut group, mut first, mut groups) = (vec![0; places], mean(order[0]), 0);
        for &place in &order {
            if mean(place) > ALIKE * first {
                (first, groups) = (mean(place), groups + 1);
            }
            group[usize::from(place)] = groups;
        }
        let sizes = sizes(spread.max_batch());
        let mut least = vec![0.0; places * places * sizes.len()];
        for low in 0..places {
            // As many of the shortest kind as there are beside the one of the longest.
            let mut short = Distribution::NOTHING;
            let mut joined = 0;
            for (at, &size) in sizes.iter().enumerate() {
                while joined + 1 < usize::from(size) {
                    short.join(&alone[usize::from(order[low])]);
                    joined += 1;
                }
                for high in low..places {
                    let mut longest = short;
                    longest.join(&alone[usize::from(order[high])]);
                    let mean = longest.mean(spread.grid());
                    least[(low * places + high) * sizes.len() + at] =
                        spread.growth().latency_ns(usize::from(size), mean);
                }
            }
        }
        let tail = (0..places).flat_map(|place| {
            let (growth, alone) = (spread.growth(), &alone[place]);
            (1..=spread.max_batch()).map(move |size| {
                let longest = alone.longest_of(size).quantile(spread.grid(), 1.0 - SELDOM);
                Span(growth.latency_ns(size, longest) as u64)
            })
        });
        let tail = tail.collect();
        let shortest = (0..places).map(|place| spread.shortest(kind(place))).collect();
        let (group, least) = (group.into(), least.into());
        Self { spread: spread.clone(), order, alone, group, shortest, tail, sizes, least }
    }

    #[inline]
    pub(super) fn spread(&self) -> &Spread {
        &self.spread
    }

    /// Places of kinds, the shortest first.
    #[inline]
    pub(super) fn order(&self) -> &[u16] {
        &self.order
    }

    /// How long a request in this place takes alone.
    #[inline]
    pub(super) fn alone(&self, place: usize) -> &Distribution {
        &self.alone[place]
    }

    /// Which kinds go together: those of one group.
    #[inline]
    pub(super) fn group(&self, place: usize) -> u16 {
        self.group[place]
    }

    /// The least that a batch of one takes, for a request in this place.
    #[inline]
    pub(super) fn shortest(&self, place: usize) -> Span {
        self.shortest[place]
    }

    /// How long a batch of the usual size takes whose longest request is of this place, and average.
    #[inline]
    pub(super) fn usually(&self, place: usize, usual: f32) -> Span {
        let size = usual.max(1.0) as usize;
        Span(self.spread.growth().latency_ns(size, self.spread.mean(KindId(place as u16))) as u64)
    }

    /// What a batch of `size` requests of this place seldom takes longer than; `None` for a size that cannot be run.
    #[inline]
    pub(super) fn tail(&self, place: usize, size: usize) -> Option<Span> {
        let largest = self.spread.max_batch();
        (size <= largest).then(|| self.tail[place * largest + size - 1])
    }

    /// The sizes that are looked at, ascending.
    #[inline]
    pub(super) fn sizes(&self) -> &[u16] {
        &self.sizes
    }

    /// More requests a nanosecond than this no batch does of kinds `low` to `high` of the order, with `available` requests to choose from.
    #[inline]
    pub(super) fn most(&self, low: usize, high: usize, available: usize) -> f32 {
        let from = (low * self.order.len() + high) * self.sizes.len();
        let least = &self.least[from..from + self.sizes.len()];
        let mut most = 0.0f32;
        for (&size, &least) in self.sizes.iter().zip(least) {
            most = most.max(f32::from(size).min(available as f32) / least);
            if usize::from(size) >= available {
                break;
            }
        }
        most
    }
}

/// Every size to 4, and two an octave from there on; between those next to the best, every size is looked at in the end.
fn sizes(largest: usize) -> Box<[u16]> {
    let mut sizes: Vec<u16> = Vec::new();
    let mut size = 1;
    while size < largest {
        sizes.push(size as u16);
        size = match size {
            1..4 => size + 1,
            _ if size.is_power_of_two() => size / 2 * 3,
            _ => size / 3 * 4,
        };
    }
    sizes.push(largest as u16);
    sizes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_close_and_end_at_the_largest() {
        assert_eq!(*sizes(16), [1, 2, 3, 4, 6, 8, 12, 16]);
        assert_eq!(*sizes(1), [1]);
        assert_eq!(*sizes(20), [1, 2, 3, 4, 6, 8, 12, 16, 20]);
    }
}
