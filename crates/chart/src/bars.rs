//! Bars: groups of several series side by side, or one series as a histogram.

use super::axis::{Axis, HORIZONTAL_ROOM, VERTICAL_ROOM, draw_base, draw_horizontal_title};
use super::figure::{Entry, Panel, draw_head};
use super::svg::{Anchor, Area, Svg, Type, text_width};
use super::{FAINT_INK, colour};

/// A chart of bars.
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// What the groups are.
    pub x_title: String,
    /// Upwards.
    pub y: Axis,
    /// The name below each group.
    pub groups: Vec<String>,
    /// One bar in each group; the first gets the first colour.
    pub series: Vec<BarSeries>,
    /// Writes each bar's value above it, with this many decimals, where there is room.
    pub values: Option<usize>,
}

/// The bars of one colour.
pub struct BarSeries {
    /// Its name in the legend.
    pub name: String,
    /// By group; no bar is drawn for NaN.
    pub values: Vec<f64>,
}

impl Panel for Bars {
    fn draw(&self, svg: &mut Svg, area: Area) {
        let entries: Vec<Entry<'_>> = self.series.iter().enumerate().map(entry).collect();
        let area =
            draw_head(svg, area, &self.title, if entries.len() > 1 { &entries } else { &[] });
        let area = area.within(VERTICAL_ROOM, 14.0, 14.0, HORIZONTAL_ROOM);
        let all = self.series.iter().flat_map(|series| series.values.iter().copied());
        let y = self.y.fit(all);
        y.draw_vertical(svg, area, &self.y.title);
        let group_width = area.width / self.groups.len().max(1) as f64;
        // A histogram's bars touch almost; groups are kept apart by about one bar.
        let filled = if self.series.len() == 1 { 0.86 } else { 0.8 };
        let bar_width = group_width * filled / self.series.len().max(1) as f64;
        for (number, series) in self.series.iter().enumerate() {
            for (group, &value) in series.values.iter().enumerate().filter(|(_, v)| v.is_finite()) {
                let left = area.left
                    + group_width * (group as f64 + (1.0 - filled) / 2.0)
                    + bar_width * number as f64;
                let top = y.y(area, value);
                let bar = Area { left, top, width: bar_width, height: area.bottom() - top };
                let seam = (0.06 * bar_width).min(2.0);
                svg.rect(Area { width: bar_width - seam, ..bar }, colour(number), None);
                self.draw_value(svg, bar, value);
            }
        }
        draw_base(svg, area);
        self.draw_names(svg, area, group_width);
        draw_horizontal_title(svg, area, &self.x_title);
    }
}

impl Bars {
    fn draw_value(&self, svg: &mut Svg, bar: Area, value: f64) {
        let Some(decimals) = self.values else { return };
        let text = super::axis::grouped(value, decimals);
        let says_something = text.contains(|digit: char| ('1'..='9').contains(&digit));
        if says_something && text_width(&text, 10.0) <= bar.width + 6.0 {
            let look = Type { colour: FAINT_INK, ..Type::new(10.0, Anchor::Middle) };
            svg.text((bar.left + bar.width / 2.0, bar.top - 4.0), &text, look);
        }
    }

    /// Names every group, or every second, fifth, ... where the names would touch.
    fn draw_names(&self, svg: &mut Svg, area: Area, group_width: f64) {
        let widest =
            self.groups.iter().map(|name| text_width(name, 11.0) + 8.0).fold(0.0, f64::max);
        let step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
        let fits = |step: &usize| *step as f64 * group_width >= widest;
        let step = step.into_iter().find(fits).unwrap_or(1000);
        // Numbers from one are named at 5, 10, 15 rather than at 1, 6, 11.
        let first = if step > 1 && self.groups.first().is_some_and(|name| name == "1") {
            step - 1
        } else {
            0
        };
        for (group, name) in self.groups.iter().enumerate().skip(first).step_by(step) {
            let x = area.left + group_width * (group as f64 + 0.5);
            let look = Type { colour: FAINT_INK, ..Type::new(11.0, Anchor::Middle) };
            svg.text((x, area.bottom() + 16.0), name, look);
        }
    }
}

fn entry((number, series): (usize, &BarSeries)) -> Entry<'_> {
    Entry { name: &series.name, colour: colour(number), dashed: false, patch: true }
}
