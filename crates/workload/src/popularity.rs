//! How a total rate is divided among models.

/// How popular the models are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// All the same.
    Equal,
    /// The model of rank `k` has `1 / k^exponent` of the first one's rate.
    Zipf(f64),
}

impl Popularity {
    /// Each model's share of the total rate; the shares add up to one.
    pub fn shares(self, models: usize) -> Vec<f64> {
        let exponent = match self {
            Self::Equal => 0.0,
            Self::Zipf(exponent) => exponent,
        };
        let weights: Vec<f64> = (1..=models).map(|rank| (rank as f64).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_fall_by_rank() {
        assert_eq!(Popularity::Equal.shares(4), [0.25; 4]);
        let zipf = Popularity::Zipf(0.9).shares(20);
        assert!((zipf.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((zipf[0] / zipf[1] - 2f64.powf(0.9)).abs() < 1e-9);
    }
}
