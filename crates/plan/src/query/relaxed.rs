//! The split as it would be if batches were divisible: a bound, and the price of time in each part
//! of the query.
//!
//! The GPUs that a part needs fall with the time it may take, along a convex curve. The whole query
//! is at the point of its curve that the objective allows. There, a nanosecond more would save so
//! many GPUs: its price. Parts in series have the price of what they make up, since a nanosecond
//! may be given to either; parts side by side share it, since a nanosecond is good for both. For
//! any such prices, `sum (gpus + price time)` over the stages, less the price of the whole
//! objective, is at most the GPUs of any split: that is Lagrange's bound, and these prices make it
//! the highest.

use fermata_core::Span;

use super::point::Point;
use super::shape::{Part, Shape};

/// What is known before batches are whole numbers.
#[derive(Debug)]
pub(super) struct Relaxed {
    /// No split has fewer GPUs.
    pub(super) bound: f64,
    /// By part: GPUs for a nanosecond.
    prices: Vec<f64>,
    /// By part: the least that the GPUs and the worth of the time of its stages can be.
    least: Vec<f64>,
    /// By stage: how long it takes.
    pub(super) times: Vec<Span>,
}

impl Relaxed {
    /// Relaxes a query, given the batches of each stage from the fastest to the cheapest.
    pub(super) fn new(shape: &Shape, fronts: &[Vec<Point>], slo: Span) -> Self {
        let mut curves: Vec<Curve> = Vec::with_capacity(shape.parts.len());
        for part in &shape.parts {
            curves.push(match *part {
                Part::Call(stage) => Curve::below(&fronts[stage]),
                Part::Series(first, second) => curves[first].then(&curves[second]),
                Part::Parallel(one, other) => curves[one].beside(&curves[other]),
            });
        }

        let whole = shape.parts.len() - 1;
        let mut prices = vec![0.0; shape.parts.len()];
        let mut lengths = vec![0.0; shape.parts.len()];
        lengths[whole] = (slo.0 as f64).min(curves[whole].last().0);
        prices[whole] = curves[whole].around(slo.0 as f64).1;
        for at in (0..shape.parts.len()).rev() {
            let (length, price) = (lengths[at], prices[at]);
            match shape.parts[at] {
                Part::Call(_) => {}
                Part::Series(first, second) => {
                    (prices[first], prices[second]) = (price, price);
                    let (least, most) = curves[first].at_price(price);
                    let rest = curves[second].at_price(price).0;
                    // The first takes what the second leaves it, the second the rest.
                    lengths[first] = (length - rest).max(least).min(most);
                    lengths[second] = length - lengths[first];
                }
                Part::Parallel(one, other) => {
                    let (most, least) = curves[one].around(length);
                    let rest = curves[other].around(length).1;
                    prices[one] = (price - rest).max(least).min(most).min(price).max(0.0);
                    prices[other] = price - prices[one];
                    lengths[one] = length.min(curves[one].last().0);
                    lengths[other] = length.min(curves[other].last().0);
                }
            }
        }

        let mut least = Vec::with_capacity(shape.parts.len());
        for (part, price) in shape.parts.iter().zip(&prices) {
            least.push(match *part {
                Part::Call(stage) => {
                    let values = fronts[stage].iter();
                    values.fold(f64::INFINITY, |least, point| {
                        least.min(point.gpus + price * point.time.0 as f64)
                    })
                }
                Part::Series(one, other) | Part::Parallel(one, other) => least[one] + least[other],
            });
        }
        Self {
            bound: least[whole] - prices[whole] * slo.0 as f64,
            prices,
            least,
            times: lengths[..fronts.len()].iter().map(|&time| Span(time as u64)).collect(),
        }
    }

    /// What a point of a part must be worth to be in a split that is at most `gap` above the bound.
    pub(super) fn worth(&self, part: usize, gap: f64) -> Worth {
        // A hair more: sums are rounded, and of the whole query's the most.
        let hair = 1e-12 * self.least.last().expect("a query has parts");
        Worth { price: self.prices[part], most: self.least[part] + gap + hair }
    }
}

/// What a point of a part must be worth to be in a split that is near the bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    price: f64,
    most: f64,
}

impl Worth {
    /// Whether its GPUs, and what its time is worth, are few enough.
    #[inline]
    pub(super) fn is_met_by(self, point: &Point) -> bool {
        point.gpus + self.price * point.time.0 as f64 <= self.most
    }
}

