//! Rates that change: how soon a policy is as good as at steady rates again.

use std::sync::Arc;

use fermata_core::{Request, Span, Time};
use fermata_dispatch::{Action, Event, Policy};
use fermata_sim::{
    Arrivals, BAD_MAX, End, Load, NEAR, Observer, Run, Scenario, highest_near, simulate,
};
use fermata_workload::Rate;

use super::Mix;

/// How the rates of a mix change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The model with the shortest objective falls silent for a while and returns, again and again.
    Silence,
    /// The first and the last model share their requests 90 to 10, and then 10 to 90, again and
    /// again.
    Swap,
}

/// What a change costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AfterChange {
    /// The highest total rate, in requests a second, at which every model has 99 % of those
    /// requests in time that arrive at least a second after a change.
    pub changing: f64,
    /// The same where the rates of each phase are steady from the beginning of the run, counted
    /// over the same time.
    pub steady: f64,
    /// At 90 % of the steady goodput, the highest share of a model's requests that are bad among
    /// those that arrive within a second after a change.
    pub bad_at_once: f64,
}

/// How long a policy may take to learn of a change.
const SETTLING: Span = Span(1_000_000_000);
/// The share of the steady goodput at which what happens at once is measured.
const LOAD_AT_ONCE: f64 = 0.9;
/// The length of the phases of each change, in seconds.
const SILENCE_SECONDS: [f64; 2] = [10.0, 5.0];
const SWAP_SECONDS: [f64; 2] = [10.0, 10.0];
/// How often the phases come again, so that chance decides little.
const CYCLES: usize = 4;

/// A time during which rates are steady.
#[derive(Clone, Debug)]
struct RatePhase {
    from: Time,
    until: Time,
    /// By model, its rate over the total rate of the mix.
    shares: Vec<f64>,
}

/// A part of a run: requests are counted that arrive from its first moment on and before its last.
type Window = (Time, Time);

impl Change {
    fn phases(self, mix: &Mix, stretch: f64) -> Vec<RatePhase> {
        let even: Vec<f64> = mix.members.iter().map(|member| member.share).collect();
        let by_seconds: Vec<(f64, Vec<f64>)> = match self {
            Self::Silence => {
                let tightest = mix.tightest();
                let silent = mix
                    .members
                    .iter()
                    .map(|member| if member.slo == tightest { 0.0 } else { member.share });
                let shares = [even.clone(), silent.collect()];
                SILENCE_SECONDS.into_iter().zip(shares).collect()
            }
            Self::Swap => {
                let last = even.len() - 1;
                let both = even[0] + even[last];
                let swapped = |first: f64| {
                    let mut shares = even.clone();
                    (shares[0], shares[last]) = (first * both, (1.0 - first) * both);
                    shares
                };
                SWAP_SECONDS.into_iter().zip([swapped(0.9), swapped(0.1)]).collect()
            }
        };
        let mut from = Time::START;
        let phase = |(seconds, shares): (f64, Vec<f64>)| {
            // However short the run: longer than what is not counted.
            let until = from + SETTLING + Span::from_secs(seconds * stretch);
            let phase = RatePhase { from, until, shares };
            from = until;
            phase
        };
        let count = CYCLES * by_seconds.len();
        by_seconds.into_iter().cycle().take(count).map(phase).collect()
    }
}

/// Measures what a change costs under a policy, searching goodputs to within `precision` of them.
/// The phases last `stretch` times as long as usual.
pub fn after_change(
    mix: &Mix,
    change: Change,
    policy: Policy,
    stretch: f64,
    precision: f64,
) -> AfterChange {
    let phases = change.phases(mix, stretch);
    let settled: Vec<Window> =
        phases.iter().map(|phase| (phase.from + SETTLING, phase.until)).collect();
    let at_once: Vec<Window> =
        phases[1..].iter().map(|phase| (phase.from, phase.from + SETTLING)).collect();

    let changing = |rate: f64, windows: &[Window]| count(mix, &phases, rate, policy, windows);
    // The phases of a cycle, each as if it had always been.
    let cycle = phases.len() / CYCLES;
    let steady = |rate: f64| {
        let mut total = vec![Count::default(); mix.members.len()];
        for (at, phase) in phases[..cycle].iter().enumerate() {
            let end = phases.last().map_or(phase.until, |last| last.until);
            let always = [RatePhase { from: Time::START, until: end, ..phase.clone() }];
            let windows: Vec<Window> = settled.iter().skip(at).step_by(cycle).copied().collect();
            let counts = count(mix, &always, rate, policy, &windows);
            total.iter_mut().zip(counts).for_each(|(total, count)| total.add(count));
        }
        total
    };
    let search = |guess: f64, counts: &dyn Fn(f64) -> Vec<Count>| {
        highest_near(guess, NEAR, precision, |rate| worst(&counts(rate)) <= BAD_MAX)
    };
    let steady = search(mix.likely_rate(), &steady);
    let guess = if steady > 0.0 && steady.is_finite() { steady } else { mix.likely_rate() };
    AfterChange {
        changing: search(guess, &|rate| changing(rate, &settled)),
        steady,
        bad_at_once: worst(&changing(LOAD_AT_ONCE * guess, &at_once)),
    }
}

