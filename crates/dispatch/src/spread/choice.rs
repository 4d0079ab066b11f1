//! The batch that is worth most: the expected number of requests that are in time because they run now and not later, per expected
//! executor time.

use std::ops::Range;

use fermata_core::{Distribution, KINDS_MAX, Request, Span, Time};

use super::outlook::Outlook;
use super::queues::Queues;

/// Of the requests that could still be in time after this batch, so many will be: others come in between. With a half, the
/// finish rate was within 0.01 of what it was with a share learned for each kind and slack.
const LATER: f32 = 0.5;
/// Requests join a batch that are in time with at least these probabilities; each of them is tried.
const CHANCES: [f32; 3] = [0.35, 0.65, 0.9];

/// Requests that go together: of kinds that are neighbours, those with a deadline from some moment on, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pick {
    /// Expected in time because they run now, per nanosecond of executor time.
    worth: f32,
    /// The kinds, as places in the order: from this one to that.
    low: u16,
    high: u16,
    /// How many.
    pub(super) size: usize,
    /// Who is due before gives way.
    from: Time,
    /// The last of them by deadline and id.
    last: (Time, u64),
    /// How long they take on average.
    pub(super) mean: Span,
}

impl Pick {
    /// The kinds, as places in the order.
    #[inline]
    pub(super) fn kinds(&self) -> Range<usize> {
        usize::from(self.low)..usize::from(self.high) + 1
    }

    /// Which of one kind are in it.
    pub(super) fn members(&self, waiting: &[Request]) -> Range<usize> {
        let start = waiting.partition_point(|request| request.deadline < self.from);
        let end = waiting.partition_point(|request| (request.deadline, request.id.0) <= self.last);
        start..end.max(start)
    }
}

/// A moment at which a batch is chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// When a batch decided now starts.
    pub(super) start: Time,
    /// From the end of a batch to its clients.
    pub(super) resp: Span,
    /// The size of the model's batches of late.
    pub(super) usual: f32,
}

/// The queues of a range of kinds, in the order of deadlines.
struct Merge<'a> {
    waiting: [&'a [Request]; KINDS_MAX + 1],
    next: [u32; KINDS_MAX + 1],
    range: Range<usize>,
}

impl<'a> Merge<'a> {
    /// Those of some kinds that have a deadline from a moment on.
    fn new(queues: &'a Queues, order: &[u16], range: Range<usize>, from: Time) -> Self {
        let mut merge = Self { waiting: [&[]; KINDS_MAX + 1], next: [0; KINDS_MAX + 1], range };
        for at in merge.range.clone() {
            let waiting = queues.kind(usize::from(order[at]));
            let skipped = match from {
                Time::START => 0,
                from => waiting.partition_point(|request| request.deadline < from),
            };
            merge.waiting[at] = waiting;
            merge.next[at] = skipped as u32;
        }
        merge
    }

    /// The next request, and the place of its kind in the order.
    #[inline]
    fn next(&mut self) -> Option<(usize, &'a Request)> {
        let mut first: Option<(usize, &Request)> = None;
        for at in self.range.clone() {
            let Some(request) = self.waiting[at].get(self.next[at] as usize) else { continue };
            if first.is_none_or(|(_, other)| request.key() < other.key()) {
                first = Some((at, request));
            }
        }
        self.next[first?.0] += 1;
        first
    }
}

impl Outlook {
    /// The batch that is worth most at a moment.
    pub(super) fn pick(&self, queues: &Queues, moment: &Moment) -> Option<Pick> {
        let places = self.order().len();
        // How many wait, and how many kinds have any, before each place in the order.
        let mut waiting = [(0u32, 0u32); KINDS_MAX + 2];
        for at in 0..places {
            let here = queues.kind(usize::from(self.order()[at])).len() as u32;
            let (count, kinds) = waiting[at];
            waiting[at + 1] = (count + here, kinds + u32::from(here > 0));
        }
        let mut best: Option<Pick> = None;
        let mut width = 0;
        // Narrow ranges first: they are nearly always better, and then bound the rest.
        loop {
            for high in 0..places {
                if waiting[high + 1].0 == waiting[high].0 {
                    continue; // Without its longest kind it is another range.
                }
                let low = high.saturating_sub(width);
                let (count, kinds) = waiting[high + 1];
                let available = (count - waiting[low].0) as usize;
                let narrower = high.saturating_sub(width / 2);
                let is_known = width > 0
                    && (high < width && width / 2 >= high
                        || kinds - waiting[low].1 == kinds - waiting[narrower].1);
                let bound = self.most(low, high, available);
                if is_known || best.is_some_and(|best| bound <= best.worth) {
                    continue;
                }
                let sizes = self.sizes().iter().map(|&size| usize::from(size));
                self.pick_within(queues, moment, low..high + 1, sizes, &mut best);
            }
            if width + 1 >= places {
                break;
            }
            width = (width * 2).clamp(1, places - 1);
        }
        let Some(coarse) = best else { return self.likeliest(queues, moment) };
        self.pick_within(queues, moment, coarse.kinds(), self.sizes_near(coarse.size), &mut best);
        best
    }

