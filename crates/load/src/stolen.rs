//! How much of the processors' time a hypervisor gave to other machines: what it takes shows as
//! pauses of milliseconds in everything.

use std::fs;

/// Above this, what was measured may be worse than it would have been. It is little because what is
/// stolen is stolen from those who have something to do: of sixteen cores, this is a pause of 8 ms
/// a second.
pub const DISTURBED: f64 = 0.0005;

/// Time of all processors since the machine started, as Linux counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// Until now. `None` where nobody counts.
    pub fn now() -> Option<Self> {
        Self::parse(fs::read_to_string("/proc/stat").ok()?.lines().next()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // Time of guests is part of that of users, which comes first.
        let counts = line.strip_prefix("cpu ")?.split_whitespace().take(8);
        let counts: Vec<u64> = counts.map(|count| count.parse().ok()).collect::<Option<_>>()?;
        Some(Self { all: counts.iter().sum(), stolen: *counts.get(7)? })
    }

    /// The part of the time since then that was stolen.
    fn stolen_since(self, then: Self) -> f64 {
        let all = self.all.saturating_sub(then.all);
        self.stolen.saturating_sub(then.stolen) as f64 / all.max(1) as f64
    }
}

/// The part of the time since then that was stolen, if that is known.
pub fn since(then: Option<Ticks>) -> Option<f64> {
    Some(Ticks::now()?.stolen_since(then?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stolen_is_part_of_all_time() {
        let then = Ticks::parse("cpu  100 0 50 800 5 1 2 10 7 0").unwrap();
        let now = Ticks::parse("cpu  160 0 60 820 5 1 2 20 9 0").unwrap();
        assert_eq!(now.stolen_since(then), 0.1);
        assert_eq!(then.stolen_since(now), 0.0, "counters that went back say nothing");
        assert_eq!(Ticks::parse("cpu  1 2 3 4 5 6 7"), None);
        assert_eq!(Ticks::parse("cpu0 1 2 3 4 5 6 7 8"), None);
    }
}
