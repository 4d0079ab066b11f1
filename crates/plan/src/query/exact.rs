//! The best split: pairs of time and GPUs of each part of a query, of which only those are kept
//! that may matter.

use fermata_core::Span;

use super::point::Point;
use super::relaxed::{Relaxed, Worth};
use super::shape::{Part, Shape};

/// The batches with the fewest GPUs of all that keep the objective.
pub(super) fn best(
    shape: &Shape,
    fronts: Vec<Vec<Point>>,
    relaxed: &Relaxed,
    slo: Span,
) -> Vec<usize> {
    let first = first_split(shape, &fronts, relaxed, slo);
    let gpus: f64 = first.iter().zip(&fronts).map(|(&at, front)| front[at].gpus).sum();
    let mut search = Search::new(shape, fronts, relaxed, gpus - relaxed.bound, slo);
    let whole = shape.parts.len() - 1;
    search.find(whole, Some(&[slo]));
    let best = *search.kept[whole].last().expect("the first split is good enough");
    let mut batches = vec![0; first.len()];
    let mut open = vec![(whole, best)];
    while let Some((part, point)) = open.pop() {
        match shape.parts[part] {
            Part::Call(stage) => batches[stage] = point.batch(),
            Part::Series(one, other) | Part::Parallel(one, other) => {
                open.push((one, search.kept[one][point.from.0 as usize]));
                open.push((other, search.kept[other][point.from.1 as usize]));
            }
        }
    }
    batches
}

/// Points of the parts as they are found.
struct Search<'a> {
    shape: &'a Shape,
    relaxed: &'a Relaxed,
    gap: f64,
    /// By part: how long it may take, if all others are as fast as they can be.
    limits: Vec<Span>,
    /// By part: points from the fastest to the cheapest, none of which another beats.
    kept: Vec<Vec<Point>>,
    /// By part: how many combinations there are.
    sizes: Vec<usize>,
}

/// More budgets than this are not told apart: then a part is asked for all its points.
const BUDGETS_MAX: usize = 256;
/// A combination costs as much as so many steps of a walk along two fronts, since it must be
/// sorted.
const COMBINATION: usize = 8;

impl<'a> Search<'a> {
    /// A search for splits that are at most `gap` above the bound, given the batches of each stage.
    fn new(
        shape: &'a Shape,
        mut kept: Vec<Vec<Point>>,
        relaxed: &'a Relaxed,
        gap: f64,
        slo: Span,
    ) -> Self {
        for (stage, points) in kept.iter_mut().enumerate() {
            let worth = relaxed.worth(stage, gap);
            points.retain(|point| worth.is_met_by(point));
        }
        let shortest = |points: &Vec<Point>| points.first().map_or(Span::ZERO, |point| point.time);
        let shortest: Vec<Span> = kept.iter().map(shortest).collect();
        let limits = shape.limits(&shortest, slo);
        for (points, &limit) in kept.iter_mut().zip(&limits) {
            points.truncate(points.partition_point(|point| point.time <= limit));
        }
        let mut sizes: Vec<usize> = Vec::with_capacity(shape.parts.len());
        for part in &shape.parts {
            sizes.push(match *part {
                Part::Call(stage) => kept[stage].len(),
                Part::Series(one, other) => sizes[one].saturating_mul(sizes[other]),
                Part::Parallel(one, other) => sizes[one].saturating_add(sizes[other]),
            });
        }
        kept.resize(shape.parts.len(), Vec::new());
        Self { shape, relaxed, gap, limits, kept, sizes }
    }

    /// Finds the points of a part that are the cheapest within some of these budgets, which rise;
    /// all, if none are given.
    ///
    /// The whole query has one budget. What is called once before all the rest has few points, and
    /// each leaves one budget for the rest: so nearly everything is asked for at a few budgets
    /// only.
    fn find(&mut self, part: usize, budgets: Option<&[Span]>) {
        match self.shape.parts[part] {
            Part::Call(_) => {}
            Part::Parallel(one, other) => {
                self.find(one, budgets);
                self.find(other, budgets);
                self.kept[part] = side_by_side(&self.kept[one], &self.kept[other]);
            }
            Part::Series(first, second) => {
                let (fewer, more) = match self.sizes[first] <= self.sizes[second] {
                    true => (first, second),
                    false => (second, first),
                };
                self.find(fewer, None);
                let left = budgets.and_then(|budgets| left_over(budgets, &self.kept[fewer]));
                self.find(more, left.as_deref());
                let (one, other) = (&self.kept[first], &self.kept[second]);
                let (walk, combinations) = (one.len() + other.len(), one.len() * other.len());
                self.kept[part] = match budgets {
                    Some(budgets) if budgets.len() * walk < COMBINATION * combinations => {
                        in_series_within(one, other, budgets)
                    }
                    _ => {
                        let worth = self.relaxed.worth(part, self.gap);
                        in_series(one, other, self.limits[part], worth)
                    }
                };
            }
        }
    }
}

/// What is left of each budget after each point.
fn left_over(budgets: &[Span], points: &[Point]) -> Option<Vec<Span>> {
    if budgets.len() * points.len() > BUDGETS_MAX {
        return None;
    }
    let left = |point: &Point| {
        let time = point.time;
        budgets.iter().filter(move |&&budget| budget >= time).map(move |&budget| budget - time)
    };
    let mut left: Vec<Span> = points.iter().flat_map(left).collect();
    left.sort_unstable();
    left.dedup();
    Some(left)
}

