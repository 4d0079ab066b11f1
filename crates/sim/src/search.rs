//! Searches over runs: the goodput of a pool, and the fewest executors for a load.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fermata_dispatch::{Adaptive, Dispatcher, Policy};

use crate::feed::Drawn;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::world::{simulate, simulate_drawn};

/// A model may lose this share of its requests.
pub const BAD_MAX: f64 = 0.01;

/// How a goodput is searched for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The search ends when the bracket is this narrow, relative to its upper end.
    pub precision: f64,
    /// A rate near which the goodput is expected, if one is known.
    pub guess: Option<f64>,
}

impl Default for Search {
    fn default() -> Self {
        Self { precision: 0.005, guess: None }
    }
}

/// Runs a scenario under a policy; gives up early if some model loses too much.
pub fn passes(scenario: &Scenario, policy: Policy) -> bool {
    let mut dispatcher = policy.dispatcher(scenario.network);
    is_good(&simulate(scenario, &mut dispatcher, &mut (), Some(BAD_MAX)))
}

/// The same for arrivals that were drawn before, with all rates multiplied by `factor`.
pub fn passes_drawn(scenario: &Scenario, drawn: &Drawn, factor: f64, policy: Policy) -> bool {
    is_good(&run_drawn(scenario, drawn, factor, policy, Some(BAD_MAX)))
}

/// Runs arrivals that were drawn before under a policy, with all rates multiplied by `factor`;
/// gives up early if some model loses more than `bad_max`.
pub fn run_drawn(
    scenario: &Scenario,
    drawn: &Drawn,
    factor: f64,
    policy: Policy,
    bad_max: Option<f64>,
) -> Stats {
    let network = scenario.network;
    match policy {
        // The loop is compiled for our own dispatcher, without calls through a pointer.
        Policy::Adaptive(spare) => {
            let mut dispatcher = Adaptive::new(spare, network);
            simulate_drawn(scenario, drawn, factor, &mut dispatcher, bad_max)
        }
        Policy::Rules(rules) => {
            let mut dispatcher = Dispatcher::new(rules, network);
            simulate_drawn(scenario, drawn, factor, &mut dispatcher, bad_max)
        }
        other => simulate_drawn(scenario, drawn, factor, &mut other.dispatcher(network), bad_max),
    }
}

/// Whether a run ended, and every model had enough of its requests in time.
pub fn is_good(stats: &Stats) -> bool {
    !stats.stopped && stats.worst_bad_rate() <= BAD_MAX
}

/// Runs a scenario under a policy, to its end.
pub fn run(scenario: &Scenario, policy: Policy) -> Stats {
    simulate(scenario, &mut policy.dispatcher(scenario.network), &mut (), None)
}

/// The highest total rate at which every model has enough of its requests in time, the mix and the
/// random numbers staying the same; zero if there is none, infinite if the run is too short for any
/// rate to fail.
pub fn goodput(scenario: &Scenario, policy: Policy, search: Search) -> f64 {
    let base = scenario.rate();
    if base == 0.0 {
        return f64::INFINITY; // All that was recorded came at one moment, and no rate changes that.
    }
    // Where rates change over time, another rate is not the same run faster or slower.
    let mut drawn = scenario.is_steady().then(|| Drawn::new(scenario, 1.0));
    let passes = |rate: f64| {
        let factor = rate / base;
        let Some(drawn) = &mut drawn else { return passes(&scenario.scaled(factor), policy) };
        if !drawn.is_enough(scenario, factor) {
            *drawn = Drawn::new(scenario, 2.0 * factor);
        }
        passes_drawn(scenario, drawn, factor, policy)
    };
    let step = if search.guess.is_some() { NEAR } else { 2.0 };
    highest_near(search.guess.unwrap_or(base), step, search.precision, passes)
}

/// The first step from a guess that is likely to be near.
pub const NEAR: f64 = 1.05;

/// The highest rate at which it passes, less of it never being worse, to within this part of it;
/// zero if none does that is in sight of the guess, infinite if all do. Steps begin with the factor
/// `step` and widen until the answer is between two rates, which are then halved.
pub fn highest_near(
    guess: f64,
    mut step: f64,
    precision: f64,
    mut passes: impl FnMut(f64) -> bool,
) -> f64 {
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut rate = guess;
    let (floor, ceiling) = (rate / 4096.0, rate * f64::from(1 << 20));
    while high.is_infinite() || low == 0.0 {
        if passes(rate) {
            low = rate;
            rate *= step;
            if rate > ceiling {
                return f64::INFINITY;
            }
        } else {
            high = rate;
            rate /= step;
            if rate < floor {
                return 0.0;
            }
        }
        if high.is_finite() && low > 0.0 {
            break;
        }
        step = (step * step).min(2.0);
    }
    while high - low > precision * high {
        let middle = (low + high) / 2.0;
        if passes(middle) { low = middle } else { high = middle }
    }
    low
}

/// The fewest executors of the first class with which every model has enough of its requests in
/// time. `None`, if `most` are not enough.
pub fn min_executors(scenario: &Scenario, policy: Policy, most: usize) -> Option<usize> {
    fewest_near(1, most, |executors| passes(&scenario.with_executors(executors), policy))
}

/// The fewest of something with which it passes, more of it never being worse; `None`, if `most`
/// are not enough. Steps widen from the guess until the answer is between two numbers, which are
/// then halved.
pub fn fewest_near(guess: usize, most: usize, passes: impl Fn(usize) -> bool) -> Option<usize> {
    let guess = guess.clamp(1, most);
    // `low` is not enough, `high` is.
    let (mut low, mut high, mut step) = (0, guess, 1);
    if passes(guess) {
        while high > 1 {
            let lower = high.saturating_sub(step).max(1);
            if !passes(lower) {
                low = lower;
                break;
            }
            (high, step) = (lower, 2 * step);
        }
    } else {
        loop {
            if high == most {
                return None;
            }
            (low, high, step) = (high, (high + step).min(most), 2 * step);
            if passes(high) {
                break;
            }
        }
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if passes(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// Applies `work` to every item on `threads` threads; the results are in the order of the items.
pub fn spread<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, item)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    items.get(at).map(|item| (at, item))
                } {
                    let result = work(item);
                    results.lock().expect("no worker panics with the lock")[at] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().expect("no worker panics with the lock");
    results.into_iter().map(|result| result.expect("every item was worked on")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_is_found_from_any_guess() {
        for guess in [1.0, 90.0, 100.0, 110.0, 5_000.0] {
            for step in [NEAR, 2.0] {
                let found = highest_near(guess, step, 0.01, |rate| rate <= 100.0);
                assert!((99.0..=100.0).contains(&found), "{found} from {guess}");
            }
        }
        assert_eq!(highest_near(1.0, 2.0, 0.01, |_| true), f64::INFINITY);
        assert_eq!(highest_near(1.0, 2.0, 0.01, |_| false), 0.0);
    }

    #[test]
    fn the_fewest_is_found_from_any_guess() {
        for answer in 1..20 {
            for guess in 0..25 {
                assert_eq!(fewest_near(guess, 20, |tried| tried >= answer), Some(answer));
            }
        }
        assert_eq!(fewest_near(3, 20, |tried| tried > 20), None);
    }
}
