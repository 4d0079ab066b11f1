//! The batch that is worth most: the expected number of requests that are in time because they run
//! now and not later, per expected executor time.

use fermata_core::{Distribution, KINDS_MAX, Request, Span, Time};

use super::outlook::{Batch, BatchTime, CHANCES, Outlook, Range};
use super::pick::Pick;
use super::queues::Queues;

/// Of the requests that could still be in time after this batch, so many will be: others come in
/// between. With a half, the finish rate was within 0.01 of what it was with a share learned for
/// each kind and slack.
const LATER: f32 = 0.5;
/// Which of the chances is tried where all ranges are compared.
const COARSE: usize = 1;
/// Of a range no more than so many times the largest batch in question are looked at closely.
const CLOSE: usize = 16;
/// Where more wait than this, samples of them are compared.
const MANY: usize = 48;

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

/// The queues of some kinds, in the order of deadlines: who is left of each kind, and the kind's
/// place. Kinds without anybody are left out. The memory is used again.
#[derive(Default)]
struct Merge<'a>(Vec<(&'a [Request], u16)>);

impl<'a> Merge<'a> {
    /// Begins anew with those of some places that have a deadline from a moment on.
    #[inline]
    fn begin(&mut self, queues: &'a Queues, places: &[u16], from: Time) {
        self.0.clear();
        for &place in places {
            let waiting = queues.kind(usize::from(place));
            // Nearly always all of them, or none.
            let skipped = match waiting {
                [first, ..] if first.deadline >= from => 0,
                _ => waiting.partition_point(|request| request.deadline < from),
            };
            if skipped < waiting.len() {
                self.0.push((&waiting[skipped..], place));
            }
        }
    }

    /// The next request, and its place.
    #[inline]
    fn next(&mut self) -> Option<(usize, &'a Request)> {
        let first = match self.0.len() {
            1 => 0,
            kinds => (0..kinds).min_by_key(|&at| self.0[at].0[0].key())?,
        };
        let (waiting, place) = self.0[first];
        let (request, rest) = waiting.split_first()?;
        self.0[first].0 = rest;
        if rest.is_empty() {
            self.0.swap_remove(first);
        }
        Some((usize::from(place), request))
    }
}

impl Outlook {
    /// The batch that is worth most at a moment.
    ///
    /// First all ranges of kinds are compared at some sizes; then the best of them is looked at
    /// closely, with every size near by. Where many wait, samples stand for them in the comparison:
    /// 1,000 requests of eight kinds would else take four times as long.
    pub(super) fn pick(&self, queues: &Queues, moment: &Moment) -> Option<Pick> {
        let later = self.batch_time(moment.usual.max(1.0) as usize);
        let (moment, merge) = (*moment, Merge::default());
        let mut weighing = Weighing { outlook: self, queues, moment, later, merge };
        let many = queues.len() > MANY;
        let sampled = if many { weighing.compare(Weighing::sample) } else { None };
        let refined = sampled.and_then(|sampled| weighing.refine(sampled));
        let refined = refined.or_else(|| {
            let exact = weighing.compare(Weighing::weigh)?;
            weighing.refine(exact)
        });
        refined.or_else(|| weighing.likeliest())
    }
}

/// What batches are weighed by.
struct Weighing<'a> {
    outlook: &'a Outlook,
    queues: &'a Queues,
    moment: Moment,
    /// Of a batch later.
    later: BatchTime,
    merge: Merge<'a>,
}

/// The best range so far.
#[derive(Clone, Copy)]
struct Favourite<'a> {
    range: &'a Range,
    size: usize,
    worth: f32,
}