/// Every point of one part after every point of another, within a limit.
fn in_series(first: &[Point], second: &[Point], limit: Span, worth: Worth) -> Vec<Point> {
    // A point of the shorter list with all of the longer one is a row in the order of time. Rows
    // are merged two by two, and what is beaten is gone from then on.
    let swapped = first.len() > second.len();
    let (short, long) = if swapped { (second, first) } else { (first, second) };
    let mut rows: Vec<Vec<Point>> = Vec::with_capacity(short.len());
    for (at, one) in (0..).zip(short) {
        let point = |(place, other): (u32, &Point)| Point {
            time: one.time + other.time,
            gpus: one.gpus + other.gpus,
            from: if swapped { (place, at) } else { (at, place) },
        };
        let row = (0..).zip(long).map(point).take_while(|point| point.time <= limit);
        rows.push(row.filter(|point| worth.is_met_by(point)).collect());
    }
    while rows.len() > 1 {
        let half = rows.len() / 2;
        for at in 0..half {
            rows[at] = merge(&rows[2 * at], &rows[2 * at + 1]);
        }
        // The one that is left over comes behind the merged ones.
        let last = rows.len() - 1;
        rows.swap(half, last);
        rows.truncate(rows.len() - half);
    }
    rows.pop().unwrap_or_default()
}

/// Two lists from the fastest to the cheapest as one, without what is beaten.
fn merge(one: &[Point], other: &[Point]) -> Vec<Point> {
    let mut points = Vec::with_capacity(one.len() + other.len());
    let (mut left, mut right) = (one.iter().peekable(), other.iter().peekable());
    let mut least = f64::INFINITY;
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some(first), Some(second))
                if (second.time, second.gpus) < (first.time, first.gpus) =>
            {
                right.next()
            }
            (None, _) => right.next(),
            (Some(_), _) => left.next(),
        };
        let Some(&point) = next else { return points };
        if point.gpus < least {
            least = point.gpus;
            points.push(point);
        }
    }
}

/// The cheapest point of one part after a point of another within each budget: the longer the first
/// takes, the shorter the second.
fn in_series_within(first: &[Point], second: &[Point], budgets: &[Span]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::with_capacity(budgets.len());
    for &budget in budgets {
        let mut right = second.len();
        let mut best: Option<Point> = None;
        for (left, one) in (0..).zip(first) {
            while right > 0 && one.time + second[right - 1].time > budget {
                right -= 1;
            }
            if right == 0 {
                break;
            }
            let other = &second[right - 1];
            let gpus = one.gpus + other.gpus;
            if best.is_none_or(|best| gpus < best.gpus) {
                let from = (left, right as u32 - 1);
                best = Some(Point { time: one.time + other.time, gpus, from });
            }
        }
        points.extend(best.filter(|best| points.last().is_none_or(|last| best.gpus < last.gpus)));
    }
    points
}

/// Two parts that both must be done: for each time, the cheapest point of either.
fn side_by_side(one: &[Point], other: &[Point]) -> Vec<Point> {
    let mut points = Vec::with_capacity(one.len() + other.len());
    let (mut left, mut right) = (0, 0);
    while left < one.len() && right < other.len() {
        let (first, second) = (one[left], other[right]);
        let (time, gpus) = (first.time.max(second.time), first.gpus + second.gpus);
        // The next moment at which one of them has something cheaper.
        let next = |points: &[Point], at: usize| points.get(at + 1).map_or(Span::MAX, |it| it.time);
        let (first, second) = (next(one, left), next(other, right));
        let step = first.min(second);
        if step > time {
            points.push(Point { time, gpus, from: (left as u32, right as u32) });
        }
        if step == Span::MAX {
            break;
        }
        left += usize::from(first == step);
        right += usize::from(second == step);
    }
    points
}

/// A split near the best: what the prices say, rounded down to whole batches, and then batches that
/// are made larger where that gains the most, while there is room.
fn first_split(shape: &Shape, fronts: &[Vec<Point>], relaxed: &Relaxed, slo: Span) -> Vec<usize> {
    let largest_within = |front: &[Point], time: Span| {
        front.partition_point(|point| point.time <= time).saturating_sub(1)
    };
    let times_of = |chosen: &[usize]| -> Vec<Span> {
        chosen.iter().zip(fronts).map(|(&at, front)| front[at].time).collect()
    };
    let whole = shape.parts.len() - 1;
    let rounded = fronts.iter().zip(&relaxed.times);
    let mut chosen: Vec<usize> =
        rounded.map(|(front, &time)| largest_within(front, time)).collect();
    if shape.lengths(&times_of(&chosen))[whole] > slo {
        chosen.fill(0);
    }
    loop {
        let limits = shape.limits(&times_of(&chosen), slo);
        let mut best: Option<(f64, usize, usize)> = None;
        for (stage, front) in fronts.iter().enumerate() {
            let larger = largest_within(front, limits[stage]);
            let gain = front[chosen[stage]].gpus - front[larger].gpus;
            if gain > best.map_or(0.0, |(most, ..)| most) {
                best = Some((gain, stage, larger));
            }
        }
        match best {
            Some((_, stage, larger)) => chosen[stage] = larger,
            None => return chosen,
        }
    }
}
