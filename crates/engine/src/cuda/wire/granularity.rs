//! Which batch sizes of a model are captured.

use serde::{Deserialize, Serialize};

/// The batch sizes that are captured. A batch of another size runs at the next larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Granularity {
    /// Each size costs memory and a few milliseconds. A step is at most a quarter of the size;
    /// where the steps are largest, latency hardly grows with the size.
    Fine,
    /// Each size costs seconds, because kernels are compiled for it. The steps are those of sizes
    /// twice as large.
    Coarse,
}

impl Granularity {
    /// The size at which a batch of `size` items runs.
    pub(crate) fn size(self, size: usize, largest: usize) -> usize {
        let times = match self {
            Self::Fine => 1,
            Self::Coarse => 2,
        };
        let step = match times * size {
            0..=4 => 1,
            5..=8 => 2,
            9..=32 => 4,
            33..=64 => 8,
            _ => 16,
        };
        size.next_multiple_of(step).min(largest.max(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_runs_at_the_next_captured_size() {
        let captured =
            [1, 3, 5, 7, 9, 30, 33, 60, 65].map(|size| Granularity::Fine.size(size, 128));
        assert_eq!(captured, [1, 3, 6, 8, 12, 32, 40, 64, 80]);
        let few = |size: &usize| Granularity::Coarse.size(*size, 64) == *size;
        assert_eq!((1..=64).filter(few).collect::<Vec<_>>(), [1, 2, 4, 8, 12, 16, 24, 32, 48, 64]);
        for granularity in [Granularity::Fine, Granularity::Coarse] {
            assert_eq!(granularity.size(30, 31), 31);
            for size in 1..=128 {
                let captured = granularity.size(size, 128);
                assert!(captured >= size && granularity.size(captured, 128) == captured);
            }
        }
    }
}