impl<'a> Weighing<'a> {
    /// The range and size that are worth most, by some measure of them.
    #[inline]
    fn compare(
        &mut self,
        worth: impl Fn(&mut Self, &Range, &Batch, usize, f32) -> Option<f32>,
    ) -> Option<Favourite<'a>> {
        // How many wait, and how many kinds have any, before each place in the order.
        let mut waiting = [(0u32, 0u32); KINDS_MAX + 2];
        for (at, &place) in self.outlook.order().iter().enumerate() {
            let here = self.queues.kind(usize::from(place)).len() as u32;
            let (count, kinds) = waiting[at];
            waiting[at + 1] = (count + here, kinds + u32::from(here > 0));
        }
        let before = |at: u16| waiting[usize::from(at)];
        let mut best: Option<Favourite<'_>> = None;
        for range in self.outlook.ranges() {
            let count = before(range.high + 1).0;
            let is_alone = range.narrower > range.high;
            if count == before(range.high).0
                || !is_alone && before(range.low).1 == before(range.narrower).1
            {
                // Without its longest kind, or with no more kinds than a narrower one, it is
                // another range.
                continue;
            }
            let available = (count - before(range.low).0) as usize;
            let most = self.gain_most(range);
            for batch in &range.batches {
                let least = best.map_or(0.0, |best| best.worth);
                let size = usize::from(batch.size).min(available);
                if size as f32 * most / batch.mean > least
                    && let Some(worth) = worth(self, range, batch, size, least)
                {
                    best = Some(Favourite { range, size, worth });
                }
                if usize::from(batch.size) >= available {
                    break;
                }
            }
        }
        best
    }

    /// No request of a range gains more than this in any batch: the first of a kind has the least
    /// chance later.
    #[inline]
    fn gain_most(&self, range: &Range) -> f32 {
        let grid = self.outlook.spread().grid();
        let longest = range.batches.last().map_or(0.0, |batch| batch.mean);
        let mut least = 1.0f32;
        for &place in self.places(range) {
            let place = usize::from(place);
            let Some(first) = self.queues.kind(place).first() else { continue };
            let later = self.later.alone_within(self.left(first) - longest);
            least = least.min(self.outlook.alone(place).ended_by(grid, later));
        }
        1.0 - LATER * least
    }

    /// What a batch is worth, about: of each kind some requests stand for those that would be in
    /// it.
    #[inline]
    fn sample(&mut self, range: &Range, batch: &Batch, size: usize, least: f32) -> Option<f32> {
        let from = self.due_after(batch.needed[COARSE]);
        self.merge.begin(self.queues, self.places(range), from);
        let many: usize = self.merge.0.iter().map(|(waiting, _)| waiting.len()).sum();
        if many < size {
            return None;
        }
        let share = size as f32 / many as f32;
        let samples = if self.merge.0.len() == 1 { 3 } else { 1 };
        let batch_time = self.outlook.batch_time(size);
        let mut gain = 0.0;
        for &(waiting, place) in &self.merge.0 {
            let members = share * waiting.len() as f32;
            let mut sum = 0.0;
            for sample in 0..samples {
                let at = members * (2 * sample + 1) as f32 / (2 * samples) as f32;
                let request = &waiting[(at as usize).min(waiting.len() - 1)];
                sum += self.gain(usize::from(place), self.left(request), batch, batch_time);
            }
            gain += members * sum / samples as f32;
        }
        let worth = gain / batch.mean;
        (worth > least).then_some(worth)
    }

    /// What a batch is worth: of those who are due late enough to have a fair chance, the most
    /// urgent.
    #[inline]
    fn weigh(&mut self, range: &Range, batch: &Batch, size: usize, least: f32) -> Option<f32> {
        let from = self.due_after(batch.needed[COARSE]);
        self.merge.begin(self.queues, self.places(range), from);
        let batch_time = self.outlook.batch_time(size);
        let mut gain = 0.0;
        for _ in 0..size {
            let (place, request) = self.merge.next()?;
            gain += self.gain(place, self.left(request), batch, batch_time);
        }
        let worth = gain / batch.mean;
        (worth > least).then_some(worth)
    }

    /// The places of a range.
    #[inline]
    fn places(&self, range: &Range) -> &'a [u16] {
        &self.outlook.order()[usize::from(range.low)..=usize::from(range.high)]
    }

    /// The deadline of a request that is just in time in a batch that takes so long.
    #[inline]
    fn due_after(&self, needed: Span) -> Time {
        self.moment.start + needed + self.moment.resp
    }

    /// How many nanoseconds a batch may take that a request is in.
    #[inline]
    fn left(&self, request: &Request) -> f32 {
        (request.deadline - (self.moment.start + self.moment.resp)).0 as f32
    }

    /// By how much likelier a request with so much time left is in time in this batch than later.
    #[inline]
    fn gain(&self, place: usize, left: f32, batch: &Batch, batch_time: BatchTime) -> f32 {
        let grid = self.outlook.spread().grid();
        let later = self.later.alone_within(left - batch.mean);
        batch.longest.ended_by(grid, batch_time.alone_within(left))
            - LATER * self.outlook.alone(place).ended_by(grid, later)
    }

    /// The best of a range: every size near that of the favourite, every chance, and batches of
    /// whom there is.
    fn refine(&mut self, favourite: Favourite<'_>) -> Option<Pick> {
        let Favourite { range, size, .. } = favourite;
        let sizes = range.batches.iter().map(|batch| usize::from(batch.size));
        let below = sizes.clone().take_while(|&other| other < size).last().unwrap_or(0);
        let above = sizes.clone().find(|&other| other > size).unwrap_or(size);
        let usual =
            |size: usize| range.batches.iter().find(|batch| usize::from(batch.size) >= size);
        let (smallest, largest) = (usual(below.max(1))?, usual(above)?);
        // Those in question, the most urgent first: every batch is some of them that are next to
        // each other. They end with a batch of which everybody has the best chance.
        self.merge.begin(self.queues, self.places(range), self.due_after(smallest.needed[0]));
        let (safe, mut left) = (self.due_after(largest.needed[CHANCES.len() - 1]), above);
        let mut members: Vec<(usize, f32, &Request)> = Vec::with_capacity(2 * above);
        while left > 0
            && members.len() < CLOSE * above
            && let Some((place, request)) = self.merge.next()
        {
            members.push((place, self.left(request), request));
            left -= usize::from(request.deadline >= safe);
        }
        let (mut longest, mut best) = (Distribution::NOTHING, None::<Pick>);
        for size in 1..=above.min(members.len()) {
            longest.join(self.outlook.alone(members[size - 1].0));
            if size <= below {
                continue;
            }
            let (batch, batch_time) =
                (self.outlook.batch(size, longest), self.outlook.batch_time(size));
            let mut tried = usize::MAX;
            for needed in batch.needed {
                let from = self.due_after(needed);
                let first = members.partition_point(|(_, _, request)| request.deadline < from);
                let Some(those) = members.get(first..first + size) else { break };
                let least = best.map_or(0.0, |best| best.worth);
                if first == tried || size as f32 / batch.mean <= least {
                    continue;
                }
                tried = first;
                let gain = |&(place, left, _): &(usize, f32, _)| {
                    self.gain(place, left, &batch, batch_time)
                };
                let worth = those.iter().map(gain).sum::<f32>() / batch.mean;
                if worth > least {
                    let (first, last) = (those[0].2.key(), those[size - 1].2.key());
                    let (low, high, mean) = (range.low, range.high, Span(batch.mean as u64));
                    best = Some(Pick { worth, low, high, size, first, last, mean });
                }
            }
        }
        best
    }

    /// Where nobody has a fair chance: of the last of each kind, the one that is likeliest to be in
    /// time.
    fn likeliest(&self) -> Option<Pick> {
        let (outlook, grid) = (self.outlook, self.outlook.spread().grid());
        let mut best: Option<Pick> = None;
        for (at, &place) in outlook.order().iter().enumerate() {
            let Some(request) = self.queues.kind(usize::from(place)).last() else { continue };
            let alone = outlook.alone(usize::from(place));
            let left = self.left(request);
            let batch = outlook.batch(1, *alone);
            let worth = alone.ended_by(grid, outlook.batch_time(1).alone_within(left)) / batch.mean;
            if best.is_none_or(|best| worth > best.worth) {
                best = Some(Pick {
                    worth,
                    low: at as u16,
                    high: at as u16,
                    size: 1,
                    first: request.key(),
                    last: request.key(),
                    mean: Span(batch.mean as u64),
                });
            }
        }
        best
    }
}
