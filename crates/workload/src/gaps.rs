//! The gaps between arrivals, in units of their mean.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1, Gamma};
use rand_pcg::Pcg64Mcg;

/// How arrivals are spread, whatever their rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Process {
    /// Independent of each other.
    Poisson,
    /// Gaps of a Gamma distribution with this shape: below one they come in bursts.
    Gamma(f64),
    /// At equal gaps.
    Uniform,
}

/// Why a process was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// No such process.
    #[error(
        "unknown arrival process '{0}': use \"poisson\", \"uniform\", \"gamma:SHAPE\" \
         or \"trace:FILE\""
    )]
    Unknown(String),
    /// The shape cannot be used.
    #[error("the shape of \"gamma:{0}\" must be a number from 0.001 to 1000")]
    Shape(String),
}

impl FromStr for Process {
    type Err = ProcessError;

    fn from_str(text: &str) -> Result<Self, ProcessError> {
        match (text, text.strip_prefix("gamma:")) {
            ("poisson", _) => Ok(Self::Poisson),
            ("uniform", _) => Ok(Self::Uniform),
            (_, Some(shape)) => match shape.parse() {
                Ok(value) if (0.001..=1000.0).contains(&value) => Ok(Self::Gamma(value)),
                _ => Err(ProcessError::Shape(shape.to_owned())),
            },
            _ => Err(ProcessError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson => write!(f, "poisson"),
            Self::Gamma(shape) => write!(f, "gamma:{shape}"),
            Self::Uniform => write!(f, "uniform"),
        }
    }
}

/// A source of gaps with mean one.
#[derive(Clone, Debug)]
pub struct Gaps {
    source: Source,
    random: Pcg64Mcg,
}

#[derive(Clone, Debug)]
enum Source {
    Exponential,
    Gamma(Gamma<f64>),
    Constant,
    Table { gaps: GapTable, at: usize },
}

/// Gaps drawn once and shared by many runs, which then differ in nothing but what is being
/// compared.
pub type GapTable = Arc<[f32]>;

impl Gaps {
    /// The gaps of stream number `stream` in the run with this seed.
    pub fn new(process: Process, seed: u64, stream: u64) -> Self {
        let source = match process {
            Process::Poisson => Source::Exponential,
            Process::Gamma(shape) => Source::Gamma(
                Gamma::new(shape, 1.0 / shape).expect("a process has a shape above zero"),
            ),
            Process::Uniform => Source::Constant,
        };
        Self { source, random: generator(seed, stream) }
    }

    /// Gaps from a table, from its beginning; when it ends, it begins again.
    pub fn from_table(gaps: GapTable) -> Self {
        assert!(!gaps.is_empty(), "a table of gaps has gaps");
        Self { source: Source::Table { gaps, at: 0 }, random: generator(0, 0) }
    }

    /// Draws a table of `len` gaps.
    pub fn table(mut self, len: usize) -> GapTable {
        (0..len).map(|_| self.draw() as f32).collect()
    }

    /// The next gap.
    #[inline]
    pub fn draw(&mut self) -> f64 {
        if let Source::Table { gaps, at } = &mut self.source {
            let gap = gaps[*at];
            *at += 1;
            if *at == gaps.len() {
                *at = 0;
            }
            return f64::from(gap);
        }
        self.sample()
    }

    /// Apart, so that reading a table is inlined.
    fn sample(&mut self) -> f64 {
        match &self.source {
            Source::Exponential => Exp1.sample(&mut self.random),
            Source::Gamma(gamma) => gamma.sample(&mut self.random),
            Source::Constant | Source::Table { .. } => 1.0,
        }
    }
}

/// The generator of one stream of a run.
pub(crate) fn generator(seed: u64, stream: u64) -> Pcg64Mcg {
    // Two odd constants (the golden ratio and splitmix64's) keep neighbouring seeds and streams
    // apart.
    let mixed = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(stream.wrapping_mul(0xBF58_476D_1CE4_E5B9));
    Pcg64Mcg::seed_from_u64(mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_mean_one_and_the_variance_of_their_process() {
        for (process, variance) in
            [(Process::Poisson, 1.0), (Process::Gamma(0.2), 5.0), (Process::Uniform, 0.0)]
        {
            let mut gaps = Gaps::new(process, 7, 3);
            let draws: Vec<f64> = (0..200_000).map(|_| gaps.draw()).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let spread =
                draws.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!((mean - 1.0).abs() < 0.02, "{process} {mean}");
            assert!((spread - variance).abs() < 0.2 + 0.03 * variance, "{process} {spread}");
        }
    }

    #[test]
    fn processes_are_read_and_bad_ones_named() {
        for text in ["poisson", "uniform", "gamma:0.05"] {
            assert_eq!(text.parse::<Process>().unwrap().to_string(), text);
        }
        assert!("gamma:0".parse::<Process>().unwrap_err().to_string().contains("gamma:0"));
        assert!("fast".parse::<Process>().unwrap_err().to_string().contains("'fast'"));
    }
}
