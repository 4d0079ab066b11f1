//! Panels in rows under one title.

use super::svg::{Anchor, Area, Svg, Type, text_width};
use super::{FAINT_INK, INK};

/// Something that fills an area of a figure.
pub trait Panel {
    /// Draws it.
    fn draw(&self, svg: &mut Svg, area: Area);
}

/// A whole picture.
pub struct Figure<'a> {
    /// What it shows.
    pub title: String,
    /// How it came about: smaller, below the title.
    pub subtitle: String,
    /// In pixels.
    pub width: f64,
    /// From the top down.
    pub rows: Vec<Row<'a>>,
}

/// Panels side by side.
pub struct Row<'a> {
    /// In pixels.
    pub height: f64,
    /// From the left; all are equally wide.
    pub panels: Vec<Box<dyn Panel + 'a>>,
}

const MARGIN: f64 = 20.0;
const GAP: f64 = 18.0;

impl Figure<'_> {
    /// The figure as the text of an SVG file.
    pub fn render(&self) -> String {
        let head = if self.subtitle.is_empty() { 32.0 } else { 52.0 };
        let rows: f64 = self.rows.iter().map(|row| row.height + GAP).sum();
        let mut svg = Svg::new(self.width, MARGIN + head + rows + MARGIN - GAP);
        let title = Type { bold: true, ..Type::new(18.0, Anchor::Start) };
        svg.text((MARGIN, MARGIN + 14.0), &self.title, title);
        let subtitle = Type { colour: FAINT_INK, ..Type::new(13.0, Anchor::Start) };
        svg.text((MARGIN, MARGIN + 34.0), &self.subtitle, subtitle);
        let mut top = MARGIN + head;
        for row in &self.rows {
            let count = row.panels.len().max(1) as f64;
            let width = (self.width - 2.0 * MARGIN - GAP * (count - 1.0)) / count;
            for (at, panel) in row.panels.iter().enumerate() {
                let left = MARGIN + at as f64 * (width + GAP);
                panel.draw(&mut svg, Area { left, top, width, height: row.height });
            }
            top += row.height + GAP;
        }
        svg.finish()
    }
}

/// One entry of a legend.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) colour: &'a str,
    pub(super) dashed: bool,
    /// A patch, as for bars and blocks, rather than a stroke.
    pub(super) patch: bool,
}

const LEGEND_SIZE: f64 = 12.0;
const LEGEND_LINE: f64 = 19.0;

/// How high the head of a panel of this width is.
pub(super) fn head_height(width: f64, title: &str, legend: &[Entry<'_>]) -> f64 {
    let mut nowhere = Svg::new(1.0, 1.0);
    let area = Area { left: 0.0, top: 0.0, width, height: 0.0 };
    draw_head(&mut nowhere, area, title, legend).top
}

/// Draws a panel's title and, below it, its legend, in as many lines as it takes; returns what is
/// left.
pub(super) fn draw_head(svg: &mut Svg, area: Area, title: &str, legend: &[Entry<'_>]) -> Area {
    let mut used = 0.0;
    if !title.is_empty() {
        let look = Type { bold: true, ..Type::new(14.0, Anchor::Start) };
        svg.text((area.left, area.top + 14.0), title, look);
        used += 24.0;
    }
    let mut left = area.left;
    for (at, entry) in legend.iter().enumerate() {
        let width = 26.0 + text_width(entry.name, LEGEND_SIZE) + 18.0;
        if at > 0 && left + width > area.right() {
            left = area.left;
            used += LEGEND_LINE;
        }
        let middle = area.top + used + LEGEND_LINE / 2.0 - 2.0;
        if entry.patch {
            let patch = Area { left, top: middle - 6.0, width: 18.0, height: 12.0 };
            svg.rect(patch, entry.colour, None);
        } else {
            let ends = [(left, middle), (left + 20.0, middle)];
            svg.path(&ends, entry.colour, 2.5, entry.dashed);
        }
        let look = Type { colour: INK, ..Type::new(LEGEND_SIZE, Anchor::Start) };
        svg.text((left + 26.0, middle + 4.0), entry.name, look);
        left += width;
    }
    if !legend.is_empty() {
        used += LEGEND_LINE;
    }
    area.within(0.0, used + 4.0, 0.0, 0.0)
}
