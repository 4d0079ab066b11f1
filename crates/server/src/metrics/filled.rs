//! How many executors a load would keep busy in filled batches. Where spare executors are used,
//! batches are small and executors are busy for longer than the load needs, so that idle time does
//! not tell how many are spare.

use std::collections::BTreeMap;

use fermata_core::{ClassId, Span};
use fermata_dispatch::ModelSpec;
use fermata_plan::staggered_load;

/// The classes of some executors, and how many there are of each.
pub(crate) fn classes(executors: impl Iterator<Item = ClassId>) -> BTreeMap<ClassId, usize> {
    let mut classes = BTreeMap::new();
    for class in executors {
        *classes.entry(class).or_insert(0) += 1;
    }
    classes
}

/// How many of these executors a model keeps busy in filled batches, at so many requests a second
/// that have this long. Where they differ, each takes as many requests as it can, so that their
/// capacities add up; infinite, if it runs on none of them.
pub(crate) fn filled_load(
    spec: &ModelSpec,
    slo: Span,
    rate: f64,
    classes: &BTreeMap<ClassId, usize>,
) -> f64 {
    if rate <= 0.0 {
        return 0.0;
    }
    let capacity = |(&class, &count): (&ClassId, &usize)| {
        let load = staggered_load(spec.profile(class)?, slo, rate);
        Some(count as f64 / load)
    };
    let capacity: f64 = classes.iter().filter_map(capacity).sum();
    // The sum of nothing is -0.
    if capacity > 0.0 { classes.values().sum::<usize>() as f64 / capacity } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fermata_core::Profile;

    use super::*;

    /// A batch of any size takes this long.
    fn flat(ms: f64) -> Option<Arc<Profile>> {
        Some(Arc::new(Profile::from_table(vec![Span::from_ms(ms); 8]).unwrap()))
    }

    #[test]
    fn batches_are_as_large_as_the_objective_allows() {
        let slo = Span::from_ms(30.0);
        let spec = ModelSpec::new(slo, vec![flat(10.0), flat(20.0)]);
        let load = |rate, executors: &[u16]| {
            let executors = executors.iter().map(|&class| ClassId(class));
            filled_load(&spec, slo, rate, &classes(executors))
        };
        // 100 a second: a third request would come 20 ms after the first, and a batch takes 10.
        let three = 100.0 / 3.0 * 0.01;
        assert!((load(100.0, &[0, 0]) - three).abs() < 1e-9);
        // Two in a batch that takes 20 ms: half a second of an executor is 50 requests.
        assert!((load(100.0, &[1]) - 1.0).abs() < 1e-9);
        // Three executors at a third, and one at one, of which each takes its part.
        let mixed = load(100.0, &[0, 0, 0, 1]);
        assert!((mixed - 4.0 / (3.0 / three + 1.0)).abs() < 1e-9, "{mixed}");
        assert_eq!(load(0.0, &[0]), 0.0);
        assert_eq!(load(100.0, &[2]), f64::INFINITY);
        assert_eq!(load(100.0, &[]), f64::INFINITY);
    }
}
