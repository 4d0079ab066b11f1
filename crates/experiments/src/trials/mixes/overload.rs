//! What a policy makes of more requests than it can serve.

use fermata_core::{Span, Time};
use fermata_dispatch::Policy;
use fermata_sim::{End, Scenario, run};

use super::drawn::DrawnMix;

/// What is served of a load above the goodput.
#[derive(Clone, Debug, PartialEq)]
pub struct Overload {
    /// The rate of all requests that are in time, over the goodput.
    pub in_time: f64,
    /// For each model, the rate of its requests that are in time, over its share of the goodput.
    pub by_model: Vec<f64>,
}

/// Offers `times` the goodput of a policy to it.
pub fn overload(drawn: &DrawnMix<'_>, policy: Policy, goodput: f64, times: f64) -> Overload {
    let rate = times * goodput;
    let seconds = drawn.scenario.end.requests() as f64 / rate;
    // The run ends at a time, not after a number of requests: the last requests of an overloaded
    // run would otherwise be answered after the time that the rates are divided by.
    let end = End::At(Time::START + Span::from_secs(seconds));
    let scenario = Scenario { end, ..drawn.scenario.scaled(rate / drawn.scenario.rate()) };
    let stats = run(&scenario, policy);
    let over = |in_time: u64, share: f64| in_time as f64 / seconds / (share * goodput);
    let models = stats.models.iter().zip(&drawn.mix.members);
    Overload {
        in_time: over(stats.total().in_time, 1.0),
        by_model: models.map(|(model, member)| over(model.in_time, member.share)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::mixes::tests::two_models;

    #[test]
    fn at_a_low_load_everything_is_in_time_and_above_the_goodput_not() {
        let mix = two_models(2);
        let drawn = DrawnMix::new(&mix, 4_000, 0.01);
        let eager: Policy = "eager".parse().unwrap();
        let peak = drawn.goodput(eager).rate;
        let low = overload(&drawn, eager, peak, 0.5);
        assert!((low.in_time - 0.5).abs() < 0.02, "{low:?}");
        let high = overload(&drawn, eager, peak, 3.0);
        assert!(high.in_time < 2.0 && high.by_model.len() == 2, "{high:?}");
    }
}
