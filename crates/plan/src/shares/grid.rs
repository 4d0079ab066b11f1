//! Latencies that were measured on some shares of a GPU at some batch sizes, and those on any share
//! in between.
//!
//! Between two measured sizes they lie on a straight line. Between two measured shares they lie on
//! a line over `1 / share`: a batch takes a fixed time and its work divided by the share. Below the
//! smallest share that line goes on, and above the largest nothing is faster. A larger batch never
//! takes less, nor does a smaller share: what was measured otherwise is noise.

use std::fmt;

use fermata_core::{Profile, ProfileError, Span};

/// Measured latencies by share and batch size.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The sizes that were measured, ascending.
    batches: Vec<usize>,
    /// The shares, in percent, ascending, with the latency at each of the sizes.
    rows: Vec<(u32, Vec<Span>)>,
    /// The sizes that are run, ascending: a batch is padded up to the next of them. None, if all
    /// are.
    run: Vec<usize>,
}

/// Why measured latencies are not a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridError {
    /// There is no batch size.
    NoBatch,
    /// The sizes do not ascend, or are not from 1 to 4,096.
    Batches,
    /// There is no share.
    NoShare,
    /// A share that is not from 1 to 100 percent, or is there twice.
    Share(u32),
    /// A share with more or fewer latencies than there are sizes.
    Length(u32),
    /// A share with a latency of zero.
    Zero(u32),
}

/// The largest batch that is worth a table.
const BATCH_MAX: usize = 4096;

impl Grid {
    /// Of shares in percent, each with a latency for each batch size.
    pub fn new(batches: &[usize], shares: &[(u32, Vec<Span>)]) -> Result<Self, GridError> {
        if batches.is_empty() {
            return Err(GridError::NoBatch);
        }
        if !are_sizes(batches) {
            return Err(GridError::Batches);
        }
        if shares.is_empty() {
            return Err(GridError::NoShare);
        }
        let mut rows = shares.to_vec();
        rows.sort_by_key(|(percent, _)| *percent);
        for (at, (percent, latencies)) in rows.iter().enumerate() {
            if !(1..=100).contains(percent) || at > 0 && rows[at - 1].0 == *percent {
                return Err(GridError::Share(*percent));
            }
            if latencies.len() != batches.len() {
                return Err(GridError::Length(*percent));
            }
            if latencies.contains(&Span::ZERO) {
                return Err(GridError::Zero(*percent));
            }
        }
        // From the largest share on, each is at least as slow as the one before, and as its own
        // smaller batches.
        let mut above = vec![Span::ZERO; batches.len()];
        for (_, latencies) in rows.iter_mut().rev() {
            let mut highest = Span::ZERO;
            for (latency, above) in latencies.iter_mut().zip(&mut above) {
                highest = highest.max(*latency).max(*above);
                (*latency, *above) = (highest, highest);
            }
        }
        Ok(Self { batches: batches.to_vec(), rows, run: Vec::new() })
    }

    /// The same where only batches of these sizes are run, and others padded up to the next of
    /// them. Sizes that are not measured may be among them; above the last, nothing is padded.
    pub fn padded_to(self, sizes: &[usize]) -> Result<Self, GridError> {
        match are_sizes(sizes) {
            true => Ok(Self { run: sizes.to_vec(), ..self }),
            false => Err(GridError::Batches),
        }
    }

    /// The shares that were measured, in percent, ascending.
    pub fn shares(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().map(|(percent, _)| *percent)
    }

    /// The profile on a share of so many percent, with batches up to the largest that was measured.
    pub fn on_share(&self, percent: u32) -> Profile {
        let known = self.at_batches(percent);
        let latency = |batch: usize| {
            let padded = self.run.get(self.run.partition_point(|&size| size < batch));
            let batch = padded.map_or(batch, |&size| size.min(self.max_batch()));
            self.between_batches(&known, batch)
        };
        let table = Profile::from_table((1..=self.max_batch()).map(latency));
        table.expect("there is a size, and no measured latency is zero")
    }

    /// The largest batch that was measured.
    pub fn max_batch(&self) -> usize {
        *self.batches.last().expect("a grid has at least one size")
    }

    /// The latencies of a share at the measured sizes.
    fn at_batches(&self, percent: u32) -> Vec<f64> {
        let row = |at: usize| self.rows[at].1.iter().map(|span| span.0 as f64);
        let above = self.rows.partition_point(|(measured, _)| *measured < percent);
        if above == self.rows.len() {
            return row(above - 1).collect();
        }
        if self.rows[above].0 == percent || self.rows.len() == 1 {
            return row(above).collect();
        }
        // Below the smallest share, the two smallest say how it goes on.
        let (small, large) = if above == 0 { (0, 1) } else { (above - 1, above) };
        let inverse = |percent: u32| 100.0 / f64::from(percent.max(1));
        let (most, least) = (inverse(self.rows[small].0), inverse(self.rows[large].0));
        let part = (inverse(percent) - least) / (most - least);
        row(small).zip(row(large)).map(|(slow, fast)| fast + part * (slow - fast)).collect()
    }

    /// The latency of a batch, rounded up, on the line between the sizes beside it.
    fn between_batches(&self, known: &[f64], batch: usize) -> Span {
        let at = self.batches.partition_point(|&size| size < batch);
        // A batch that is smaller than all measured ones takes as long as the smallest.
        if self.batches[at] == batch || at == 0 {
            return Span(known[at].ceil() as u64);
        }
        let (below, above) = (self.batches[at - 1] as f64, self.batches[at] as f64);
        let part = (batch as f64 - below) / (above - below);
        Span((known[at - 1] + part * (known[at] - known[at - 1])).ceil() as u64)
    }
}

