//! The synthetic workloads of table 1 and figure 7, and a search that spends little on each.
//!
//! The paper does not say how it comes to 5,880. Our reading: every (model, SLO) of table 1 in
//! which two batches of two fit into the SLO, 23 of them, with 6 numbers of models, 7 ratios of
//! executors to models and 6 shapes, makes 5,796; the 35 models of table 3, once and twice each,
//! with the same ratios and shapes, makes 84 more.

use fermata_dispatch::Policy;
use fermata_sim::{Drawn, passes_drawn};
use fermata_workload::Process;

use super::model::{Model, find, zoo_1080ti};
use super::pool::Pool;

/// One of the workloads.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What it is, in one word: `DenseNet121-slo30-models8-ratio1.5-gamma0.1`.
    pub name: String,
    /// Its models, executors and arrivals.
    pub pool: Pool,
}

/// Who takes part, the one that is compared last: the others are then measured precisely where they
/// are near the best of themselves, whatever the last one does.
pub const GRID_POLICIES: [&str; 13] = [
    "deferred",
    "eager",
    "timeout:25%",
    "timeout:50%",
    "deferred-prefix",
    "eager-prefix",
    "shepherd",
    "nexus",
    "clockwork",
    "clipper",
    "tfserving:5ms",
    "tfserving:10ms",
    "fermata",
];

/// Requests of one run: some 5,000 for each of 64 models, so that its hundredth is known to a
/// tenth.
pub const GRID_REQUESTS: u64 = 300_000;

const MODELS: [&str; 6] = ["DenseNet121", "InceptionV3", "ResNet50V2", "VGG16", "Xception", "BERT"];
const COPIES: [usize; 6] = [8, 16, 24, 32, 48, 64];
const RATIOS: [f64; 7] = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
const SLOS_MS: [f64; 5] = [20.0, 25.0, 30.0, 40.0, 50.0];
const SHAPES: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0];

/// All 5,880 workloads.
pub fn grid() -> Vec<Workload> {
    let zoo = zoo_1080ti();
    let mut groups: Vec<(String, Vec<Model>)> = Vec::new();
    for name in MODELS {
        for slo_ms in SLOS_MS {
            let model = find(&zoo, name).with_slo(slo_ms);
            if 2.0 * model.latency_ms(2) > slo_ms {
                continue;
            }
            for copies in COPIES {
                groups.push((
                    format!("{name}-slo{slo_ms}-models{copies}"),
                    vec![model.clone(); copies],
                ));
            }
        }
    }
    for times in [1, 2] {
        let models = zoo.len() * times;
        let mixed = zoo.iter().cycle().take(models).cloned().collect();
        groups.push((format!("mixed-models{models}"), mixed));
    }
    let mut workloads = Vec::new();
    for (group, models) in groups {
        for ratio in RATIOS {
            for shape in SHAPES {
                let pool = Pool::new(models.clone(), (models.len() as f64 * ratio) as usize);
                workloads.push(Workload {
                    name: format!("{group}-ratio{ratio}-gamma{shape}"),
                    pool: Pool { process: Process::Gamma(shape), ..pool },
                });
            }
        }
    }
    workloads
}

/// The numbers of an even sample of so many workloads: one from each stretch of equal length.
pub fn sample(count: usize, all: usize) -> Vec<usize> {
    let count = count.min(all);
    // The workloads repeat with a period of 42 (ratios and shapes), and a constant step would meet
    // few of those. Multiples of the golden ratio wander evenly through the stretches.
    let within = |at: usize| (0.5 + at as f64 * 0.618_033_988_749_895).fract();
    let number = |at: usize| ((at as f64 + within(at)) * all as f64 / count as f64) as usize;
    let mut numbers: Vec<usize> = (0..count).map(number).collect();
    // Stretches of little more than one workload can share one.
    numbers.dedup();
    numbers
}

/// A policy that fails at this share of the best one's goodput is out of the question: how far it
/// is behind is told roughly, and more roughly if it is far.
const NEAR: f64 = 0.97;
const PRECISELY: f64 = 0.005;
const ROUGHLY: f64 = 0.05;
const FAR: f64 = 0.5;
const VERY_ROUGHLY: f64 = 0.1;
/// A rough search runs this part of the requests.
const ROUGH_PART: u64 = 4;
/// Goodputs below this share of the best are called zero.
const NOTHING: f64 = 0.01;

/// Measures those of the policies whose goodput is not known yet, and fills it in.
pub fn measure(
    workload: &Workload,
    policies: &[Policy],
    goodputs: &mut [Option<f64>],
    requests: u64,
    seed: u64,
) {
    let likely = workload.pool.likely_rate();
    let requests = requests.max(workload.pool.requests_min());
    let scenario = workload.pool.scenario(likely, requests, seed);
    let drawn = Drawn::new(&scenario, 1.0);
    // How far somebody is behind is told roughly, so a part of the run is enough for that.
    let part = drawn.first((requests / ROUGH_PART) as usize);
    let mut best = goodputs.iter().flatten().copied().fold(0.0, f64::max);
    for (at, (&policy, goodput)) in policies.iter().zip(goodputs).enumerate() {
        if goodput.is_some() {
            continue;
        }
        let passes = |rate: f64| passes_drawn(&scenario, &drawn, rate / likely, policy);
        let passes_part = |rate: f64| passes_drawn(&scenario, &part, rate / likely, policy);
        // The one that is compared with all others is always measured precisely.
        let compared = at + 1 == policies.len();
        let found = match (best > 0.0, compared) {
            (true, false) => search_near(passes, passes_part, best),
            (true, true) => search_anywhere(passes, best),
            (false, _) => search_anywhere(passes, likely),
        };
        best = best.max(found);
        *goodput = Some(found);
    }
}