/// The highest bad rate of any model.
fn worst(counts: &[Count]) -> f64 {
    counts.iter().map(|count| count.bad as f64 / count.offered.max(1) as f64).fold(0.0, f64::max)
}

/// Runs these phases at a total rate, and counts the requests that arrive within the windows, by
/// model.
fn count(
    mix: &Mix,
    phases: &[RatePhase],
    rate: f64,
    policy: Policy,
    windows: &[Window],
) -> Vec<Count> {
    let end = phases.last().map_or(Time::START, |phase| phase.until);
    let loads = mix.members.iter().enumerate().map(|(model, member)| {
        let steps = phases.iter().map(|phase| (phase.from, rate * phase.shares[model]));
        let rate = Rate::Steps(steps.collect());
        Load::new(Arc::new(member.spec()), Arrivals::Process(mix.process, rate))
    });
    let scenario: Scenario = mix.scenario_of(loads.collect(), End::At(end));
    let counts = vec![Count::default(); mix.members.len()];
    let mut counter = WindowCounter { windows, counts };
    simulate(&scenario, &mut policy.dispatcher(scenario.network), &mut counter, None);
    counter.counts
}

/// The requests of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    offered: u64,
    /// Dropped or late.
    bad: u64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.offered += other.offered;
        self.bad += other.bad;
    }
}

/// Counts requests by when they arrived.
struct WindowCounter<'a> {
    windows: &'a [Window],
    /// By model.
    counts: Vec<Count>,
}

impl WindowCounter<'_> {
    fn counts(&self, arrival: Time) -> bool {
        self.windows.iter().any(|&(from, until)| from <= arrival && arrival < until)
    }
}

impl Observer for WindowCounter<'_> {
    fn event(&mut self, now: Time, event: &Event) {
        if let Event::Arrive { model, .. } = *event
            && self.counts(now)
        {
            self.counts[model.index()].offered += 1;
        }
    }

    fn action(&mut self, _now: Time, action: &Action, _batch: &[Request]) {
        if let Action::Drop { model, request, .. } = *action
            && self.counts(request.arrival)
        {
            self.counts[model.index()].bad += 1;
        }
    }

    fn finished(&mut self, run: &Run) {
        let late =
            |request: &&Request| run.finish > request.deadline && self.counts(request.arrival);
        let late = run.requests.iter().filter(late).count();
        self.counts[run.model.index()].bad += late as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::mixes::tests::two_models;

    #[test]
    fn phases_follow_each_other() {
        let mix = two_models(1);
        for change in [Change::Silence, Change::Swap] {
            let phases = change.phases(&mix, 0.5);
            assert_eq!(phases[0].from, Time::START);
            assert!(phases.windows(2).all(|pair| pair[0].until == pair[1].from));
        }
        let silence = Change::Silence.phases(&mix, 1.0);
        assert_eq!(silence[1].shares, [0.0, 0.5]);
        let swap = Change::Swap.phases(&mix, 1.0);
        assert!((swap[0].shares[0] - 0.9).abs() < 1e-9 && (swap[1].shares[0] - 0.1).abs() < 1e-9);
    }

    #[test]
    fn eager_batching_learns_nothing_so_changes_cost_nothing() {
        let mix = two_models(1);
        let eager: Policy = "eager".parse().unwrap();
        let found = after_change(&mix, Change::Silence, eager, 0.1, 0.02);
        assert!((found.changing / found.steady - 1.0).abs() < 0.1, "{found:?}");
        assert!(found.bad_at_once < 0.05, "{found:?}");
    }

    #[test]
    fn requests_are_counted_by_when_they_arrive() {
        let mix = two_models(1);
        let phases = Change::Swap.phases(&mix, 0.01);
        let eager: Policy = "eager".parse().unwrap();
        let second = (phases[1].from, phases[1].until);
        let [short, long] = count(&mix, &phases, 1000.0, eager, &[second])[..] else {
            panic!("two models")
        };
        assert!(short.offered > 50 && short.offered < 170, "{short:?}");
        assert!(long.offered > 800 && long.bad <= long.offered, "{long:?}");
        assert_eq!(count(&mix, &phases, 1000.0, eager, &[]), vec![Count::default(); 2]);
    }
}
