//! A mix with its arrivals drawn once, so that all policies and rates are tried on the same ones.

use fermata_dispatch::Policy;
use fermata_sim::{BAD_MAX, Drawn, NEAR, Scenario, highest_near, is_good, passes_drawn, run_drawn};

use super::Mix;

/// The first step of a search from the goodput of another policy.
const VERY_NEAR: f64 = 1.01;

/// A mix and its arrivals.
pub struct DrawnMix<'a> {
    /// The mix.
    pub mix: &'a Mix,
    /// The run at a rate near which goodputs are likely to be.
    pub scenario: Scenario,
    drawn: Drawn,
    /// How exactly goodputs are searched for, as a share of them.
    pub(super) precision: f64,
}

/// A goodput.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goodput {
    /// The highest total rate at which every model has 99 % of its requests in time, in requests a
    /// second.
    pub rate: f64,
    /// The share of executor time that is busy at that rate.
    pub busy: f64,
}

impl<'a> DrawnMix<'a> {
    /// A run of so many requests, and goodputs to within this share of them.
    pub fn new(mix: &'a Mix, requests: u64, precision: f64) -> Self {
        let scenario = mix.scenario(mix.likely_rate(), requests);
        let drawn = Drawn::new(&scenario, 1.0);
        Self { mix, scenario, drawn, precision }
    }

    /// The goodput of a policy.
    pub fn goodput(&self, policy: Policy) -> Goodput {
        self.search(&self.scenario, policy, 1.0, NEAR)
    }

    /// The goodput of a policy that is expected near this rate, in requests a second.
    pub fn goodput_near(&self, policy: Policy, rate: f64) -> Goodput {
        let (guess, step) =
            if rate > 0.0 { (rate / self.scenario.rate(), VERY_NEAR) } else { (1.0, NEAR) };
        self.search(&self.scenario, policy, guess, step)
    }

    /// The goodput of a policy on a variant of the scenario, which has the same arrivals; `guess`
    /// is a factor of the scenario's rates, and `step` that to the next guess.
    pub(super) fn search(
        &self,
        scenario: &Scenario,
        policy: Policy,
        guess: f64,
        step: f64,
    ) -> Goodput {
        // Of the last run that passed, which is the one at the rate that is found.
        let mut busy = 0.0;
        let factor = highest_near(guess, step, self.precision, |factor| {
            let stats = run_drawn(scenario, &self.drawn, factor, policy, Some(BAD_MAX));
            let passed = is_good(&stats);
            if passed {
                busy = stats.busy_fraction();
            }
            passed
        });
        Goodput { rate: factor * scenario.rate(), busy }
    }

    /// Whether a policy has a goodput that is above this rate by more than the precision.
    pub(super) fn exceeds(&self, scenario: &Scenario, policy: Policy, rate: f64) -> bool {
        let factor = rate / scenario.rate() * (1.0 + self.precision);
        passes_drawn(scenario, &self.drawn, factor, policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::mixes::tests::two_models;

    #[test]
    fn a_goodput_is_below_the_bound_and_keeps_executors_busy() {
        let mix = two_models(2);
        let drawn = DrawnMix::new(&mix, 4_000, 0.01);
        let found = drawn.goodput("eager".parse().unwrap());
        assert!(found.rate > 0.2 * mix.bound() && found.rate < mix.bound(), "{found:?}");
        assert!(found.busy > 0.3 && found.busy <= 1.0, "{found:?}");
    }
}
