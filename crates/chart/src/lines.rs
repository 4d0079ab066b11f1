//! Lines over two axes: curves, stairs, cumulative distributions, scattered points.

use super::axis::{Axis, HORIZONTAL_ROOM, VERTICAL_ROOM};
use super::figure::{Entry, Panel, draw_head};
use super::svg::{Anchor, Area, Svg, Type};
use super::{PALETTE, colour};

/// A chart of lines.
pub struct Lines {
    /// What it shows.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn; the first gets the first colour.
    pub series: Vec<Series>,
    /// Values worth a line of their own.
    pub marks: Vec<Mark>,
}

/// One line of a chart.
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// `(x, y)`, by rising `x` for lines.
    pub points: Vec<(f64, f64)>,
    /// How the points are joined.
    pub shape: Shape,
    /// For bounds and references.
    pub dashed: bool,
}

/// How points are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Not at all.
    Dots,
    /// By straight lines.
    Line,
    /// By straight lines, with a dot at each point.
    LineAndDots,
    /// Each value holds until the next.
    Stairs,
}

/// A value worth a line across the whole chart.
pub enum Mark {
    /// A vertical line at this `x`, with a word beside it.
    X(f64, String),
    /// A horizontal line at this `y`, with a word above it.
    Y(f64, String),
}

impl Series {
    /// A solid line.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, shape: Shape::Line, dashed: false }
    }

    /// A line with a dot at each measured point.
    pub fn measured(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { shape: Shape::LineAndDots, ..Self::line(name, points) }
    }

    /// The cumulative distribution of these values.
    pub fn cumulative(name: impl Into<String>, values: &[f64]) -> Self {
        Self { shape: Shape::Stairs, ..Self::line(name, cumulative(values)) }
    }
}

/// The share of all values that are not above each of them: the points of a cumulative
/// distribution.
pub fn cumulative(values: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let mut points: Vec<(f64, f64)> =
        sorted.first().map(|&first| (first, 0.0)).into_iter().collect();
    for (value, rank) in sorted.into_iter().zip(1..) {
        let share = f64::from(rank) / count;
        match points.last_mut() {
            // Equal values make one step; the very first point is where the curve leaves zero.
            Some((last, top)) if *last == value && *top > 0.0 => *top = share,
            _ => points.push((value, share)),
        }
    }
    points
}

impl Panel for Lines {
    fn draw(&self, svg: &mut Svg, area: Area) {
        let entries: Vec<Entry<'_>> = self.series.iter().enumerate().map(entry).collect();
        let area =
            draw_head(svg, area, &self.title, if entries.len() > 1 { &entries } else { &[] });
        let area = area.within(VERTICAL_ROOM, 8.0, 14.0, HORIZONTAL_ROOM);
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = self.x.fit(points().map(|point| point.0));
        let y = self.y.fit(points().map(|point| point.1));
        y.draw_vertical(svg, area, &self.y.title);
        x.draw_horizontal(svg, area, &self.x.title);
        for mark in &self.marks {
            self.draw_mark(svg, area, mark, &|value| x.x(area, value), &|value| y.y(area, value));
        }
        for (number, series) in self.series.iter().enumerate() {
            let place = |&(px, py): &(f64, f64)| (x.x(area, px), y.y(area, py));
            let finite = series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
            let placed: Vec<(f64, f64)> = finite.map(place).collect();
            draw_series(svg, (number, series), &placed);
        }
    }
}

impl Lines {
    fn draw_mark(
        &self,
        svg: &mut Svg,
        area: Area,
        mark: &Mark,
        x: &dyn Fn(f64) -> f64,
        y: &dyn Fn(f64) -> f64,
    ) {
        let faint = super::FAINT_INK;
        match mark {
            Mark::X(value, word) => {
                let x = x(*value);
                svg.path(&[(x, area.top), (x, area.bottom())], faint, 1.2, true);
                let (x, anchor) = match x > area.left + 0.7 * area.width {
                    true => (x - 5.0, Anchor::End),
                    false => (x + 5.0, Anchor::Start),
                };
                svg.text(
                    (x, area.top + 11.0),
                    word,
                    Type { colour: faint, ..Type::new(11.0, anchor) },
                );
            }
            Mark::Y(value, word) => {
                let y = y(*value);
                svg.path(&[(area.left, y), (area.right(), y)], faint, 1.2, true);
                let look = Type { colour: faint, ..Type::new(11.0, Anchor::End) };
                svg.text((area.right(), y - 5.0), word, look);
            }
        }
    }
}

fn entry((number, series): (usize, &Series)) -> Entry<'_> {
    let patch = series.shape == Shape::Dots;
    Entry { name: &series.name, colour: colour(number), dashed: is_dashed(number, series), patch }
}

/// Colours that come again are told apart by their dashes.
fn is_dashed(number: usize, series: &Series) -> bool {
    series.dashed || number >= PALETTE.len()
}

fn draw_series(svg: &mut Svg, (number, series): (usize, &Series), points: &[(f64, f64)]) {
    let (colour, dashed) = (colour(number), is_dashed(number, series));
    match series.shape {
        Shape::Line | Shape::LineAndDots => svg.path(points, colour, 2.0, dashed),
        Shape::Stairs => svg.path(&stairs(points), colour, 2.0, dashed),
        Shape::Dots => {}
    }
    if matches!(series.shape, Shape::Dots | Shape::LineAndDots) {
        points.iter().for_each(|&point| svg.circle(point, 3.0, colour));
    }
}

/// The corners of a line that holds each value until the next point.
fn stairs(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::with_capacity(2 * points.len());
    for &(x, y) in points {
        if let Some(&(_, before)) = corners.last() {
            corners.push((x, before));
        }
        corners.push((x, y));
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_rise_from_zero_to_one_with_one_step_for_equal_values() {
        let expected = [(1.0, 0.0), (1.0, 0.25), (2.0, 0.75), (5.0, 1.0)];
        assert_eq!(cumulative(&[2.0, 5.0, f64::NAN, 1.0, 2.0]), expected);
        assert!(cumulative(&[]).is_empty());
    }

    #[test]
    fn more_lines_than_colours_are_told_apart() {
        let line = |number: usize| Series::line(format!("line {number}"), vec![(0.0, 1.0)]);
        let lines: Vec<Series> = (0..10).map(line).collect();
        let looks = lines.iter().enumerate().map(entry).map(|entry| (entry.colour, entry.dashed));
        assert_eq!(looks.collect::<std::collections::HashSet<_>>().len(), 10);
    }

    #[test]
    fn stairs_hold_each_value_until_the_next() {
        let corners = stairs(&[(0.0, 1.0), (2.0, 3.0)]);
        assert_eq!(corners, [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0)]);
    }
}
