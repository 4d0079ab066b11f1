//! The highest rate at which 99 % of every model's requests are in time.

use fermata_chart::grouped;
use serde::Serialize;

use super::campaign::{Campaign, Run};
use super::progress::Progress;
use crate::stolen::DISTURBED;

/// What makes a rate good.
pub(super) const SHARE: f64 = 0.99;
/// How near the rates that are good and not good must come.
const PRECISION: f64 = 1.03;
/// How far it is from the first rate to the next, and at most from one to the next.
const STRIDE: f64 = std::f64::consts::SQRT_2;
const STRIDE_MAX: f64 = 2.0;
/// So many times less than the first rate is nothing.
const FALL_MAX: f64 = 500.0;
/// No program sends more than this.
const RATE_MAX: f64 = 1e6;
/// How often a rate that was too much may turn out to be good after all, and how far above it the
/// search goes on then.
const RECOVERIES_MAX: usize = 2;
const RECOVERY: f64 = 1.1;

/// One rate that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Step {
    pub(super) offered_rps: f64,
    /// Of the model that has the least.
    pub(super) in_time_share: f64,
    pub(super) good: bool,
    /// It was ended as soon as it could not be good any more.
    pub(super) cut: bool,
    pub(super) p99_ms: f64,
    /// The part of all processors' time that went to other machines meanwhile.
    pub(super) stolen_share: Option<f64>,
}

/// What a try of a rate has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    Good,
    TooMuch,
    /// Too much, on a machine that had other things to do.
    Disturbed,
}

impl Tried {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::TooMuch => "too much",
            Self::Disturbed => "disturbed",
        }
    }
}

/// Searches. Returns the run at the rate found, or the last one, if no rate is good.
pub(super) fn find(
    campaign: &Campaign<'_>,
    progress: &Progress,
) -> anyhow::Result<(Run, Vec<Step>)> {
    let first = campaign.plan.rate();
    let mut steps: Vec<Step> = Vec::new();
    let mut best: Option<Run> = None;
    let mut last = None;
    let mut attempt = |rate: f64| -> anyhow::Result<Option<Tried>> {
        progress.step(rate);
        let run = campaign.run(rate / first, Some(1.0 - SHARE), progress)?;
        if campaign.stop.is_wanted() {
            last = Some(run);
            return Ok(None);
        }
        let step = Step::of(&run, rate);
        let tried = step.tried();
        progress.stepped(&step.line());
        steps.push(step);
        match (tried == Tried::Good, &best) {
            (true, Some(other)) if other.offered_rps > run.offered_rps => {}
            (true, _) => best = Some(run),
            (false, _) => last = Some(run),
        }
        Ok(Some(tried))
    };
    search(first, |rate| judge(campaign.plan.tries, || attempt(rate)))?;
    let run = best.or(last).expect("the search has tried something");
    Ok((run, steps))
}

impl Step {
    /// What it has shown.
    pub(super) fn tried(&self) -> Tried {
        match self.good {
            true => Tried::Good,
            false if self.stolen_share.is_some_and(|share| share > DISTURBED) => Tried::Disturbed,
            false => Tried::TooMuch,
        }
    }

    /// For people who wait for the search.
    fn line(&self) -> String {
        format!(
            "{} rps: {}, {:.2} % in time, p99 {:.2} ms",
            grouped(self.offered_rps, 1),
            self.tried().name(),
            100.0 * self.in_time_share,
            self.p99_ms
        )
    }

    fn of(run: &Run, rate: f64) -> Self {
        let share = |model: &super::record::ModelRecord| match model.sent {
            0 => 1.0,
            sent => model.in_time() as f64 / sent as f64,
        };
        let in_time_share = run.record.models.iter().map(share).fold(1.0, f64::min);
        let good = in_time_share >= SHARE && !run.cut;
        let p99_ms = run.record.total().latency.value_at_quantile(0.99) as f64 / 1e6;
        Self {
            offered_rps: rate,
            in_time_share,
            good,
            cut: run.cut,
            p99_ms,
            stolen_share: run.stolen,
        }
    }
}

/// Whether a rate is good. It is too much if it is so in this many tries; as many again that were
/// disturbed do not count. `attempt` answers `None` to end the search.
fn judge<E>(
    tries: usize,
    mut attempt: impl FnMut() -> Result<Option<Tried>, E>,
) -> Result<Option<bool>, E> {
    let (mut bad, mut disturbed) = (0, 0);
    while bad < tries {
        match attempt()? {
            None => return Ok(None),
            Some(Tried::Good) => return Ok(Some(true)),
            Some(Tried::Disturbed) if disturbed < tries => disturbed += 1,
            Some(Tried::Disturbed | Tried::TooMuch) => bad += 1,
        }
    }
    Ok(Some(false))
}

