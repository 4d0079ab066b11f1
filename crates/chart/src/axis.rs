//! Axes: from values to pixels, with ticks at round numbers.

use super::svg::{Anchor, Area, Svg, Type};
use super::{FAINT_INK, GRID};

/// One axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is measured, with its unit.
    pub title: String,
    /// How values are spread.
    pub scale: Scale,
    /// The lowest value shown; where there is none, the lowest value there is.
    pub low: Option<f64>,
    /// The highest value shown; where there is none, a little above the highest value there is.
    pub high: Option<f64>,
}

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios. Values must be above zero.
    Log,
}

impl Axis {
    /// A linear axis from zero.
    pub fn from_zero(title: impl Into<String>) -> Self {
        Self { low: Some(0.0), ..Self::fitting(title) }
    }

    /// A linear axis just as long as its values.
    pub fn fitting(title: impl Into<String>) -> Self {
        Self { title: title.into(), scale: Scale::Linear, low: None, high: None }
    }

    /// A linear axis with these ends.
    pub fn between(title: impl Into<String>, low: f64, high: f64) -> Self {
        Self { low: Some(low), high: Some(high), ..Self::fitting(title) }
    }

    /// A logarithmic axis as long as its values.
    pub fn log(title: impl Into<String>) -> Self {
        Self { scale: Scale::Log, ..Self::fitting(title) }
    }

    /// The ends and ticks for these values; what has no place on the axis is left out of account.
    pub(super) fn fit(&self, values: impl Iterator<Item = f64>) -> Fitted {
        let log = self.scale == Scale::Log;
        let shown = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (lowest, highest) = shown
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let (mut low, mut high) = (self.low.unwrap_or(lowest), self.high.unwrap_or(highest));
        if !(low.is_finite() && high.is_finite()) {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if high <= low {
            high = if log { low * 10.0 } else { low + low.abs().max(1.0) };
        }
        let ticks = if log { log_ticks(low, high) } else { linear_ticks(low, high) };
        // An end that the data chose moves out to the next round number.
        if !log && let [first, second, ..] = ticks[..] {
            let step = second - first;
            let last = first + step * (ticks.len() - 1) as f64;
            if self.high.is_none() && high > last + 1e-9 * step {
                high = last + step;
            }
            if self.low.is_none() && low < first - 1e-9 * step {
                low = first - step;
            }
        }
        let ticks = if log { ticks } else { linear_ticks(low, high) };
        Fitted { low, high, log, ticks }
    }
}

/// An axis whose ends and ticks are settled.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Fitted {
    /// Where a value lies: 0 at the low end, 1 at the high one.
    pub(super) fn share(&self, value: f64) -> f64 {
        let place = |value: f64| if self.log { value.max(1e-300).ln() } else { value };
        let (low, high) = (place(self.low), place(self.high));
        ((place(value) - low) / (high - low)).clamp(0.0, 1.0)
    }

    pub(super) fn x(&self, area: Area, value: f64) -> f64 {
        area.left + self.share(value) * area.width
    }

    pub(super) fn y(&self, area: Area, value: f64) -> f64 {
        area.bottom() - self.share(value) * area.height
    }

    pub(super) fn draw_horizontal(&self, svg: &mut Svg, area: Area, title: &str) {
        for (tick, label) in self.ticks.iter().zip(labels(&self.ticks, self.log)) {
            let x = self.x(area, *tick);
            svg.line((x, area.top), (x, area.bottom()), GRID, 1.0);
            let look = Type { colour: FAINT_INK, ..Type::new(11.0, Anchor::Middle) };
            svg.text((x, area.bottom() + 16.0), &label, look);
        }
        draw_base(svg, area);
        draw_horizontal_title(svg, area, title);
    }