    /// The sizes between those that were looked at before and after this one.
    fn sizes_near(&self, size: usize) -> Range<usize> {
        let sizes = self.sizes();
        let at = sizes.partition_point(|&other| usize::from(other) < size);
        let before = if at > 0 { usize::from(sizes[at - 1]) + 1 } else { 1 };
        before..sizes.get(at + 1).map_or(size + 1, |&after| usize::from(after))
    }

    /// The same for some kinds, where it is better than the best so far.
    fn pick_within(
        &self,
        queues: &Queues,
        moment: &Moment,
        range: Range<usize>,
        sizes: impl Iterator<Item = usize>,
        best: &mut Option<Pick>,
    ) {
        let (spread, order) = (self.spread(), self.order());
        let mut longest = Distribution::NOTHING;
        let mut joined = 0usize;
        let mut front = Merge::new(queues, order, range.clone(), Time::START);
        let available: usize =
            range.clone().map(|at| queues.kind(usize::from(order[at])).len()).sum();
        for size in sizes {
            let size = size.min(available);
            // Who comes first stands for who goes: if some are left out, others of the same kinds take their places.
            while joined < size {
                let Some((at, _)) = front.next() else { break };
                longest.join(self.alone(usize::from(order[at])));
                joined += 1;
            }
            let mean = spread.growth().latency_ns(size, longest.mean(spread.grid()));
            if best.is_none_or(|best| size as f32 / mean > best.worth) {
                let mut tried = Time::NEVER;
                for chance in CHANCES {
                    let most = longest.quantile(spread.grid(), chance);
                    let needed = Span(spread.growth().latency_ns(size, most) as u64);
                    let from = moment.start + needed + moment.resp;
                    let batch = Batch { longest: &longest, size, mean, from };
                    self.weigh(queues, moment, &range, &batch, &mut tried, best);
                }
            }
            if size == available {
                break;
            }
        }
    }

    /// Weighs the batch of the most urgent that are due from a moment on.
    #[inline]
    fn weigh(
        &self,
        queues: &Queues,
        moment: &Moment,
        range: &Range<usize>,
        batch: &Batch<'_>,
        tried: &mut Time,
        best: &mut Option<Pick>,
    ) {
        let (grid, growth, order) = (self.spread().grid(), self.spread().growth(), self.order());
        let mut merge = Merge::new(queues, order, range.clone(), batch.from);
        let (mut gain, mut last) = (0.0, (Time::START, 0));
        let usual = moment.usual.max(1.0) as usize;
        for taken in 0..batch.size {
            let Some((at, request)) = merge.next() else { return };
            if taken == 0 {
                if *tried == request.deadline {
                    return; // The same as with the chance before.
                }
                *tried = request.deadline;
            }
            last = (request.deadline, request.id.0);
            let left = ((request.deadline - moment.resp) - moment.start).0 as f32;
            let now = batch.longest.ended_by(grid, growth.alone_within(batch.size, left));
            let alone = self.alone(usize::from(order[at]));
            let later = alone.ended_by(grid, growth.alone_within(usual, left - batch.mean));
            gain += now - LATER * later;
        }
        let worth = gain / batch.mean;
        if worth > 0.0 && best.is_none_or(|best| worth > best.worth) {
            *best = Some(Pick {
                worth,
                low: range.start as u16,
                high: range.end as u16 - 1,
                size: batch.size,
                from: batch.from,
                last,
                mean: Span(batch.mean as u64),
            });
        }
    }

    /// Where nobody has a fair chance: of the last of each kind, the one that is likeliest to be in time.
    fn likeliest(&self, queues: &Queues, moment: &Moment) -> Option<Pick> {
        let (grid, growth) = (self.spread().grid(), self.spread().growth());
        let mut best: Option<Pick> = None;
        for (at, &place) in self.order().iter().enumerate() {
            let Some(request) = queues.kind(usize::from(place)).last() else { continue };
            let alone = self.alone(usize::from(place));
            let due = request.deadline - moment.resp;
            let left = (due - moment.start).0 as f32;
            let mean = growth.latency_ns(1, alone.mean(grid));
            let worth = alone.ended_by(grid, growth.alone_within(1, left)) / mean;
            if best.is_none_or(|best| worth > best.worth) {
                best = Some(Pick {
                    worth,
                    low: at as u16,
                    high: at as u16,
                    size: 1,
                    from: request.deadline,
                    last: (request.deadline, request.id.0),
                    mean: Span(mean as u64),
                });
            }
        }
        best
    }
}

/// A batch that is weighed.
struct Batch<'a> {
    longest: &'a Distribution,
    size: usize,
    /// How long it takes on average, in nanoseconds.
    mean: f32,
    /// Who is due before gives way.
    from: Time,
}
