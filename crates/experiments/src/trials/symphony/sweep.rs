//! What happens below and above the peak: goodput and utilisation against the offered load, and a
//! request that comes alone.

use fermata_core::{ClassId, Span, Time};
use fermata_dispatch::{Network, Policy};
use fermata_sim::{Arrivals, End, Load, Scenario, run};

use super::lab::{Contender, Lab};
use super::model::Model;
use super::pool::Pool;

/// Figure 2: ten ResNet50 with an SLO of 100 ms on 24 executors.
pub fn figure2_pool() -> Pool {
    Pool::alike(&Model::resnet50(100.0), 10, 24)
}

/// One load under one policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadPoint {
    /// Requests a second that came.
    pub offered: f64,
    /// Requests a second that were answered in time.
    pub in_time: f64,
    /// The share of executor time that was busy.
    pub busy: f64,
}

/// Each policy (outer) under each of its own loads (inner).
pub fn sweep(lab: &Lab<'_>, pool: &Pool, asked: &[(Contender, Vec<f64>)]) -> Vec<Vec<LoadPoint>> {
    let scenario = lab.scenario(pool);
    let seconds = lab.effort.requests_on(pool) as f64 / pool.bound();
    let jobs: Vec<(Policy, f64)> = asked
        .iter()
        .flat_map(|(contender, rates)| rates.iter().map(|&rate| (contender.policy, rate)))
        .collect();
    let mut points = lab
        .spread(&jobs, |&(policy, rate)| load_point(&scenario, policy, rate, seconds))
        .into_iter();
    asked.iter().map(|(_, rates)| points.by_ref().take(rates.len()).collect()).collect()
}

fn load_point(scenario: &Scenario, policy: Policy, rate: f64, seconds: f64) -> LoadPoint {
    let mut scenario = scenario.scaled(rate / scenario.rate());
    // By time, not by count: the last arrivals of an overloaded run would come too soon to be
    // counted.
    scenario.end = End::At(Time::START + Span::from_secs(seconds));
    let stats = run(&scenario, policy);
    let total = stats.total();
    LoadPoint {
        offered: total.offered as f64 / seconds,
        in_time: total.in_time as f64 / seconds,
        busy: stats.busy_fraction(),
    }
}

/// How long the only request of a ResNet50 waits for an executor that has nothing else to do.
pub fn lone_wait(policy: Policy) -> Span {
    let arrivals = Arrivals::Recorded([Time::START + Span::from_secs(1.0)].into(), None);
    let scenario = Scenario {
        loads: vec![Load::new(Model::resnet50(25.0).spec(), arrivals)],
        executors: vec![ClassId(0)],
        network: Network::default(),
        end: End::Requests(1),
        seed: 0,
        noise: 0.0,
        faults: Vec::new(),
    };
    run(&scenario, policy).total().queueing.quantile(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::symphony::lab::tests::TINY;

    #[test]
    fn points_are_by_policy_and_load() {
        let pool = figure2_pool();
        let deferred = Contender::all(&["deferred"])[0];
        let eager = Contender::all(&["eager"])[0];
        let asked = [(deferred, vec![2_000.0, 60_000.0]), (eager, vec![4_000.0])];
        let points = sweep(&TINY, &pool, &asked);
        assert_eq!((points[0].len(), points[1].len()), (2, 1));
        let [low, high] = points[0][..] else { panic!("two loads") };
        assert!(low.in_time > 0.9 * low.offered && high.in_time < 0.7 * high.offered);
        assert!(low.busy < 0.5 && high.busy > 0.6, "{low:?} {high:?}");
    }

    #[test]
    fn eager_starts_a_lone_request_at_once_and_deferred_at_its_frontrun_moment() {
        assert_eq!(lone_wait("eager".parse().unwrap()), Span::ZERO);
        let frontrun = Span::from_ms(25.0 - 1.053 * 2.0 - 5.072);
        let found = lone_wait("deferred".parse().unwrap());
        assert!(found >= frontrun && found.as_ms() < 1.02 * frontrun.as_ms(), "{found}");
    }
}