/// The highest rate that passes, precisely.
fn search_anywhere(passes: impl Fn(f64) -> bool, likely: f64) -> f64 {
    if passes(likely) {
        return search_above(passes, likely);
    }
    let (mut low, mut high) = (0.85 * likely, likely);
    while !passes(low) {
        (low, high) = (0.85 * low, low);
        if low < NOTHING * likely {
            return 0.0;
        }
    }
    halve(passes, low, high, PRECISELY)
}

/// The highest rate that passes: precisely, if it is near `best` or above, roughly and by a part of
/// the run below.
fn search_near(passes: impl Fn(f64) -> bool, passes_part: impl Fn(f64) -> bool, best: f64) -> f64 {
    if passes(NEAR * best) {
        return match passes(best) {
            true => search_above(passes, best),
            false => halve(passes, NEAR * best, best, PRECISELY),
        };
    }
    let (mut low, mut high, mut factor) = (0.85 * best, NEAR * best, 0.8);
    while !passes_part(low) {
        (low, high) = (factor * low, low);
        // The further behind, the longer the steps.
        factor *= 0.8;
        if low < NOTHING * best {
            return 0.0;
        }
    }
    let precision = if high < FAR * best { VERY_ROUGHLY } else { ROUGHLY };
    halve(passes_part, low, high, precision)
}

/// The highest rate that passes, from one that does, in steps that grow: most are not far.
fn search_above(passes: impl Fn(f64) -> bool, from: f64) -> f64 {
    let (mut low, mut step) = (from, 1.02);
    while passes(low * step) {
        low *= step;
        step = f64::min(step * step, 1.5);
    }
    halve(passes, low, low * step, PRECISELY)
}

fn halve(passes: impl Fn(f64) -> bool, mut low: f64, mut high: f64, precision: f64) -> f64 {
    while high - low > precision * high {
        let middle = (low + high) / 2.0;
        if passes(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_are_5880_workloads_with_names_of_their_own() {
        let workloads = grid();
        assert_eq!(workloads.len(), 5880);
        let names: BTreeSet<&str> = workloads.iter().map(|workload| &workload.name[..]).collect();
        assert_eq!(names.len(), 5880);
        assert_eq!(workloads.iter().filter(|w| w.name.starts_with("mixed")).count(), 84);
        assert!(names.contains("DenseNet121-slo30-models8-ratio1.5-gamma0.1"));
        // Table 1 orders the models from a strong batching effect to a weak one.
        let zoo = zoo_1080ti();
        let effects = MODELS.map(|name| find(&zoo, name).batching_effect());
        assert!(effects.is_sorted_by(|a, b| a > b), "{effects:?}");
    }

    #[test]
    fn samples_are_even_and_never_name_a_workload_twice() {
        let picked = sample(300, 5880);
        assert_eq!(picked.len(), 300);
        assert!(picked.windows(2).all(|pair| pair[0] < pair[1]));
        let in_its_stretch = |(at, number): (usize, &usize)| number.abs_diff(at * 98 / 5) <= 20;
        assert!(picked.iter().enumerate().all(in_its_stretch));
        let settings: BTreeSet<usize> = picked.iter().map(|number| number % 42).collect();
        assert_eq!(settings.len(), 42, "every ratio with every shape");
        assert_eq!(sample(10_000, 5880), (0..5880).collect::<Vec<_>>());
        assert_eq!(sample(1, 5880), [2940]);
        assert!(sample(5000, 5880).is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn searches_are_precise_near_the_best_and_cheap_below_it() {
        for (truth, precision, most) in [
            (100.0, 0.005, 6),
            (98.0, 0.005, 6),
            (130.0, 0.005, 12),
            (90.0, 0.05, 4),
            (60.0, 0.05, 8),
            (20.0, 0.1, 9),
        ] {
            let runs = Cell::new(0);
            let passes = |rate: f64| {
                runs.set(runs.get() + 1);
                rate <= truth
            };
            let found = search_near(passes, passes, 100.0);
            assert!(found <= truth && found >= truth * (1.0 - 1.01 * precision), "{truth} {found}");
            assert!(runs.get() <= most, "{truth}: {} runs", runs.get());
            let first = search_anywhere(passes, 100.0);
            assert!(first <= truth && first >= truth * 0.9949, "{truth} {first}");
        }
        assert_eq!(search_near(|_| false, |_| false, 100.0), 0.0);
        assert_eq!(search_anywhere(|_| false, 100.0), 0.0);
    }

    #[test]
    fn only_what_is_unknown_is_measured() {
        let workload = &grid()[41];
        let policies = ["deferred", "eager"].map(|name| name.parse().unwrap());
        let mut goodputs = [Some(123.0), None];
        measure(workload, &policies, &mut goodputs, 2_000, 1);
        assert_eq!(goodputs[0], Some(123.0));
        assert!(goodputs[1].is_some_and(|rate| rate > 0.0 && rate < 1.1 * workload.pool.bound()));
    }
}
