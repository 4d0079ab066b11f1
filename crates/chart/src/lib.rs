//! Charts as SVG: a figure is rows of panels, a panel is a timeline, machines, lines, bars or
//! stacked layers.
//!
//! A chart is a value that is rendered to text; nothing here reads or writes files. Legends stand
//! above the plotted area, so that they never cover data.

mod axis;
mod bars;
mod figure;
mod lines;
mod machines;
mod stack;
mod svg;
mod timeline;

pub use axis::{Axis, Scale, grouped};
pub use bars::{BarSeries, Bars};
pub use figure::{Figure, Panel, Row};
pub use lines::{Lines, Mark, Series, Shape, cumulative};
pub use machines::{Machines, Part};
pub use stack::{Layer, Stack};
pub use svg::{Area, Svg};
pub use timeline::{Block, Timeline};

/// Okabe and Ito's colours, told apart by colour-blind readers too; the darkest and strongest come
/// first.
pub const PALETTE: [&str; 8] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F5AA2", "#7A7A7A"];

/// The colour of the series or model with this number.
pub fn colour(number: usize) -> &'static str {
    PALETTE[number % PALETTE.len()]
}

/// What can be read on that colour: half of the palette is too light for white letters.
fn ink_on(number: usize) -> &'static str {
    match number % PALETTE.len() {
        3..=5 => INK,
        _ => "#FFFFFF",
    }
}

const INK: &str = "#222222";
const FAINT_INK: &str = "#666666";
const GRID: &str = "#E4E4E4";
const ALARM: &str = "#C1121F";
