//! How long requests take alone.

use std::sync::Arc;

use fermata_core::Span;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal, StandardNormal};
use rand_pcg::Pcg64Mcg;

/// Where run times come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Alone {
    /// Applications, each with its normal distribution.
    Peaks(Vec<Peak>),
    /// The same time for all.
    Constant(Span),
    /// The logarithm is normal: for workloads of which a mean and a tail are known. The shorter
    /// half is one application, the longer half another.
    LogNormal {
        /// The mean of the logarithm, in milliseconds.
        location: f64,
        /// The deviation of the logarithm.
        scale: f64,
    },
    /// Inputs of these lengths, any of them as likely as any other: a request takes so long for
    /// each unit of its length.
    Lengths {
        /// The lengths, sorted.
        lengths: Arc<[u32]>,
        /// What one unit takes.
        each: Span,
    },
}

/// An application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// How often it asks, relative to others.
    pub weight: f64,
    /// In milliseconds.
    pub mean: f64,
    /// In milliseconds.
    pub deviation: f64,
}

/// No request is shorter than this share of its application's mean: a normal distribution knows no
/// bound.
const SHORTEST: f64 = 0.05;

impl Alone {
    /// So many peaks of the same weight and deviation, from 50 to 150 ms; one is at 100 ms.
    pub fn modes(count: usize, deviation: f64) -> Self {
        let step = 100.0 / (count.max(2) - 1) as f64;
        let mean = |at: usize| if count == 1 { 100.0 } else { 50.0 + step * at as f64 };
        Self::Peaks((0..count).map(|at| Peak { weight: 1.0, mean: mean(at), deviation }).collect())
    }

    /// A log-normal distribution with this mean and 99th percentile, in milliseconds.
    pub fn log_normal(mean: f64, p99: f64) -> Self {
        // The 99th percentile of a standard normal distribution; ln(p99 / mean) = z s - s^2 / 2.
        let z = 2.326_347_874;
        let scale = z - (z * z - 2.0 * (p99 / mean).ln()).max(0.0).sqrt();
        Self::LogNormal { location: mean.ln() - scale * scale / 2.0, scale }
    }

    /// So many requests: what each takes, and which application sent it.
    pub fn draw(&self, count: usize, seed: u64) -> Vec<(Span, usize)> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        (0..count).map(|_| self.draw_one(&mut random)).collect()
    }

    fn draw_one(&self, random: &mut Pcg64Mcg) -> (Span, usize) {
        match self {
            Self::Constant(span) => (*span, 0),
            Self::Peaks(peaks) => {
                let total: f64 = peaks.iter().map(|peak| peak.weight).sum();
                let mut left = random.random::<f64>() * total;
                let at = peaks.iter().position(|peak| {
                    left -= peak.weight;
                    left < 0.0
                });
                let at = at.unwrap_or(peaks.len() - 1);
                let Peak { mean, deviation, .. } = peaks[at];
                let normal = Normal::new(mean, deviation).expect("deviations are finite");
                let ms = loop {
                    let ms = normal.sample(random);
                    if ms >= SHORTEST * mean {
                        break ms;
                    }
                };
                (Span::from_ms(ms), at)
            }
            Self::LogNormal { location, scale } => {
                let normal: f64 = StandardNormal.sample(random);
                (Span::from_ms((location + scale * normal).exp()), usize::from(normal > 0.0))
            }
            Self::Lengths { lengths, each } => {
                let length = lengths[random.random_range(0..lengths.len())];
                (*each * u64::from(length), 0)
            }
        }
    }

    /// How many applications there are.
    pub fn applications(&self) -> usize {
        match self {
            Self::Peaks(peaks) => peaks.len(),
            Self::LogNormal { .. } => 2,
            Self::Constant(_) | Self::Lengths { .. } => 1,
        }
    }
}
