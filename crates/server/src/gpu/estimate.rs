//! How fast a model is on a share on which nobody measured it, from one on which somebody did.
//!
//! Good enough to begin with: what batches take on the new share is seen at once, and corrected.

use std::collections::BTreeMap;
use std::sync::Arc;

use fermata_core::{Growth, Profile};
use fermata_plan::shares::on_share;

/// The profile on a share with so many multiprocessors, from those measured on shares of the same
/// GPU, by their multiprocessors: the next larger one counts, or else the largest. `None` where
/// nothing was measured.
pub(super) fn estimate(measured: &BTreeMap<u32, Profile>, multiprocessors: u32) -> Option<Profile> {
    let larger = measured.range(multiprocessors..).next();
    let (&known, profile) = larger.or_else(|| measured.last_key_value())?;
    if known == multiprocessors {
        return Some(profile.clone());
    }
    // A share of more than all of it is as good a number as one of less.
    let percent = (100 * multiprocessors + known / 2) / known.max(1);
    let means = on_share(profile, percent.max(1), profile.max_batch());
    let Some(spread) = profile.spread() else { return Some(means) };
    let largest = profile.max_batch();
    let factor = means.latency(largest).0 as f64 / profile.latency(largest).0.max(1) as f64;
    let Growth { fixed, base, each } = *spread.growth();
    let [fixed, base, each] = [fixed, base, each].map(|part| part * factor);
    Some(Profile::spread_out(Arc::new(spread.with_growth(Growth { fixed, base, each }))))
}

#[cfg(test)]
mod tests {
    use fermata_core::{Span, Spread};

    use super::*;

    fn line(alpha: f64, beta: f64) -> Profile {
        let table = (1..=8).map(|batch| Span::from_ms(beta + alpha * f64::from(batch)));
        Profile::from_table(table).unwrap()
    }

    #[test]
    fn what_was_measured_counts_and_else_the_next_larger_share() {
        let measured = BTreeMap::from([(132, line(1.0, 4.0)), (64, line(2.0, 4.0))]);
        assert_eq!(estimate(&measured, 64), Some(line(2.0, 4.0)));
        assert_eq!(estimate(&measured, 132), Some(line(1.0, 4.0)));
        assert_eq!(estimate(&measured, 66), Some(line(2.0, 4.0)), "half of the whole");
        let slow = estimate(&measured, 32).unwrap();
        assert_eq!((slow.latency(1), slow.max_batch()), (Span::from_ms(8.0), 8));
        assert_eq!(estimate(&BTreeMap::new(), 32), None);
    }

    #[test]
    fn a_larger_share_than_any_that_was_measured_is_faster() {
        let measured = BTreeMap::from([(66, line(2.0, 4.0))]);
        assert_eq!(estimate(&measured, 132), Some(line(1.0, 4.0)));
    }

    #[test]
    fn distributions_stay_distributions() {
        let runs = vec![(1.0, (1..=50).map(|ms| Span::from_ms(f64::from(ms))).collect())];
        let growth = Growth { fixed: 0.0, base: 0.0, each: 1.0 };
        let spread = Arc::new(Spread::new(&runs, growth, 4).unwrap());
        let measured = BTreeMap::from([(132, Profile::spread_out(spread))]);
        let half = estimate(&measured, 66).unwrap();
        assert_eq!(half.spread().unwrap().growth().each, 2.0);
    }
}
