//! What a class of executor makes of a model's kinds, computed when the profile changes and not
//! when a batch is formed.

use std::sync::Arc;

use fermata_core::{Distribution, KindId, Span, Spread};

/// Requests join a batch that are in time with at least these probabilities.
pub(super) const CHANCES: [f32; 3] = [0.35, 0.65, 0.9];
/// A batch is held for others until it would be late this often.
const SELDOM: f32 = 0.03;
/// There are no more groups of kinds than this: those that take longest are one.
pub(super) const GROUPS: usize = 16;
/// A kind is in a group with others of which the shortest takes at least one in so many of its
/// time.
const ALIKE: f32 = 1.5;

/// A spread with what every decision needs of it. Kinds are spoken of by their *places*: the ids of
/// kinds, and behind the last that of requests of no known kind.
#[derive(Clone, Debug)]
pub(super) struct Outlook {
    spread: Arc<Spread>,
    /// Places by the mean of what requests take, the shortest first: those next to each other here
    /// go well together.
    order: Box<[u16]>,
    /// By place: how long a request takes alone.
    alone: Box<[Distribution]>,
    /// By place: kinds of one group go together, those of different groups hardly ever.
    group: Box<[u16]>,
    /// By place: the least that a batch of one takes.
    shortest: Box<[Span]>,
    /// By place and size, the first being one: what a batch of requests of this place seldom takes
    /// longer than.
    tail: Box<[Span]>,
    /// By size, the first being one: how the time of a batch follows from that of its longest
    /// request.
    batch_times: Box<[BatchTime]>,
    /// The ranges of the order that batches are looked for in, narrow ones first.
    ranges: Box<[Range]>,
}

/// Kinds that are neighbours in the order, from `low` to `high`.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) low: u16,
    pub(super) high: u16,
    /// The next narrower range with the same longest kind begins here; at `high + 1` if there is
    /// none.
    pub(super) narrower: u16,
    /// Batches of its kinds as they usually come, by size.
    pub(super) batches: Box<[Batch]>,
}

/// A batch of some size, of kinds as they come.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) size: u16,
    /// How long its longest request takes.
    pub(super) longest: Distribution,
    /// How long it takes on average, in nanoseconds.
    pub(super) mean: f32,
    /// Who has this much time left is in time with the probability in the same place of `CHANCES`.
    pub(super) needed: [Span; CHANCES.len()],
}

/// A batch takes `fixed + factor l`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchTime {
    fixed: f32,
    factor: f32,
    inverse: f32,
}

impl Outlook {
    pub(super) fn new(spread: &Arc<Spread>) -> Self {
        let places = spread.kinds() + 1;
        let kind = |place: usize| KindId(place as u16);
        let mean = |place: u16| spread.mean(KindId(place));
        let mut order: Box<[u16]> = (0..places as u16).collect();
        order.sort_by(|&one, &other| mean(one).total_cmp(&mean(other)).then(one.cmp(&other)));
        let (mut group, mut first, mut groups) = (vec![0; places], mean(order[0]), 0);
        for &place in &order {
            if mean(place) > ALIKE * first {
                (first, groups) = (mean(place), groups + 1);
            }
            group[usize::from(place)] = groups;
        }
        let growth = spread.growth();
        let batch_times: Box<[BatchTime]> = (1..=spread.max_batch())
            .map(|size| {
                let (fixed, one) = (growth.latency_ns(size, 0.0), growth.latency_ns(size, 1e6));
                let factor = (one - fixed) / 1e6;
                BatchTime { fixed, factor, inverse: 1.0 / factor }
            })
            .collect();
        let mut outlook = Self {
            alone: (0..places).map(|place| *spread.alone(kind(place))).collect(),
            shortest: (0..places).map(|place| spread.shortest(kind(place))).collect(),
            spread: spread.clone(),
            order,
            group: group.into(),
            tail: Box::default(),
            batch_times,
            ranges: Box::default(),
        };
        outlook.tail = (0..places)
            .flat_map(|place| (1..=spread.max_batch()).map(move |size| (place, size)))
            .map(|(place, size)| {
                let longest = outlook.alone[place].longest_of(size);
                outlook.takes(size, longest.quantile(spread.grid(), 1.0 - SELDOM))
            })
            .collect();
        outlook.ranges = outlook.all_ranges();
        outlook
    }

    /// Every kind alone, with one neighbour, with two, four and so on.
    fn all_ranges(&self) -> Box<[Range]> {
        let places = self.order.len();
        let mut ranges = Vec::new();
        let (mut width, mut before) = (0, None);
        while width < places {
            for high in 0..places {
                let low = high.saturating_sub(width);
                let narrower = before.map_or(high + 1, |before| high.saturating_sub(before));
                if low < narrower {
                    ranges.push(self.range(low, high, narrower));
                }
            }
            before = Some(width);
            width = (2 * width).max(1);
            if width >= places && before != Some(places - 1) {
                width = places - 1;
            }
        }
        ranges.into()
    }