    pub(super) fn draw_vertical(&self, svg: &mut Svg, area: Area, title: &str) {
        for (tick, label) in self.ticks.iter().zip(labels(&self.ticks, self.log)) {
            let y = self.y(area, *tick);
            svg.line((area.left, y), (area.right(), y), GRID, 1.0);
            let look = Type { colour: FAINT_INK, ..Type::new(11.0, Anchor::End) };
            svg.text((area.left - 7.0, y + 4.0), &label, look);
        }
        let middle = (area.left - VERTICAL_ROOM + 14.0, area.top + area.height / 2.0);
        svg.text(middle, title, Type { upright: true, ..Type::new(12.0, Anchor::Middle) });
    }
}

/// The room that a vertical axis with title takes on the left, and a horizontal one below.
pub(super) const VERTICAL_ROOM: f64 = 72.0;
pub(super) const HORIZONTAL_ROOM: f64 = 44.0;

pub(super) fn draw_base(svg: &mut Svg, area: Area) {
    svg.line((area.left, area.bottom()), (area.right(), area.bottom()), FAINT_INK, 1.0);
}

pub(super) fn draw_horizontal_title(svg: &mut Svg, area: Area, title: &str) {
    let middle = (area.left + area.width / 2.0, area.bottom() + 36.0);
    svg.text(middle, title, Type::new(12.0, Anchor::Middle));
}

/// About six multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(10.0 * power);
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    (0..=(last - first).max(0.0) as usize).map(|at| (first + at as f64) * step).collect()
}

/// Powers of ten, with 2 and 5 times them where those alone would be few.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let factors: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let powers = (first..=last).map(|power| 10f64.powi(power));
    powers
        .flat_map(|power| factors.iter().map(move |factor| factor * power))
        .filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001)
        .collect()
}

/// As many decimals as the ticks need to differ, with thousands apart.
fn labels(ticks: &[f64], log: bool) -> Vec<String> {
    let smallest = match ticks {
        [first, second, ..] if !log => second - first,
        _ => ticks.first().copied().unwrap_or(1.0),
    };
    let common = (-smallest.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let decimals = |tick: f64| match log {
        true => (-tick.log10() - 1e-9).ceil().clamp(0.0, 9.0) as usize,
        false => common,
    };
    ticks.iter().map(|&tick| grouped(tick, decimals(tick))).collect()
}

/// A number with its thousands apart: 12,345.6.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", &text[..]), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(w, f)| (w, Some(f)));
    let mut result = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            result.push(',');
        }
        result.push(digit);
    }
    if let Some(fraction) = fraction {
        result.push('.');
        result.push_str(fraction);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(linear_ticks(0.0, 18.0), [0.0, 5.0, 10.0, 15.0]);
        assert_eq!(linear_ticks(1000.0, 1250.0), [1000.0, 1050.0, 1100.0, 1150.0, 1200.0, 1250.0]);
        assert_eq!(log_ticks(1.0, 20.0), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(labels(&[0.0, 0.5, 1.0], false), ["0.0", "0.5", "1.0"]);
        assert_eq!(labels(&[0.01, 1.0, 1000.0], true), ["0.01", "1", "1,000"]);
    }

    #[test]
    fn axes_reach_round_numbers_and_survive_strange_values() {
        let fitted = Axis::from_zero("x").fit([3.0, 17.0, f64::NAN].into_iter());
        assert_eq!((fitted.low, fitted.high), (0.0, 20.0));
        for values in [vec![], vec![0.0], vec![f64::INFINITY], vec![5.0, 5.0]] {
            for axis in [Axis::from_zero("x"), Axis::fitting("x"), Axis::log("x")] {
                let fitted = axis.fit(values.iter().copied());
                assert!(fitted.low < fitted.high, "{values:?}");
                assert!((0.0..=1.0).contains(&fitted.share(5.0)), "{values:?}");
            }
        }
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(1234567.891, 1), "1,234,567.9");
        assert_eq!(grouped(-999.0, 0), "-999");
        assert_eq!(grouped(-1000.0, 0), "-1,000");
    }
}
