//! Machines as rows, and what fills each: over a round, or as parts of a whole.

use super::axis::{Axis, HORIZONTAL_ROOM, VERTICAL_ROOM};
use super::figure::{Entry, Panel, draw_head, head_height};
use super::svg::{Anchor, Area, Svg, Type, text_width};
use super::{FAINT_INK, GRID, INK, PALETTE};

/// Rows of machines.
pub struct Machines {
    /// What it shows.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// What a row is.
    pub row_title: String,
    /// How many rows there are.
    pub rows: usize,
    /// How high all rows may be together, in pixels.
    pub rows_height_max: f64,
    /// What the colours mean, by their number. Empty, where they are too many to be told apart.
    pub legend: Vec<String>,
    /// What is drawn.
    pub parts: Vec<Part>,
}

/// A rectangle over some rows, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its upper edge, in rows.
    pub top: f64,
    /// How many rows high it is.
    pub height: f64,
    /// From where.
    pub start: f64,
    /// To where.
    pub finish: f64,
    /// Which colour, by its number.
    pub colour: usize,
    /// What is written in it where there is room.
    pub label: String,
    /// A repetition: lighter, and without its label.
    pub faint: bool,
}

/// How high a row is at most: a few may be higher, since they are divided.
const ROW_MAX: f64 = 26.0;
const FEW_ROW_MAX: f64 = 48.0;
const FEW: usize = 24;
const LABEL_MAX: f64 = 12.0;
const LABEL_MIN: f64 = 7.0;
/// How far repetitions are from their colour to white.
const FAINT: f64 = 0.72;
/// Bold letters are so much wider.
const BOLD: f64 = 1.1;

impl Machines {
    /// The height at which all rows can be read, in a figure that leaves it this width.
    pub fn height(&self, width: f64) -> f64 {
        let (fills, head) = (self.fills(), 4.0 + HORIZONTAL_ROOM);
        head_height(width, &self.title, &self.entries(&fills))
            + head
            + self.row_height() * self.rows as f64
    }

    fn row_height(&self) -> f64 {
        (self.rows_height_max / self.rows.max(1) as f64).min(self.row_max())
    }

    fn row_max(&self) -> f64 {
        if self.rows > FEW { ROW_MAX } else { FEW_ROW_MAX }
    }

    /// The colours of the legend.
    fn fills(&self) -> Vec<String> {
        (0..self.legend.len()).map(|number| shade(number).0).collect()
    }

    fn entries<'a>(&'a self, fills: &'a [String]) -> Vec<Entry<'a>> {
        let entry = |(name, colour): (&'a String, &'a String)| Entry {
            name,
            colour,
            dashed: false,
            patch: true,
        };
        self.legend.iter().zip(fills).map(entry).collect()
    }

    fn draw_row_names(&self, svg: &mut Svg, area: Area, row_height: f64) {
        let steps = [1, 2, 5, 10, 20, 50, 100];
        let step = steps.into_iter().find(|&step| f64::from(step) * row_height >= 12.0);
        for row in (0..self.rows).step_by(step.unwrap_or(200) as usize) {
            let top = area.top + row as f64 * row_height;
            svg.line((area.left, top), (area.right(), top), GRID, 1.0);
            let look = Type { colour: FAINT_INK, ..Type::new(11.0, Anchor::End) };
            svg.text(
                (area.left - 7.0, top + row_height.max(8.0) / 2.0 + 4.0),
                &row.to_string(),
                look,
            );
        }
        let middle =
            (area.left - VERTICAL_ROOM + 14.0, area.top + row_height * self.rows as f64 / 2.0);
        let look = Type { upright: true, ..Type::new(12.0, Anchor::Middle) };
        svg.text(middle, &self.row_title, look);
    }
}

impl Panel for Machines {
    fn draw(&self, svg: &mut Svg, area: Area) {
        let fills = self.fills();
        let area = draw_head(svg, area, &self.title, &self.entries(&fills));
        let area = area.within(VERTICAL_ROOM, 0.0, 14.0, HORIZONTAL_ROOM);
        let x = self.x.fit(self.parts.iter().flat_map(|part| [part.start, part.finish]));
        let row_height = (area.height / self.rows.max(1) as f64).min(self.row_max());
        x.draw_horizontal(svg, area, &self.x.title);
        self.draw_row_names(svg, area, row_height);
        // A seam between rows, as long as it leaves most of a row.
        let seam = if row_height >= 6.0 { 1.0 } else { 0.0 };
        for part in &self.parts {
            let left = x.x(area, part.start);
            let place = Area {
                left,
                top: area.top + part.top * row_height,
                width: x.x(area, part.finish) - left,
                height: part.height * row_height,
            };
            if place.width > 0.0 {
                draw_part(svg, place.within(0.0, seam / 2.0, 0.0, seam / 2.0), part);
            }
        }
    }
}