    fn range(&self, low: usize, high: usize, narrower: usize) -> Range {
        let kinds = self.order[low..=high].iter().map(|&place| {
            // A kind that was never seen may come nevertheless.
            let share = self.spread.share(KindId(place)).max(0.001);
            (share, &self.alone[usize::from(place)])
        });
        let mixture = Distribution::mixed(kinds);
        let batches = sizes(self.spread.max_batch()).map(|size| {
            let longest = mixture.longest_of(size);
            self.batch(size, longest)
        });
        let [low, high, narrower] = [low, high, narrower].map(|at| at as u16);
        Range { low, high, narrower, batches: batches.collect() }
    }

    /// A batch whose longest request takes so long.
    #[inline]
    pub(super) fn batch(&self, size: usize, longest: Distribution) -> Batch {
        let grid = self.spread.grid();
        let BatchTime { fixed, factor, .. } = self.batch_times[size - 1];
        let mean = fixed + factor * longest.mean(grid);
        let needed = CHANCES.map(|chance| self.takes(size, longest.quantile(grid, chance)));
        Batch { size: size as u16, longest, mean, needed }
    }

    /// What a batch takes whose longest request takes `alone` nanoseconds.
    fn takes(&self, size: usize, alone: f32) -> Span {
        let BatchTime { fixed, factor, .. } = self.batch_times[size - 1];
        Span((fixed + factor * alone) as u64)
    }

    #[inline]
    pub(super) fn spread(&self) -> &Spread {
        &self.spread
    }

    /// Places, the shortest first.
    #[inline]
    pub(super) fn order(&self) -> &[u16] {
        &self.order
    }

    #[inline]
    pub(super) fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// How long a request in this place takes alone.
    #[inline]
    pub(super) fn alone(&self, place: usize) -> &Distribution {
        &self.alone[place]
    }

    /// How the time of a batch of so many follows from that of its longest request.
    #[inline]
    pub(super) fn batch_time(&self, size: usize) -> BatchTime {
        self.batch_times[size.clamp(1, self.batch_times.len()) - 1]
    }

    /// Which kinds go together: those of one group.
    #[inline]
    pub(super) fn group(&self, place: usize) -> usize {
        usize::from(self.group[place]).min(GROUPS - 1)
    }

    /// The least that a batch of one takes, for a request in this place.
    #[inline]
    pub(super) fn shortest(&self, place: usize) -> Span {
        self.shortest[place]
    }

    /// How long a batch of the usual size takes whose longest request is of this place, and
    /// average.
    #[inline]
    pub(super) fn usually(&self, place: usize, usual: f32) -> Span {
        let BatchTime { fixed, factor, .. } = self.batch_time(usual as usize);
        Span((fixed + factor * self.spread.mean(KindId(place as u16))) as u64)
    }

    /// What a batch of `size` requests of this place seldom takes longer than; `None` for a size
    /// that cannot be run.
    #[inline]
    pub(super) fn tail(&self, place: usize, size: usize) -> Option<Span> {
        let largest = self.spread.max_batch();
        (size <= largest).then(|| self.tail[place * largest + size - 1])
    }
}

impl BatchTime {
    /// How long the longest request of a batch may take alone, for the batch to take `budget`
    /// nanoseconds.
    #[inline]
    pub(super) fn alone_within(self, budget: f32) -> f32 {
        (budget - self.fixed) * self.inverse
    }
}

/// Powers of two, and the largest. Between those next to the best, every size is looked at in the
/// end.
fn sizes(largest: usize) -> impl Iterator<Item = usize> {
    let powers = std::iter::successors(Some(1), |size| Some(2 * size));
    powers.take_while(move |&size| size < largest).chain([largest])
}

#[cfg(test)]
mod tests {
    use fermata_core::Growth;

    use super::*;

    fn outlook(kinds: usize) -> Outlook {
        let runs = |kind: usize| (0..9).map(move |at| Span::from_ms((10 * (kind + 1) + at) as f64));
        let measured = (0..kinds).map(|kind| (1.0, runs(kind).collect())).collect();
        Outlook::new(&Arc::new(Spread::new(&measured, Growth::FREE, 8).unwrap()))
    }

    #[test]
    fn ranges_are_each_once_and_the_widest_has_all() {
        for kinds in 1..12 {
            let outlook = outlook(kinds);
            let mut ranges: Vec<_> = outlook.ranges().iter().map(|r| (r.low, r.high)).collect();
            let count = ranges.len();
            assert!(ranges.contains(&(0, kinds as u16)), "{kinds}: {ranges:?}");
            assert!((0..=kinds as u16).all(|at| ranges.contains(&(at, at))));
            ranges.sort_unstable();
            ranges.dedup();
            assert_eq!(ranges.len(), count, "{kinds}");
        }
    }

    #[test]
    fn sizes_double_and_end_at_the_largest() {
        assert_eq!(sizes(16).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert_eq!(sizes(1).collect::<Vec<_>>(), [1]);
        assert_eq!(sizes(20).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 20]);
    }
}
