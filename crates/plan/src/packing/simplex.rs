//! The linear program of column generation: cover every row with columns at the least cost.
//!
//! `min c x` with `A x >= b` and `x >= 0`, where columns come one by one, as prices of the rows
//! show which are worth having. That needs the prices (duals), and a start from the last solution:
//! the solvers in pure Rust that we looked at give neither, and what is needed is this page: the
//! revised simplex method with the inverse of the basis kept whole, since there are hundreds of
//! rows and not hundreds of thousands.

/// What a column adds to which rows, in ascending order of rows.
pub(super) type Entries = Vec<(usize, f64)>;

/// A covering program and its solution so far.
pub(super) struct Covering {
    columns: Vec<Column>,
    /// The column of each place of the basis.
    basis: Vec<usize>,
    /// How much is taken of it.
    amounts: Vec<f64>,
    /// Row-major; one row for each place of the basis.
    inverse: Vec<f64>,
    right: Vec<f64>,
    pivots: usize,
}

struct Column {
    cost: f64,
    entries: Entries,
}

/// Values closer to zero than this are rounding errors.
const TINY: f64 = 1e-9;
/// A column is worth having if it saves at least this much.
const WORTH: f64 = 1e-7;
/// Ties between rows make the method walk in circles: their right sides are told apart by this
/// part.
const APART: f64 = 1e-7;
/// After so many pivots the inverse is computed anew, before rounding errors add up.
const FRESH: usize = 400;

impl Covering {
    /// Rows with what they need. Each starts covered by a column of its own, of this cost.
    pub(super) fn new(needs: &[f64], cost: f64) -> Self {
        let rows = needs.len();
        let right: Vec<f64> = needs
            .iter()
            .enumerate()
            .map(|(row, need)| need * (1.0 + APART * ((row * 7919 % 1009) as f64 + 1.0) / 1009.0))
            .collect();
        let mut inverse = vec![0.0; rows * rows];
        (0..rows).for_each(|row| inverse[row * rows + row] = 1.0);
        let mut columns: Vec<Column> =
            (0..rows).map(|row| Column { cost, entries: vec![(row, 1.0)] }).collect();
        // More than enough may be had: what is too much is taken off for nothing.
        columns.extend((0..rows).map(|row| Column { cost: 0.0, entries: vec![(row, -1.0)] }));
        Self {
            columns,
            basis: (0..rows).collect(),
            amounts: right.clone(),
            inverse,
            right,
            pivots: 0,
        }
    }

    fn rows(&self) -> usize {
        self.right.len()
    }

    /// Adds a column, and says by which number it is known.
    pub(super) fn add(&mut self, cost: f64, entries: Entries) -> usize {
        self.columns.push(Column { cost, entries });
        self.columns.len() - 1
    }

    /// What one unit of each row costs at present.
    pub(super) fn prices(&self) -> Vec<f64> {
        let rows = self.rows();
        let mut prices = vec![0.0; rows];
        for (place, &column) in self.basis.iter().enumerate() {
            let cost = self.columns[column].cost;
            if cost != 0.0 {
                let line = &self.inverse[place * rows..][..rows];
                prices.iter_mut().zip(line).for_each(|(price, part)| *price += cost * part);
            }
        }
        prices
    }

    /// Which columns are taken, and how much of each.
    pub(super) fn taken(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.basis.iter().copied().zip(self.amounts.iter().copied())
    }

