//! What two shares of one GPU do to each other: they have their own multiprocessors, and the L2
//! cache and the memory in common.
//!
//! Latencies are multiplied by a factor that is linear in how much of both either neighbour uses
//! (gpulet 4.4). Its coefficients are fitted to measured pairs by least squares.

/// How much of what is shared a model uses while it runs alone on a whole GPU, from zero to one. On
/// a share of `p` it works `p` times as fast, so that it uses `p` times as much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Of the L2 cache's bandwidth.
    pub l2: f64,
    /// Of the memory's bandwidth.
    pub dram: f64,
}

impl Default for Usage {
    /// Where nothing was measured: two such models on halves of a GPU slow each other down by 12 %,
    /// about what was measured on an H200.
    fn default() -> Self {
        Self { l2: 0.35, dram: 0.35 }
    }
}

impl Usage {
    /// What it is on a share.
    pub fn on_share(self, percent: u32) -> Self {
        let share = f64::from(percent) / 100.0;
        Self { l2: self.l2 * share, dram: self.dram * share }
    }
}

/// Of the linear model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    /// For the use of L2 by the model whose latency is asked for.
    pub own_l2: f64,
    /// For the use of L2 by its neighbour.
    pub other_l2: f64,
    /// For the use of memory by the model whose latency is asked for.
    pub own_dram: f64,
    /// For the use of memory by its neighbour.
    pub other_dram: f64,
    /// What is there without any use.
    pub constant: f64,
}

impl Default for Coefficients {
    /// Those of the prototype's 2080 Ti.
    fn default() -> Self {
        let [own_l2, other_l2, own_dram, other_dram, constant] =
            [0.113, 0.716, 0.355, 0.088, 0.895];
        Self { own_l2, other_l2, own_dram, other_dram, constant }
    }
}

impl Coefficients {
    /// Neighbours do nothing to each other.
    pub const NONE: Self =
        Self { own_l2: 0.0, other_l2: 0.0, own_dram: 0.0, other_dram: 0.0, constant: 1.0 };

    /// The part of the factor that a model brings itself.
    pub fn own(&self, usage: Usage) -> f64 {
        self.own_l2 * usage.l2 + self.own_dram * usage.dram
    }

    /// The part that its neighbour adds: how loud it is.
    pub fn other(&self, usage: Usage) -> f64 {
        self.other_l2 * usage.l2 + self.other_dram * usage.dram
    }

    /// How many times as long `own` takes beside `other`, both as used on their shares; at least
    /// one.
    pub fn factor(&self, own: Usage, other: Usage) -> f64 {
        (self.own(own) + self.other(other) + self.constant).max(1.0)
    }
}

/// A measured pair: both usages on their shares, and how many times as long the first took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Of the model that was timed.
    pub own: Usage,
    /// Of its neighbour.
    pub other: Usage,
    /// Latency together over latency alone.
    pub factor: f64,
}

impl Sample {
    fn row(&self) -> [f64; 5] {
        [self.own.l2, self.other.l2, self.own.dram, self.other.dram, 1.0]
    }
}

/// The coefficients with the least squared error over the samples; `None` if the samples do not
/// determine them.
pub fn fit(samples: &[Sample]) -> Option<Coefficients> {
    let rows = samples.iter().map(|sample| (sample.row(), sample.factor));
    let [own_l2, other_l2, own_dram, other_dram, constant] = least_squares(rows)?;
    Some(Coefficients { own_l2, other_l2, own_dram, other_dram, constant })
}

/// The weights of `N` terms whose sum is nearest to what each row should give, by the squares of
/// what is missing; `None` if the rows do not determine them.
pub fn least_squares<const N: usize>(
    rows: impl IntoIterator<Item = ([f64; N], f64)>,
) -> Option<[f64; N]> {
    // The normal equations.
    let (mut matrix, mut right) = ([[0.0; N]; N], [0.0; N]);
    for (row, wanted) in rows {
        for at in 0..N {
            right[at] += row[at] * wanted;
            for column in 0..N {
                matrix[at][column] += row[at] * row[column];
            }
        }
    }
    solve(matrix, right)
}

