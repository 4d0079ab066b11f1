//! The highest rate that is sustained.

use std::sync::Arc;
use std::time::Duration;

use fermata_core::{ClassId, Span, Time};
use fermata_dispatch::{Network, Policy};
use fermata_sim::{End, Load, Scenario, simulate};
use fermata_workload::Process;

use super::trial_at;
use crate::trials::scheduler::{Outcome, Stalls, Trial, stalls};

/// What is tried first, in requests a second.
pub(super) const FIRST: f64 = 1e6;
/// Nobody will get this far.
const LAST: f64 = 1e9;
/// A rate is known to this share.
const PRECISION: f64 = 0.03;
/// So many more may be lost than in virtual time.
const TOLERANCE: f64 = 0.001;
/// Virtual time is asked with no more requests than these: what share is lost is known by then.
const VIRTUAL_MAX: f64 = 5e6;
/// A rate that fails is tried again: machines are shared.
const TRIES: u32 = 2;

/// What was found.
pub(super) struct Measured {
    /// Requests a second: the highest that was sustained, or the one that was asked for.
    pub(super) rate: f64,
    /// How that went.
    pub(super) outcome: Outcome,
    /// The share that is lost under the same load in virtual time.
    pub(super) bad_virtual: f64,
    /// At which rate the lag was measured, and how that went: half the highest, or the one that was
    /// asked for.
    pub(super) lag_rate: f64,
    pub(super) lag: Outcome,
    /// How punctual the machine itself was, just before.
    pub(super) stalls: Stalls,
}

impl Measured {
    /// The share of requests that were lost.
    pub(super) fn bad(&self) -> f64 {
        bad(&self.outcome)
    }
}

/// Tries one rate, or finds the highest that is sustained.
pub(super) fn measure(
    trial: &Trial,
    rate: Option<f64>,
    say: impl Fn(&str),
) -> anyhow::Result<Measured> {
    let watched =
        || stalls(trial.model_threads + 1, Duration::from_secs_f64(trial.length.as_secs()));
    if let Some(rate) = rate {
        let (trial, stalls) = (trial_at(trial, rate), watched());
        let outcome = trial.run();
        let (lag, bad_virtual) = (outcome.clone(), virtually(&trial));
        return Ok(Measured { rate, outcome, bad_virtual, lag_rate: rate, lag, stalls });
    }
    let try_rate = |rate: f64| {
        let trial = trial_at(trial, rate);
        let bad_virtual = virtually(&trial);
        for _ in 0..TRIES {
            let outcome = trial.run();
            let lost = bad(&outcome);
            say(&format!("{:.2} million requests/s: {:.3} % lost", rate / 1e6, 100.0 * lost));
            if lost <= bad_virtual + TOLERANCE {
                return Some((rate, outcome, bad_virtual));
            }
        }
        None
    };
    let (mut low, mut best) = (0.0, None);
    let mut high = FIRST;
    // Doubled until it fails, or halved until it does not; then the range is halved.
    while let Some(found) = try_rate(high) {
        (low, best) = (high, Some(found));
        high *= 2.0;
        if high > LAST {
            break;
        }
    }
    while high - low > PRECISION * high && high > 1.0 {
        let middle = (low + high) / 2.0;
        match try_rate(middle) {
            Some(found) => (low, best) = (middle, Some(found)),
            None => high = middle,
        }
    }
    let Some((rate, outcome, bad_virtual)) = best else {
        anyhow::bail!("not even one request a second is sustained: is the machine very busy?");
    };
    let stalls = watched();
    let lag_rate = rate / 2.0;
    let lag = trial_at(trial, lag_rate).run();
    Ok(Measured { rate, outcome, bad_virtual, lag_rate, lag, stalls })
}

fn bad(outcome: &Outcome) -> f64 {
    outcome.dropped as f64 / outcome.offered.max(1) as f64
}

/// The share that is lost in virtual time, with all machines on one thread.
fn virtually(trial: &Trial) -> f64 {
    let spec = Arc::new(trial.spec());
    let each = trial.rate / trial.models as f64;
    let seconds = trial.length.as_secs().min(VIRTUAL_MAX / trial.rate);
    let load = || Load::steady(spec.clone(), Process::Poisson, each);
    let scenario = Scenario {
        loads: (0..trial.models).map(|_| load()).collect(),
        executors: vec![ClassId(0); trial.executors],
        network: Network::default(),
        end: End::At(Time::START + Span::from_secs(seconds)),
        seed: trial.seed,
        noise: 0.0,
        faults: Vec::new(),
    };
    let mut dispatcher = Policy::Rules(trial.rules).dispatcher(scenario.network);
    simulate(&scenario, &mut dispatcher, &mut (), None).total().bad_rate()
}
