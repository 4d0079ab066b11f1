//! What a running server does, for its status page and its metrics: the load of each pool, and what
//! should become of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;

use fermata_core::{Span, Time};
use fermata_dispatch::Spare;
use fermata_pool::Pool;
use fermata_scheduler::span;

use crate::metrics::{Advice, Advisor, Change, Outcome, classes, filled_load};
use crate::planning::PlanHistory;
use crate::service::Service;
use crate::spare::spare_of;

/// Counts what becomes of requests, pool by pool.
#[derive(Debug)]
pub struct Monitor {
    service: Arc<Service>,
    left: Mutex<Left>,
    /// What is known of the load of each pool.
    advisors: Mutex<Vec<(Weak<Pool>, Arc<Advisor>)>>,
    planning: Option<Arc<PlanHistory>>,
    started: SystemTime,
}

/// What had become of all requests when it was looked at last.
#[derive(Debug, Default)]
struct Left {
    at: Option<Time>,
    /// By model.
    counts: BTreeMap<(String, String), Counts>,
}

/// The requests of a model so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    came: u64,
    /// Left in time, and dropped or late.
    good: u64,
    bad: u64,
}

impl Monitor {
    /// Begins with a server that has just started.
    pub(crate) fn new(service: Arc<Service>, planning: Option<Arc<PlanHistory>>) -> Self {
        let (left, advisors) = (Mutex::default(), Mutex::default());
        Self { service, left, advisors, planning, started: SystemTime::now() }
    }

    /// Its models.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Its pools, and what should become of them.
    pub fn pools(&self) -> impl Iterator<Item = (Arc<Pool>, Advice)> {
        self.service.pools().into_iter().map(|pool| {
            let advice = self.advisor(&pool).advice(pool.executors());
            (pool, advice)
        })
    }

    /// What planning has done, where there is any.
    pub fn planning(&self) -> Option<&PlanHistory> {
        self.planning.as_deref()
    }

    /// When it started.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Takes note of what has become of all requests; about once a second.
    pub(crate) fn sample(&self) {
        let models = self.service.models();
        let mut left = self.left.lock().expect("nothing panics with it");
        let before = std::mem::take(&mut left.counts);
        let pools = self.service.pools();
        let Some(now) = pools.first().map(|pool| pool.runtime().now()) else { return };
        let since = left.at.map_or(0.0, |then| (now - then).as_secs());
        left.at = Some(now);
        let classes: Vec<_> = pools
            .iter()
            .map(|pool| classes(pool.executors_list().into_iter().map(|(.., class)| class)))
            .collect();
        let filled =
            |pool: &Arc<Pool>| (spare_of(pool.policy()) == Some(Spare::Latency)).then_some(0.0);
        let mut changes: Vec<Change> =
            pools.iter().map(|pool| Change { filled: filled(pool), ..Change::default() }).collect();
        for served in models {
            let metrics = served.metrics();
            let counts = Counts {
                came: metrics.arrivals(),
                good: metrics.outcome(Outcome::InTime),
                bad: Outcome::BAD.map(|outcome| metrics.outcome(outcome)).iter().sum(),
            };
            let key = (served.name.clone(), served.version.clone());
            let before = before.get(&key).copied().unwrap_or_default();
            if let Some(at) = pools.iter().position(|pool| Arc::ptr_eq(pool, served.pool())) {
                let change = &mut changes[at];
                change.good += counts.good.saturating_sub(before.good);
                change.bad += counts.bad.saturating_sub(before.bad);
                if let Some(filled) = change.filled.as_mut().filter(|_| since > 0.0) {
                    let came = counts.came.saturating_sub(before.came) as f64;
                    // The way back to the client comes off every deadline.
                    let slo = span(served.slo) - pools[at].margin();
                    let (spec, rate) = (served.place.spec(), came * metrics.rows_each() / since);
                    *filled += filled_load(&spec, slo, rate, &classes[at]);
                }
            }
            left.counts.insert(key, counts);
        }
        for (pool, change) in pools.iter().zip(changes) {
            let busy = pool.gauges().busy().fold(Span::ZERO, |sum, busy| sum + busy);
            let change = Change { executors: pool.executors(), busy, ..change };
            self.advisor(pool).sample(now, change);
        }
    }

    /// How many requests have not left.
    pub(crate) fn pending(&self) -> u64 {
        self.service.models().iter().map(|served| served.metrics().pending()).sum()
    }

    /// What is known of the load of a pool. It is forgotten with the pool.
    fn advisor(&self, pool: &Arc<Pool>) -> Arc<Advisor> {
        let mut advisors = self.advisors.lock().expect("nothing panics with it");
        advisors.retain(|(pool, _)| pool.strong_count() > 0);
        let its = advisors.iter().find(|(other, _)| other.as_ptr() == Arc::as_ptr(pool));
        if let Some((_, advisor)) = its {
            return advisor.clone();
        }
        let advisor = Arc::<Advisor>::default();
        advisors.push((Arc::downgrade(pool), advisor.clone()));
        advisor
    }
}