    /// Exchanges columns until none of those that there are is worth having.
    pub(super) fn solve(&mut self) {
        // Far more than is ever needed: a backstop against rounding errors that undo each other.
        for _ in 0..50 * (self.rows() + self.columns.len()) {
            let prices = self.prices();
            let saved = |column: &Column| {
                let paid: f64 = column.entries.iter().map(|&(row, part)| prices[row] * part).sum();
                paid - column.cost
            };
            let savings = self.columns.iter().enumerate().map(|(at, column)| (saved(column), at));
            let best = savings.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            match best {
                Some((saving, column)) if saving > WORTH => {
                    if !self.enter(column) {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// Takes a column into the basis; `false` if nothing would leave it, which only a rounding
    /// error can cause.
    fn enter(&mut self, column: usize) -> bool {
        let rows = self.rows();
        let mut direction = vec![0.0; rows];
        for (place, each) in direction.iter_mut().enumerate() {
            let line = &self.inverse[place * rows..][..rows];
            *each = self.columns[column].entries.iter().map(|&(row, part)| line[row] * part).sum();
        }
        let ratio = |place: usize| self.amounts[place].max(0.0) / direction[place];
        let leaving = (0..rows)
            .filter(|&place| direction[place] > TINY)
            .min_by(|&a, &b| ratio(a).total_cmp(&ratio(b)).then(a.cmp(&b)));
        let Some(leaving) = leaving else { return false };
        let step = ratio(leaving);
        for (place, amount) in self.amounts.iter_mut().enumerate() {
            *amount -= step * direction[place];
        }
        self.amounts[leaving] = step;
        self.basis[leaving] = column;

        let pivot = direction[leaving];
        let (before, rest) = self.inverse.split_at_mut(leaving * rows);
        let (line, after) = rest.split_at_mut(rows);
        line.iter_mut().for_each(|each| *each /= pivot);
        let others = before.chunks_exact_mut(rows).chain(after.chunks_exact_mut(rows));
        let places = (0..rows).filter(|&place| place != leaving);
        for (place, other) in places.zip(others) {
            let factor = direction[place];
            if factor.abs() > TINY {
                other.iter_mut().zip(line.iter()).for_each(|(each, part)| *each -= factor * part);
            }
        }
        self.pivots += 1;
        if self.pivots.is_multiple_of(FRESH) {
            self.refresh();
        }
        true
    }

    /// Computes the inverse of the basis anew (Gauss and Jordan, with the largest pivot of each
    /// column).
    fn refresh(&mut self) {
        let rows = self.rows();
        let mut basis = vec![0.0; rows * rows];
        for (place, &column) in self.basis.iter().enumerate() {
            for &(row, part) in &self.columns[column].entries {
                basis[row * rows + place] = part;
            }
        }
        let mut inverse = vec![0.0; rows * rows];
        (0..rows).for_each(|row| inverse[row * rows + row] = 1.0);
        for at in 0..rows {
            let size = |row: usize| basis[row * rows + at].abs();
            let largest = (at..rows).max_by(|&a, &b| size(a).total_cmp(&size(b)));
            let largest = largest.expect("a row is left");
            if size(largest) < TINY {
                // The basis has become singular by rounding errors: the old inverse is the better
                // one.
                return;
            }
            for column in 0..rows {
                basis.swap(at * rows + column, largest * rows + column);
                inverse.swap(at * rows + column, largest * rows + column);
            }
            let pivot = basis[at * rows + at];
            for matrix in [&mut basis, &mut inverse] {
                matrix[at * rows..][..rows].iter_mut().for_each(|each| *each /= pivot);
            }
            for row in (0..rows).filter(|&row| row != at) {
                let factor = basis[row * rows + at];
                if factor != 0.0 {
                    for matrix in [&mut basis, &mut inverse] {
                        for column in 0..rows {
                            matrix[row * rows + column] -= factor * matrix[at * rows + column];
                        }
                    }
                }
            }
        }
        self.inverse = inverse;
        for place in 0..rows {
            let line = &self.inverse[place * rows..][..rows];
            self.amounts[place] = line.iter().zip(&self.right).map(|(a, b)| a * b).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_pairs_cover_three_rows_by_halves() {
        let mut covering = Covering::new(&[1.0, 1.0, 1.0], 1.0);
        for pair in [[0, 1], [1, 2], [0, 2]] {
            covering.add(1.0, pair.iter().map(|&row| (row, 1.0)).collect());
        }
        covering.solve();
        let value = |covering: &Covering| covering.taken().map(|(_, amount)| amount).sum::<f64>();
        assert!((value(&covering) - 1.5).abs() < 1e-5);
        assert!(covering.prices().iter().all(|price| (price - 0.5).abs() < 1e-6));
        covering.refresh();
        assert!((value(&covering) - 1.5).abs() < 1e-5);
    }
}
