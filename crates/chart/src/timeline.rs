//! Executors over time: a row for each, a block for each batch, and marks for what was dropped or
//! late.

use super::axis::{Axis, HORIZONTAL_ROOM, VERTICAL_ROOM};
use super::figure::{Entry, Panel, draw_head};
use super::svg::{Anchor, Area, Svg, Type, text_width};
use super::{ALARM, FAINT_INK, GRID, colour, ink_on};

/// What executors did over a stretch of time.
pub struct Timeline {
    /// What it shows.
    pub title: String,
    /// The stretch that is shown.
    pub time: Axis,
    /// How many executors there are: one row for each.
    pub rows: usize,
    /// What the colours mean, by their number. Empty, where they need no explanation.
    pub legend: Vec<String>,
    /// The batches; they may reach over the ends.
    pub blocks: Vec<Block>,
    /// When requests were dropped, or answered late.
    pub misses: Vec<f64>,
}

/// A batch on an executor.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// On which executor.
    pub row: usize,
    /// From when.
    pub start: f64,
    /// Until when.
    pub finish: f64,
    /// Which colour, by its number.
    pub colour: usize,
    /// What is written in it where there is room.
    pub label: String,
    /// It did not come to its end: drawn hollow.
    pub cut: bool,
}

/// How high a row is: less for many of them, so that a figure stays on a screen.
const ROW_MAX: f64 = 26.0;
const ROWS_HEIGHT_MAX: f64 = 1000.0;
const DROPS_HEIGHT: f64 = 22.0;
const TITLE_HEIGHT: f64 = 32.0;
const LEGEND_HEIGHT: f64 = 19.0;

impl Timeline {
    /// The height at which all rows can be read, with a legend of one line.
    pub fn height(&self) -> f64 {
        let legend = if self.legend.is_empty() { 0.0 } else { LEGEND_HEIGHT };
        TITLE_HEIGHT
            + legend
            + self.row_height() * self.rows as f64
            + DROPS_HEIGHT
            + HORIZONTAL_ROOM
    }

    fn row_height(&self) -> f64 {
        (ROWS_HEIGHT_MAX / self.rows.max(1) as f64).min(ROW_MAX)
    }

    fn draw_row_names(&self, svg: &mut Svg, area: Area, row_height: f64) {
        let step = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
        let step = step.into_iter().find(|step| *step as f64 * row_height >= 12.0).unwrap_or(1024);
        for row in 0..self.rows {
            let top = area.top + row as f64 * row_height;
            svg.line((area.left, top), (area.right(), top), GRID, 1.0);
            if row % step == 0 {
                let look = Type { colour: FAINT_INK, ..Type::new(11.0, Anchor::End) };
                let middle = top + row_height / 2.0;
                svg.text((area.left - 7.0, middle + 4.0), &row.to_string(), look);
            }
        }
        let middle =
            (area.left - VERTICAL_ROOM + 14.0, area.top + row_height * self.rows as f64 / 2.0);
        svg.text(middle, "executor", Type { upright: true, ..Type::new(12.0, Anchor::Middle) });
    }
}

impl Panel for Timeline {
    fn draw(&self, svg: &mut Svg, area: Area) {
        let entries: Vec<Entry<'_>> = self.legend.iter().enumerate().map(entry).collect();
        let area = draw_head(svg, area, &self.title, &entries);
        let area = area.within(VERTICAL_ROOM, 4.0, 14.0, HORIZONTAL_ROOM);
        let time = self.time.fit(self.blocks.iter().flat_map(|block| [block.start, block.finish]));
        let row_height = ((area.height - DROPS_HEIGHT) / self.rows.max(1) as f64).min(ROW_MAX);
        time.draw_horizontal(svg, area, &self.time.title);
        self.draw_row_names(svg, area, row_height);
        for block in &self.blocks {
            let left = time.x(area, block.start);
            let width = time.x(area, block.finish) - left;
            let top = area.top + block.row as f64 * row_height;
            let place = Area { left, top, width, height: row_height };
            if width > 0.0 {
                draw_block(svg, place.within(0.0, 1.0, 0.0, 1.0), block);
            }
        }
        let middle = area.bottom() - DROPS_HEIGHT / 2.0;
        let top = area.bottom() - DROPS_HEIGHT;
        svg.line((area.left, top), (area.right(), top), FAINT_INK, 1.0);
        let look = Type { colour: ALARM, ..Type::new(11.0, Anchor::End) };
        svg.text((area.left - 7.0, middle + 4.0), "missed", look);
        for &miss in &self.misses {
            let x = time.x(area, miss);
            svg.line((x - 3.5, middle - 5.0), (x + 3.5, middle + 5.0), ALARM, 1.6);
            svg.line((x - 3.5, middle + 5.0), (x + 3.5, middle - 5.0), ALARM, 1.6);
        }
    }
}

fn entry((number, name): (usize, &String)) -> Entry<'_> {
    Entry { name, colour: colour(number), dashed: false, patch: true }
}

fn draw_block(svg: &mut Svg, place: Area, block: &Block) {
    let colour = colour(block.colour);
    let (fill, ink) = if block.cut { ("#FFFFFF", colour) } else { (colour, ink_on(block.colour)) };
    svg.rect(place, fill, Some(if block.cut { colour } else { "#FFFFFF" }));
    let size = (place.height * 0.6).min(12.0);
    if size >= 7.0 && text_width(&block.label, size) + 6.0 <= place.width {
        let middle = (place.left + place.width / 2.0, place.top + place.height / 2.0 + size * 0.36);
        let look = Type { colour: ink, bold: true, ..Type::new(size, Anchor::Middle) };
        svg.text(middle, &block.label, look);
    }
}