/// Goes up or down in growing steps until a good rate and a bad one are known, then narrows them
/// down. In the end, if any was good, the lowest bad one is asked again: something else may have
/// disturbed the machine when it was tried, and whatever was asked since then was below it. `good`
/// answers `None` to end the search.
fn search<E>(first: f64, mut good: impl FnMut(f64) -> Result<Option<bool>, E>) -> Result<(), E> {
    let (mut low, mut high) = (None, None);
    let (mut rate, mut stride) = (first, STRIDE);
    let (mut is_asked_again, mut recoveries) = (false, 0);
    for _ in 0..64 {
        match good(rate)? {
            None => return Ok(()),
            Some(true) if is_asked_again => {
                (low, high) = (Some(rate), None);
                (stride, is_asked_again) = (RECOVERY, false);
                recoveries += 1;
            }
            Some(true) => low = Some(rate),
            Some(false) => high = Some(rate),
        }
        rate = match (low, high) {
            (Some(low), Some(high)) if high / low <= PRECISION => {
                if is_asked_again || recoveries == RECOVERIES_MAX {
                    return Ok(());
                }
                is_asked_again = true;
                high
            }
            (Some(low), Some(high)) => f64::sqrt(low * high),
            (Some(low), None) if low >= RATE_MAX => return Ok(()),
            (None, Some(high)) if high < first / FALL_MAX => return Ok(()),
            (low, _) => {
                let next = if low.is_some() { rate * stride } else { rate / stride };
                stride = f64::min(stride * stride, STRIDE_MAX);
                next
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn found(first: f64, limit: f64) -> (f64, usize) {
        found_after(0, first, limit)
    }

    /// The best rate and how many were asked, if the first few are bad by chance.
    fn found_after(disturbed: usize, first: f64, limit: f64) -> (f64, usize) {
        let (mut best, mut steps): (f64, usize) = (0.0, 0);
        let result: Result<(), Infallible> = search(first, |rate| {
            steps += 1;
            let is_good = rate <= limit && steps > disturbed;
            if is_good {
                best = best.max(rate);
            }
            Ok(Some(is_good))
        });
        assert!(result.is_ok());
        (best, steps)
    }

    #[test]
    fn a_rate_is_disturbed_only_if_it_was_too_much() {
        let step = |good, stolen_share| Step {
            offered_rps: 1.0,
            in_time_share: 1.0,
            good,
            cut: false,
            p99_ms: 1.0,
            stolen_share,
        };
        assert_eq!(step(true, Some(0.5)).tried(), Tried::Good);
        assert_eq!(step(false, Some(DISTURBED)).tried(), Tried::TooMuch);
        assert_eq!(step(false, Some(2.0 * DISTURBED)).tried(), Tried::Disturbed);
        assert_eq!(step(false, None).tried(), Tried::TooMuch);
    }

    #[test]
    fn tries_that_were_disturbed_do_not_count_for_ever() {
        let judged = |tries: usize, all: &[Tried]| {
            let mut all = all.iter();
            let judged = judge(tries, || Ok::<_, Infallible>(all.next().copied()));
            judged.map(|good| (good, all.len()))
        };
        use Tried::{Disturbed, Good, TooMuch};
        assert_eq!(judged(2, &[TooMuch, Good, Good]), Ok((Some(true), 1)));
        assert_eq!(judged(2, &[TooMuch, TooMuch, Good]), Ok((Some(false), 1)));
        assert_eq!(judged(2, &[TooMuch, Disturbed, Disturbed, Good]), Ok((Some(true), 0)));
        assert_eq!(judged(1, &[Disturbed, Disturbed, Good]), Ok((Some(false), 1)));
        assert_eq!(judged(2, &[TooMuch]), Ok((None, 0)), "the user has enough");
    }

    #[test]
    fn the_limit_is_found_from_above_and_below() {
        for first in [100.0, 800.0, 20_000.0] {
            let (best, steps) = found(first, 777.0);
            assert!((777.0 / PRECISION..=777.0).contains(&best), "{first}: {best}");
            assert!(steps < 17, "{steps}");
        }
        assert_eq!(found(100.0, 0.0).0, 0.0);
        assert!(found(100.0, f64::INFINITY).1 < 20);
    }

    #[test]
    fn a_rate_that_was_bad_by_chance_is_asked_again() {
        for disturbed in 1..4 {
            let (best, steps) = found_after(disturbed, 700.0, 777.0);
            assert!((777.0 / PRECISION..=777.0).contains(&best), "{disturbed}: {best}");
            assert!(steps < 32, "{steps}");
        }
    }
}
