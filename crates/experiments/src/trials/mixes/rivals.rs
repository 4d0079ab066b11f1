//! The policies that the default policy is compared with, and a search for the best of them that
//! spends little on the others.

use fermata_core::Span;
use fermata_dispatch::Policy;
use fermata_sim::{NEAR, Scenario};

use super::drawn::{DrawnMix, Goodput};

/// A policy, with or without a limit on how long batches are.
#[derive(Clone, Debug, PartialEq)]
pub struct Rival {
    /// Its name, with the limit.
    pub name: String,
    policy: Policy,
    limit: Option<Limit>,
}

/// The longest batch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// As a share of the tightest objective of the mix.
    OfTightest(f64),
    /// In time.
    Fixed(Span),
}

/// The best of several rivals on a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct BestRival {
    /// Its goodput.
    pub goodput: Goodput,
    /// Its name.
    pub name: String,
}

/// The policies without a limit.
const UNLIMITED: [&str; 10] = [
    "eager",
    "deferred",
    "timeout:5%",
    "timeout:10%",
    "timeout:20%",
    "timeout:35%",
    "timeout:50%",
    "clockwork",
    "shepherd",
    "nexus",
];

/// The limits on how long a batch is, as shares of the tightest objective. The limit that is most
/// often the best comes first: after it, most rivals need one run.
const LIMITS: [f64; 9] = [2.0, 0.95, 3.0, 1.4, 4.5, 0.67, 0.47, 0.33, 0.23];

/// The policies that are tried with limits: eager batching, and the default rules. The default
/// policy itself compares limits.
const LIMITED: [&str; 2] = ["fermata:fixed", "eager"];

/// All rivals of the default policy: both the default rules and eager batching with limits, and
/// policies without a limit.
pub fn rivals() -> Vec<Rival> {
    let unlimited = UNLIMITED.iter().map(|name| Rival::unlimited(name));
    let limited = LIMITS.iter().flat_map(|&limit| {
        let each = LIMITED.iter();
        each.map(move |name| Rival {
            name: format!("{name}<{limit}"),
            policy: named(name),
            limit: Some(Limit::OfTightest(limit)),
        })
    });
    limited.chain(unlimited).collect()
}

/// Eager batching, and it and the default rules with each of these limits.
pub fn limited_rivals(limits_ms: &[f64]) -> Vec<Rival> {
    let limited = limits_ms.iter().flat_map(|&ms| {
        let each = LIMITED.iter();
        each.map(move |name| Rival {
            name: format!("{name}, {ms} ms"),
            policy: named(name),
            limit: Some(Limit::Fixed(Span::from_ms(ms))),
        })
    });
    [Rival::unlimited("eager")].into_iter().chain(limited).collect()
}

fn named(name: &str) -> Policy {
    name.parse().expect("rivals are policies that exist")
}

impl Rival {
    fn unlimited(name: &str) -> Self {
        Self { name: name.to_owned(), policy: named(name), limit: None }
    }

    /// The mix's scenario under this rival's limit.
    fn scenario(&self, drawn: &DrawnMix<'_>) -> Scenario {
        let mut scenario = drawn.scenario.clone();
        let limit = match self.limit {
            None => return scenario,
            Some(Limit::Fixed(longest)) => longest,
            Some(Limit::OfTightest(share)) => Span((drawn.mix.tightest().0 as f64 * share) as u64),
        };
        let limited = drawn.mix.limited(limit);
        for (load, member) in scenario.loads.iter_mut().zip(&limited.members) {
            load.spec = member.spec().into();
        }
        scenario
    }
}

impl DrawnMix<'_> {
    /// The best of the rivals. A rival is searched for its goodput only if it passes a run at a
    /// rate just above that of the best so far. Goodput zero, if no rival has any.
    pub fn best_rival(&self, rivals: &[Rival]) -> BestRival {
        let mut best = BestRival { goodput: Goodput::default(), name: "none".to_owned() };
        for rival in rivals {
            let scenario = rival.scenario(self);
            let beaten = best.goodput.rate;
            if beaten > 0.0 && !self.exceeds(&scenario, rival.policy, beaten) {
                continue;
            }
            // Just above the rate that it has passed.
            let above = beaten / scenario.rate() * (1.0 + 2.0 * self.precision);
            let guess = if beaten > 0.0 { above } else { 1.0 };
            let goodput = self.search(&scenario, rival.policy, guess, NEAR);
            if goodput.rate.is_finite() && goodput.rate > beaten {
                best = BestRival { goodput, name: rival.name.clone() };
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::mixes::tests::two_models;

    #[test]
    fn the_best_rival_has_the_highest_goodput_of_all() {
        let mix = two_models(1);
        let drawn = DrawnMix::new(&mix, 3_000, 0.005);
        let rivals = limited_rivals(&[0.5, 2.0]);
        assert_eq!(rivals[1].name, "fermata:fixed, 0.5 ms");
        let best = drawn.best_rival(&rivals);
        let each = rivals.iter().map(|rival| {
            let found = drawn.search(&rival.scenario(&drawn), rival.policy, 1.0, NEAR);
            found.rate
        });
        let highest = each.fold(0.0, f64::max);
        assert!((best.goodput.rate / highest - 1.0).abs() < 0.011, "{best:?} {highest}");
    }

    #[test]
    fn rivals_are_named_apart() {
        let names: std::collections::BTreeSet<String> =
            rivals().into_iter().map(|rival| rival.name).collect();
        assert_eq!(names.len(), UNLIMITED.len() + 2 * LIMITS.len());
        assert!(names.contains("fermata:fixed<0.95") && names.contains("timeout:20%"));
    }
}
