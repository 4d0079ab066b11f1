//! Tables of plain text.

use std::fmt::Write;

/// Columns as wide as their widest cell; the first is aligned to the left, numbers to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Another column of words.
    left: Option<usize>,
}

impl Table {
    /// With these heads of columns.
    pub fn new<'a>(head: impl Iterator<Item = &'a str>) -> Self {
        Self { rows: vec![head.map(str::to_owned).collect()], left: None }
    }

    /// Aligns the column of this name to the left too.
    pub fn left(self, name: &str) -> Self {
        let left = self.rows[0].iter().position(|head| head == name);
        Self { left, ..self }
    }

    /// One more row, with a cell for each column.
    pub fn row(&mut self, cells: impl Iterator<Item = String>) {
        self.rows.push(cells.collect());
    }

    /// All rows, the heads first.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let _ = match column == 0 || Some(column) == self.left {
                    true => write!(text, "  {cell:width$}"),
                    false => write!(text, "  {cell:>width$}"),
                };
            }
            text.push('\n');
        }
        text
    }
}
