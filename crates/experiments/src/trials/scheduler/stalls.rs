//! How long the machine takes the cores away from threads that do nothing but look at the clock: no
//! scheduler on it can be more punctual.

use std::thread;
use std::time::{Duration, Instant};

/// How long a moment chosen at random has to wait until its thread goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// In ninety-nine of a hundred cases it is no longer than this.
    pub p99: Duration,
    /// In all but one of ten thousand.
    pub p9999: Duration,
}

/// Shorter gaps are the clock's own.
const GAP_MIN: Duration = Duration::from_micros(1);

/// Watches for so long, with so many threads at once.
pub fn stalls(threads: usize, length: Duration) -> Stalls {
    let gaps: Vec<Duration> = thread::scope(|scope| {
        let watch = || {
            let (began, mut last, mut gaps) = (Instant::now(), Instant::now(), Vec::new());
            while last - began < length {
                let now = Instant::now();
                if now - last > GAP_MIN {
                    gaps.push(now - last);
                }
                last = now;
            }
            gaps
        };
        let watchers: Vec<_> = (0..threads).map(|_| scope.spawn(watch)).collect();
        watchers.into_iter().flat_map(|watcher| watcher.join().unwrap_or_default()).collect()
    });
    let all = length * threads as u32;
    Stalls { p99: quantile(&gaps, all, 0.01), p9999: quantile(&gaps, all, 0.0001) }
}

/// The wait that a share of all moments exceeds: of a gap, all that comes more than so long before
/// its end.
fn quantile(gaps: &[Duration], all: Duration, share: f64) -> Duration {
    let (mut low, mut high) = (Duration::ZERO, gaps.iter().max().copied().unwrap_or_default());
    for _ in 0..40 {
        let middle = (low + high) / 2;
        let beyond: Duration = gaps.iter().map(|gap| gap.saturating_sub(middle)).sum();
        if beyond.as_secs_f64() > share * all.as_secs_f64() { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_for_every_moment_in_it() {
        let ms = Duration::from_millis;
        // Of a second, twenty milliseconds are in one gap: half of them have more than ten to wait.
        let wait = quantile(&[ms(20)], ms(1000), 0.01);
        assert!((wait.as_secs_f64() - 0.010).abs() < 1e-6, "{wait:?}");
        assert_eq!(quantile(&[], ms(1000), 0.01), Duration::ZERO);
    }
}