fn are_sizes(sizes: &[usize]) -> bool {
    sizes.windows(2).all(|pair| pair[0] < pair[1])
        && sizes.iter().all(|size| (1..=BATCH_MAX).contains(size))
}

impl std::error::Error for GridError {}

impl fmt::Display for GridError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBatch => write!(f, "{}", ProfileError::Empty),
            Self::Batches => write!(f, "batch sizes must ascend, from 1 to {BATCH_MAX}"),
            Self::NoShare => write!(f, "there is no share"),
            Self::Share(percent) => {
                write!(f, "a share of {percent} % is there twice, or is not from 1 to 100")
            }
            Self::Length(percent) => {
                write!(f, "the share of {percent} % does not have a latency for each batch size")
            }
            Self::Zero(percent) => write!(f, "a latency of the share of {percent} % is zero"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(ms: &[f64]) -> Vec<Span> {
        ms.iter().map(|&ms| Span::from_ms(ms)).collect()
    }

    /// `L(b, p) = 1 + b / p` ms, on a fifth, half and all of a GPU.
    fn formula() -> Grid {
        let row = |percent: u32| {
            let latency = |batch: f64| 1.0 + batch * 100.0 / f64::from(percent);
            (percent, spans(&[1.0, 4.0, 8.0, 32.0].map(latency)))
        };
        Grid::new(&[1, 4, 8, 32], &[row(100), row(20), row(50)]).unwrap()
    }

    #[test]
    fn a_latency_of_fixed_time_and_work_is_met_everywhere() {
        let grid = formula();
        for percent in [5, 10, 20, 35, 50, 80, 99, 100] {
            let profile = grid.on_share(percent);
            assert_eq!(profile.max_batch(), 32);
            for batch in 1..=32 {
                let expected = 1.0 + batch as f64 * 100.0 / f64::from(percent);
                let found = profile.latency(batch).as_ms();
                assert!((found - expected).abs() < 1e-5, "{percent} % at {batch}: {found}");
            }
        }
    }

    #[test]
    fn measured_latencies_are_kept_as_they_are() {
        let grid = formula();
        assert_eq!(grid.on_share(20).latency(8), Span::from_ms(41.0));
        assert_eq!(grid.on_share(50).latency(1), Span::from_ms(3.0));
        assert_eq!(grid.shares().collect::<Vec<u32>>(), [20, 50, 100]);
    }

    #[test]
    fn nothing_is_faster_than_the_largest_share_that_was_measured() {
        let grid = Grid::new(&[1, 8], &[(50, spans(&[2.0, 4.0]))]).unwrap();
        assert_eq!(grid.on_share(100), grid.on_share(50));
        // One share says nothing of how it goes on below.
        assert_eq!(grid.on_share(20), grid.on_share(50));
    }

    #[test]
    fn noise_does_not_make_larger_batches_or_smaller_shares_faster() {
        let rows = [(100, spans(&[2.0, 1.5, 5.0])), (50, spans(&[1.0, 3.0, 4.0]))];
        let grid = Grid::new(&[1, 2, 4], &rows).unwrap();
        let mut slower = grid.on_share(1);
        for percent in 2..=100 {
            let profile = grid.on_share(percent);
            for batch in 1..=4 {
                assert!(profile.latency(batch) <= slower.latency(batch), "{percent} at {batch}");
                assert!(batch == 1 || profile.latency(batch) >= profile.latency(batch - 1));
            }
            slower = profile;
        }
        assert_eq!(grid.on_share(50).latency(4), Span::from_ms(5.0));
    }

    #[test]
    fn batches_are_padded_to_the_sizes_that_are_run() {
        let grid = formula().padded_to(&[1, 2, 4, 8, 16]).unwrap().on_share(100);
        let at = |batch| grid.latency(batch).as_ms();
        assert_eq!([at(1), at(2), at(3), at(4)], [2.0, 3.0, 5.0, 5.0]);
        assert_eq!([at(9), at(16), at(17), at(32)], [17.0, 17.0, 18.0, 33.0]);
        let beyond = formula().padded_to(&[64]).unwrap().on_share(100);
        assert_eq!(beyond.latency(1), Span::from_ms(33.0));
    }

    #[test]
    fn what_is_smaller_than_all_that_was_measured_takes_as_long() {
        let grid = Grid::new(&[4, 8], &[(100, spans(&[2.0, 3.0]))]).unwrap();
        assert_eq!(grid.on_share(100).shortest(), Span::from_ms(2.0));
    }

    #[test]
    fn what_is_no_grid_is_refused() {
        let new = |batches: &[usize], rows: &[(u32, &[f64])]| {
            let rows: Vec<_> = rows.iter().map(|(share, ms)| (*share, spans(ms))).collect();
            Grid::new(batches, &rows).map(drop)
        };
        assert_eq!(new(&[], &[]), Err(GridError::NoBatch));
        assert_eq!(new(&[2, 2], &[]), Err(GridError::Batches));
        assert_eq!(new(&[0, 2], &[]), Err(GridError::Batches));
        assert_eq!(new(&[1, 5000], &[]), Err(GridError::Batches));
        assert_eq!(new(&[1], &[]), Err(GridError::NoShare));
        assert_eq!(new(&[1], &[(0, &[1.0])]), Err(GridError::Share(0)));
        assert_eq!(new(&[1], &[(5, &[1.0]), (5, &[1.0])]), Err(GridError::Share(5)));
        assert_eq!(new(&[1], &[(5, &[1.0, 2.0])]), Err(GridError::Length(5)));
        assert_eq!(new(&[1], &[(5, &[0.0])]), Err(GridError::Zero(5)));
        assert_eq!(formula().padded_to(&[3, 1]), Err(GridError::Batches));
    }
}