/// Elimination with the largest pivot of each column.
fn solve<const N: usize>(mut matrix: [[f64; N]; N], mut right: [f64; N]) -> Option<[f64; N]> {
    let scale = matrix.iter().flatten().fold(0.0_f64, |largest, cell| largest.max(cell.abs()));
    for column in 0..N {
        let largest =
            |a: &usize, b: &usize| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs());
        let pivot = (column..N).max_by(largest).expect("there is at least one row left");
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let (head, wanted) = (matrix[column], right[column]);
        // Smaller than this, it is the rounding error of a zero.
        if head[column].abs() <= 1e-12 * scale {
            return None;
        }
        for at in (0..N).filter(|&at| at != column) {
            let times = matrix[at][column] / head[column];
            matrix[at].iter_mut().zip(head).for_each(|(cell, above)| *cell -= times * above);
            right[at] -= times * wanted;
        }
    }
    Some(std::array::from_fn(|at| right[at] / matrix[at][at]))
}

/// The relative error of the prediction that this part of the samples stay within, for each of the
/// `parts`.
pub fn error_quantiles(model: &Coefficients, samples: &[Sample], parts: &[f64]) -> Vec<f64> {
    let error =
        |sample: &Sample| (model.factor(sample.own, sample.other) / sample.factor - 1.0).abs();
    quantiles(samples.iter().map(error).collect(), parts)
}

/// What each of these parts of the values stay within; zero if there are none.
pub fn quantiles(mut errors: Vec<f64>, parts: &[f64]) -> Vec<f64> {
    errors.sort_by(f64::total_cmp);
    let at = |part: f64| (part * errors.len() as f64).ceil() as usize;
    parts.iter().map(|&part| errors.get(at(part).max(1) - 1).copied().unwrap_or(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// Pairs of random usages, their factor as the default coefficients have it, off by up to
    /// `noise` either way.
    fn samples(count: usize, noise: f64) -> Vec<Sample> {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let usage = |random: &mut Pcg64Mcg| Usage { l2: random.random(), dram: random.random() };
        let mut pair = || {
            let (own, other) = (usage(&mut random), usage(&mut random));
            let exact = Coefficients::default().factor(own, other);
            let off = 1.0 + noise * (2.0 * random.random::<f64>() - 1.0);
            Sample { own, other, factor: exact * off }
        };
        (0..count).map(|_| pair()).filter(|sample| sample.factor > 1.1).collect()
    }

    #[test]
    fn known_coefficients_are_recovered() {
        let (found, known) = (fit(&samples(200, 0.0)).unwrap(), Coefficients::default());
        let pairs = [
            (found.own_l2, known.own_l2),
            (found.other_l2, known.other_l2),
            (found.own_dram, known.own_dram),
            (found.other_dram, known.other_dram),
            (found.constant, known.constant),
        ];
        assert!(pairs.iter().all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
    }

    #[test]
    fn with_noise_the_errors_stay_within_the_noise() {
        // As many pairs as the paper had to learn from and to try on, off by up to 15 %.
        let all = samples(2_800, 0.15);
        let (learnt, tried) = all.split_at(1_750);
        let found = fit(learnt).unwrap();
        let quantiles = error_quantiles(&found, tried, &[0.5, 0.9, 0.95, 1.0]);
        assert!(quantiles.is_sorted(), "{quantiles:?}");
        assert!(quantiles[0] < 0.08 && quantiles[1] < 0.15 && quantiles[2] < 0.16, "{quantiles:?}");
    }

    #[test]
    fn too_few_samples_determine_nothing() {
        assert_eq!(fit(&samples(5, 0.0)[..3]), None);
        assert_eq!(fit(&[]), None);
        let same = samples(5, 0.0)[0];
        assert_eq!(fit(&[same; 20]), None);
    }

    #[test]
    fn a_factor_is_at_least_one() {
        let idle = Usage { l2: 0.0, dram: 0.0 };
        assert_eq!(Coefficients::default().factor(idle, idle), 1.0);
        assert_eq!(Coefficients::NONE.factor(Usage::default(), Usage::default()), 1.0);
        let half = Usage::default().on_share(50);
        assert!((Coefficients::default().factor(half, half) - 1.1176).abs() < 1e-9);
    }
}
