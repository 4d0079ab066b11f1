//! The few SVG elements that charts are made of.

use std::fmt::Write;

use super::INK;

/// A drawing that grows element by element.
#[derive(Clone, Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// A rectangle of the drawing, in pixels from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Its left edge.
    pub left: f64,
    /// Its upper edge.
    pub top: f64,
    /// How wide it is.
    pub width: f64,
    /// How high it is.
    pub height: f64,
}

impl Area {
    /// Its right edge.
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    /// Its lower edge.
    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// The same without margins.
    pub fn within(&self, left: f64, top: f64, right: f64, bottom: f64) -> Self {
        Self {
            left: self.left + left,
            top: self.top + top,
            width: (self.width - left - right).max(1.0),
            height: (self.height - top - bottom).max(1.0),
        }
    }
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type<'a> {
    pub(super) size: f64,
    pub(super) anchor: Anchor,
    pub(super) colour: &'a str,
    pub(super) bold: bool,
    /// Read from below, as the title of a vertical axis.
    pub(super) upright: bool,
}

impl Type<'_> {
    pub(super) fn new(size: f64, anchor: Anchor) -> Self {
        Self { size, anchor, colour: INK, bold: false, upright: false }
    }
}

impl Svg {
    /// An empty drawing on a white ground.
    pub fn new(width: f64, height: f64) -> Self {
        let mut svg = Self { width, height, body: String::new() };
        svg.rect(Area { left: 0.0, top: 0.0, width, height }, "#FFFFFF", None);
        svg
    }

    /// The whole document.
    pub fn finish(self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', \
             sans-serif\">\n\
             {body}</svg>\n"
        )
    }

    pub(super) fn rect(&mut self, area: Area, fill: &str, outline: Option<&str>) {
        let Area { left, top, width, height } = area;
        let outline = outline.map_or(String::new(), |colour| format!(" stroke=\"{colour}\""));
        self.element(format_args!(
            "<rect x=\"{left:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
             fill=\"{fill}\"{outline}/>"
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.element(format_args!(
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"/>"
        ));
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], colour: &str, width: f64, dashed: bool) {
        let mut list = String::new();
        for (x, y) in points {
            let _ = write!(list, "{x:.2},{y:.2} ");
        }
        let dashes = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        self.element(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
             stroke-linejoin=\"round\"{dashes}/>",
            list.trim_end()
        ));
    }

    pub(super) fn polygon(&mut self, corners: &[(f64, f64)], fill: &str) {
        let mut list = String::new();
        for (x, y) in corners {
            let _ = write!(list, "{x:.1},{y:.1} ");
        }
        self.element(format_args!("<polygon points=\"{}\" fill=\"{fill}\"/>", list.trim_end()));
    }

    pub(super) fn circle(&mut self, centre: (f64, f64), radius: f64, fill: &str) {
        let (x, y) = centre;
        self.element(format_args!(
            "<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius}\" fill=\"{fill}\"/>"
        ));
    }

    pub(super) fn text(&mut self, at: (f64, f64), text: &str, look: Type<'_>) {
        let (x, y) = at;
        let Type { size, anchor, colour, bold, upright } = look;
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if bold { " font-weight=\"600\"" } else { "" };
        let turn = match upright {
            true => format!(" transform=\"rotate(-90 {x:.2} {y:.2})\""),
            false => String::new(),
        };
        let text = escape(text);
        self.element(format_args!(
            "<text x=\"{x:.2}\" y=\"{y:.2}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
             fill=\"{colour}\"{weight}{turn}>{text}</text>"
        ));
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("a string takes all text");
    }
}

/// About how wide a text is: the fonts are not known here, and digits and letters are near this.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // Control characters are not allowed in XML, even as references.
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}
