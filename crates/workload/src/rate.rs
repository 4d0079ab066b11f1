//! A rate that may change over time.

use std::sync::Arc;

use fermata_core::Time;

/// Requests per second, constant or in steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Rate {
    /// Always the same.
    Constant(f64),
    /// `(from, rate)` in the order of time; zero before the first step, the last one holds for
    /// ever.
    Steps(Arc<[(Time, f64)]>),
}

impl Rate {
    /// The rate at a moment.
    pub fn at(&self, time: Time) -> f64 {
        match self {
            Self::Constant(rate) => *rate,
            Self::Steps(steps) => match steps.partition_point(|&(from, _)| from <= time) {
                0 => 0.0,
                after => steps[after - 1].1,
            },
        }
    }

    /// The same shape, `factor` times as high.
    pub fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Constant(rate) => Self::Constant(rate * factor),
            Self::Steps(steps) => {
                Self::Steps(steps.iter().map(|&(from, rate)| (from, rate * factor)).collect())
            }
        }
    }

    /// How many requests are expected before `end`.
    pub fn expected(&self, end: Time) -> f64 {
        match self {
            Self::Constant(rate) => rate * end.as_secs(),
            Self::Steps(steps) => (0..steps.len())
                .map(|i| {
                    let until = steps.get(i + 1).map_or(end, |&(from, _)| from.min(end));
                    steps[i].1 * (until - steps[i].0).as_secs()
                })
                .sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_hold_until_the_next_one() {
        let rate = Rate::Steps([(Time::from_ms(0.0), 10.0), (Time::from_ms(500.0), 30.0)].into());
        assert_eq!(rate.at(Time::from_ms(499.0)), 10.0);
        assert_eq!(rate.at(Time::from_ms(500.0)), 30.0);
        assert!((rate.expected(Time::from_ms(1000.0)) - 20.0).abs() < 1e-9);
        assert_eq!(rate.scaled(2.0).at(Time::from_ms(600.0)), 60.0);
    }
}