fn draw_part(svg: &mut Svg, place: Area, part: &Part) {
    let (fill, ink) = shade(part.colour);
    let fill = if part.faint { mixed(&fill, 255.0, FAINT).0 } else { fill };
    // An outline would swallow what is narrow.
    let outline = (place.width > 3.0 && place.height > 3.0).then_some("#FFFFFF");
    svg.rect(place, &fill, outline);
    if part.faint {
        return;
    }
    let middle = (place.left + place.width / 2.0, place.top + place.height / 2.0);
    let look = |size: f64, upright: bool| Type {
        colour: ink,
        bold: true,
        upright,
        ..Type::new(size, Anchor::Middle)
    };
    let size = (place.height * 0.62).min(LABEL_MAX);
    if size >= LABEL_MIN && BOLD * text_width(&part.label, size) + 6.0 <= place.width {
        svg.text((middle.0, middle.1 + size * 0.36), &part.label, look(size, false));
        return;
    }
    let size = (place.width * 0.7).min(LABEL_MAX);
    if size >= LABEL_MIN && BOLD * text_width(&part.label, size) + 6.0 <= place.height {
        svg.text((middle.0 + size * 0.36, middle.1), &part.label, look(size, true));
    }
}

/// More colours than the palette has: it, then lighter, then darker, then from the beginning; and
/// what can be read on each.
fn shade(number: usize) -> (String, &'static str) {
    let (to, by) = [(255.0, 0.0), (255.0, 0.5), (0.0, 0.4)][number / PALETTE.len() % 3];
    let (fill, light) = mixed(PALETTE[number % PALETTE.len()], to, by);
    (fill, if light > 130.0 { INK } else { "#FFFFFF" })
}

/// A colour moved towards black or white, and how light it is then.
fn mixed(colour: &str, to: f64, by: f64) -> (String, f64) {
    let channel = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap_or(0));
    let [red, green, blue] = [1, 3, 5].map(|at| channel(at) * (1.0 - by) + to * by);
    let light = 0.299 * red + 0.587 * green + 0.114 * blue;
    (format!("#{:02X}{:02X}{:02X}", red as u8, green as u8, blue as u8), light)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_begin_with_the_palette_and_differ_for_three_rounds_of_it() {
        let mut shades: Vec<String> = (0..24).map(|number| shade(number).0).collect();
        assert_eq!(shades[..8], PALETTE);
        shades.sort();
        shades.dedup();
        assert_eq!(shades.len(), 24);
        assert_eq!(shade(24).0, PALETTE[0]);
    }

    #[test]
    fn labels_stand_where_they_fit_lying_or_upright_or_not_at_all() {
        let part = |start: f64, finish: f64, height: f64| Part {
            top: 0.0,
            height,
            start,
            finish,
            colour: 0,
            label: "model".to_owned(),
            faint: false,
        };
        let machines = |part: Part| Machines {
            title: String::new(),
            x: Axis::between("x", 0.0, 100.0),
            row_title: String::new(),
            rows: 10,
            rows_height_max: 200.0,
            legend: Vec::new(),
            parts: vec![part],
        };
        let drawn = |part: Part| {
            let machines = machines(part);
            let mut svg = Svg::new(600.0, machines.height(600.0));
            let area = Area { left: 0.0, top: 0.0, width: 600.0, height: machines.height(600.0) };
            machines.draw(&mut svg, area);
            let text = svg.finish();
            let line = text.lines().find(|line| line.contains(">model<")).map(str::to_owned);
            line.map(|line| line.contains("rotate"))
        };
        assert_eq!(drawn(part(0.0, 50.0, 1.0)), Some(false));
        assert_eq!(drawn(part(0.0, 4.0, 10.0)), Some(true));
        assert_eq!(drawn(part(0.0, 4.0, 1.0)), None);
    }
}