/// GPUs over time: convex, falling, flat after the last of its corners; a corner is a time in
/// nanoseconds and GPUs.
#[derive(Debug)]
struct Curve(Vec<(f64, f64)>);

/// How many GPUs a nanosecond saves between two corners.
fn slope(from: (f64, f64), to: (f64, f64)) -> f64 {
    (from.1 - to.1) / (to.0 - from.0)
}

/// Corners are at whole nanoseconds: what is nearer than this to one is at it.
const SAME: f64 = 0.25;

impl Curve {
    /// The highest such curve that has no point below it.
    fn below(points: &[Point]) -> Self {
        let mut corners: Vec<(f64, f64)> = Vec::with_capacity(points.len());
        for point in points {
            let next = (point.time.0 as f64, point.gpus);
            while let [.., one, two] = corners[..] {
                if slope(one, two) > slope(two, next) {
                    break;
                }
                corners.pop();
            }
            corners.push(next);
        }
        Self(corners)
    }

    fn last(&self) -> (f64, f64) {
        *self.0.last().expect("a stage has a batch of one")
    }

    /// One after the other: time is first given to whom it saves the most.
    fn then(&self, other: &Self) -> Self {
        let (one, other) = (&self.0, &other.0);
        let mut corner = (one[0].0 + other[0].0, one[0].1 + other[0].1);
        let mut corners = Vec::with_capacity(one.len() + other.len() - 1);
        corners.push(corner);
        let (mut left, mut right) = (0, 0);
        loop {
            let first = one.get(left + 1).map(|&next| (one[left], next));
            let second = other.get(right + 1).map(|&next| (other[right], next));
            let (from, to) = match (first, second) {
                (Some(first), Some(second))
                    if slope(first.0, first.1) < slope(second.0, second.1) =>
                {
                    right += 1;
                    second
                }
                (Some(first), _) => {
                    left += 1;
                    first
                }
                (None, Some(second)) => {
                    right += 1;
                    second
                }
                (None, None) => return Self(corners),
            };
            corner = (corner.0 + (to.0 - from.0), corner.1 + (to.1 - from.1));
            corners.push(corner);
        }
    }

    /// Side by side: both have the same time.
    fn beside(&self, other: &Self) -> Self {
        let (one, other) = (&self.0, &other.0);
        let start = one[0].0.max(other[0].0);
        let mut corners = Vec::with_capacity(one.len() + other.len());
        let (mut left, mut right, mut time) = (0, 0, start);
        loop {
            corners.push((time, at(one, &mut left, time) + at(other, &mut right, time)));
            let next = |corners: &[(f64, f64)], passed: usize| {
                corners.get(passed + 1).map_or(f64::INFINITY, |corner| corner.0)
            };
            time = next(one, left).min(next(other, right));
            if time.is_infinite() {
                return Self(corners);
            }
        }
    }

    /// The price of time just before and just after a moment.
    fn around(&self, time: f64) -> (f64, f64) {
        let corners = &self.0;
        let price = |after: usize| match after {
            0 => f64::INFINITY,
            _ if after >= corners.len() => 0.0,
            _ => slope(corners[after - 1], corners[after]),
        };
        let before = corners.partition_point(|corner| corner.0 < time - SAME);
        let after = corners.partition_point(|corner| corner.0 <= time + SAME);
        (price(before), price(after))
    }

    /// The first and the last moment at which time has this price.
    fn at_price(&self, price: f64) -> (f64, f64) {
        let corners = &self.0;
        // Slopes of sums are rounded.
        let tolerance = 1e-9 * price;
        let moment = |is_left: &dyn Fn(f64) -> bool| {
            let left = corners.windows(2).take_while(|pair| is_left(slope(pair[0], pair[1])));
            corners[left.count()].0
        };
        (moment(&|slope| slope > price + tolerance), moment(&|slope| slope >= price - tolerance))
    }
}

/// The height of a curve at a time that is not before its start; `passed` is the last corner before
/// it.
fn at(corners: &[(f64, f64)], passed: &mut usize, time: f64) -> f64 {
    while corners.get(*passed + 1).is_some_and(|next| next.0 <= time) {
        *passed += 1;
    }
    let from = corners[*passed];
    match corners.get(*passed + 1) {
        Some(&to) => from.1 - slope(from, to) * (time - from.0),
        None => from.1,
    }
}
