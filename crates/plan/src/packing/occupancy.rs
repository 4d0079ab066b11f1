//! The least share of a GPU that a session takes.

use crate::round::Turn;

/// The least share of a GPU that a session takes, whatever it shares the GPU with: the least
/// `l(b) / d` over all rounds `d` in which it gathers `b` requests and is in time. Infinite, if it
/// cannot be in time at all.
pub fn occupancy(turn: &Turn<'_>) -> f64 {
    let mut least = f64::INFINITY;
    for batch in 1..=turn.profile.max_batch() {
        let latency = turn.profile.latency(batch);
        // A round in which so many come: longer than for one less, short enough to be in time.
        let longest = (turn.slo - latency).0 as f64;
        let gathered = |requests: usize| requests as f64 / turn.rate * 1e9;
        if longest < latency.0 as f64 || batch > 1 && gathered(batch - 1) >= longest {
            break;
        }
        let round = gathered(batch).min(longest);
        if round >= latency.0 as f64 {
            least = least.min(latency.0 as f64 / round);
        }
    }
    least
}
