//! Planning while serving: what comes is measured, a plan is made for it every epoch, or at once
//! when the load leaves what was planned for, and the difference is applied in small steps.
//!
//! What is decided is pure and apart: when ([`trigger`]), for which rates ([`meter`]), in which
//! steps ([`step`]), and what losses and idleness teach about a plan ([`correction`]). Here they
//! meet the clock and the pools.

mod apply;
mod correction;
pub(crate) mod meter;
mod report;
mod step;
#[cfg(test)]
mod tests;
mod trigger;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fermata_core::{Span, Time};
use fermata_dispatch::Spare;
use fermata_plan::{Demand, Kind, Member, Plan, Problem};
use fermata_pool::{CLASS, Pool};
use fermata_scheduler::{RealTime, Runtime, span};

use crate::fleet::Limits;
use crate::metrics::Outcome;
use crate::served::Served;
use crate::service::Service;
use crate::spare::spare_of;
use apply::Change;
use correction::Correction;
use meter::{Meter, Rate};
pub use report::{PlanHistory, Report};
use step::{Layout, Wanted, fit, moves_max, step};
use trigger::{ReplanTrigger, Seen, Why};

/// Makes a plan, not far from the one before.
pub type Planner = fn(&Problem, Option<&Plan>) -> Plan;

/// How the server plans.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often.
    pub epoch: Duration,
    /// Bytes of memory of each GPU.
    pub gpu_memory: u64,
    /// Who makes the plans.
    pub planner: Planner,
}

/// Plans are made for so much more than comes (gpulet).
const HEADROOM: f64 = 1.2;
/// A model that nobody asks for may be asked at any time: so often, in requests a second.
const RATE_MIN: f64 = 0.1;
/// How often is looked, in parts of an epoch: each second of 30.
pub(crate) const LOOK_PART: u32 = 30;
/// What counts as lately, in parts of an epoch: 5 s of 30.
pub(crate) const LATELY_PART: u64 = 6;
/// A pool gives up only what no plan of the last one and a half epochs has asked for.
const KEPT: (u64, u64) = (3, 2);

type Key = (String, String);

/// The loop's memory.
pub(crate) struct Planning {
    service: Arc<Service>,
    settings: Settings,
    limits: Limits,
    clock: RealTime,
    trigger: ReplanTrigger,
    history: Arc<PlanHistory>,
    meter: Meter,
    /// When the last plan was made; the start, before the first.
    planned_at: Time,
    looked_at: Time,
    /// By model: how its requests have left so far, in time and not.
    left: BTreeMap<Key, (u64, u64)>,
    /// By model, what the last plan was made for.
    basis: BTreeMap<Key, Basis>,
    /// By pool.
    tallies: BTreeMap<String, Tally>,
    moves_left: bool,
}

#[derive(Clone, Copy, Debug)]
struct Basis {
    /// What came, and what was asked of the planner, in requests a second.
    came: f64,
    asked: f64,
    /// GPUs that the latter keeps busy.
    load: f64,
}

/// A pool since the last plan.
#[derive(Debug, Default)]
struct Tally {
    good: u64,
    bad: u64,
    /// How long its executors were busy when the plan was made, and how long they could have been
    /// since.
    busy_before: Span,
    available: Span,
    /// What the plan gave it.
    planned: usize,
    correction: Correction,
    /// What plans asked for lately, each with its time.
    asked: VecDeque<(Time, usize)>,
}

/// A model that is planned for.
struct PlannedModel {
    key: Key,
    served: Arc<Served>,
    /// Its place in the list of pools.
    home: usize,
    rate: Rate,
    /// Rows of a request.
    rows: f64,
}

impl PlannedModel {
    fn expected(&self) -> f64 {
        self.rate.expected() * self.rows
    }
}

impl Planning {
    /// Planning for these limits. Nothing happens until it is kept up.
    pub(crate) fn new(
        service: Arc<Service>,
        settings: Settings,
        limits: Limits,
        clock: RealTime,
    ) -> Self {
        let epoch = span(settings.epoch);
        let now = clock.now();
        Self {
            service,
            settings,
            limits,
            clock,
            trigger: ReplanTrigger { epoch },
            history: Arc::default(),
            meter: Meter::new(epoch, Span(epoch.0 / LATELY_PART)),
            planned_at: now,
            looked_at: now,
            left: BTreeMap::new(),
            basis: BTreeMap::new(),
            tallies: BTreeMap::new(),
            moves_left: false,
        }
    }

    /// What it has done so far.
    pub(crate) fn history(&self) -> Arc<PlanHistory> {
        self.history.clone()
    }

    /// Plans for ever.
    pub(crate) async fn keep_up(mut self) {
        loop {
            tokio::time::sleep(self.settings.epoch / LOOK_PART).await;
            let now = self.clock.now();
            let pools = self.service.fleet().pools();
            let planned = self.look(now, &pools);
            let seen = self.seen(&planned, &pools);
            let known: BTreeSet<&Key> = self.basis.keys().collect();
            let others = planned.iter().map(|model| &model.key).collect::<BTreeSet<_>>();
            let since = now - self.planned_at;
            if let Some(why) = self.trigger.why(since, known != others, self.moves_left, &seen) {
                self.plan(now, &why, planned, pools, &seen).await;
            }
        }
    }

    /// Reads the counters.
    fn look(&mut self, now: Time, pools: &[Arc<Pool>]) -> Vec<PlannedModel> {
        let since = now - self.looked_at;
        self.looked_at = now;
        let names: Vec<&str> = pools.iter().map(|pool| pool.name()).collect();
        self.tallies.retain(|name, _| names.contains(&name.as_str()));
        for pool in pools {
            let tally = self.tally(pool);
            if tally.asked.is_empty() {
                // Until the load is known, what a pool begins with is what it needs.
                tally.asked.push_back((now, pool.executors()));
                tally.busy_before = busy(pool);
            }
            tally.available += since * pool.executors() as u64;
        }
        let mut planned = Vec::new();
        let mut left = BTreeMap::new();
        for served in self.service.models() {
            let at = pools.iter().position(|pool| Arc::ptr_eq(pool, served.pool()));
            let Some(home) = at else { continue };
            let key = (served.name.clone(), served.version.clone());
            let metrics = served.metrics();
            let good = metrics.outcome(Outcome::InTime);
            let bad = Outcome::BAD.map(|outcome| metrics.outcome(outcome)).iter().sum();
            let before = self.left.get(&key).copied().unwrap_or((good, bad));
            let tally = self.tally(&pools[home]);
            tally.good += good.saturating_sub(before.0);
            tally.bad += bad.saturating_sub(before.1);
            left.insert(key.clone(), (good, bad));
            let rows = metrics.rows_each();
            planned.push(PlannedModel { key, served, home, rate: Rate::default(), rows });
        }
        self.left = left;
        let counts =
            planned.iter().map(|each| (each.key.clone(), each.served.metrics().arrivals()));
        self.meter.note(now, counts);
        for model in &mut planned {
            model.rate = self.meter.rate(&model.key);
        }
        planned
    }

    /// What each pool did since the last plan, and what comes now against what was planned for.
    fn seen(&self, planned: &[PlannedModel], pools: &[Arc<Pool>]) -> Vec<Seen> {
        let mut all: Vec<Seen> = pools
            .iter()
            .map(|pool| {
                let tally = &self.tallies[pool.name()];
                let busy = (busy(pool) - tally.busy_before).0 as f64;
                Seen {
                    name: pool.name().to_owned(),
                    good: tally.good,
                    bad: tally.bad,
                    busy: (busy / tally.available.0.max(1) as f64).min(1.0),
                    uses_spare: spare_of(pool.policy()) == Some(Spare::Latency),
                    ..Seen::default()
                }
            })
            .collect();
        for model in planned {
            let Some(basis) = self.basis.get(&model.key) else { continue };
            let seen = &mut all[model.home];
            let (each, rate) = (basis.load / basis.asked, model.expected());
            seen.planned += each * basis.came;
            seen.load += each * rate;
            // Variances add up; the root is taken below.
            seen.deviation += each * each * rate * model.rows / model.rate.seconds.max(1e-9);
        }
        all.iter_mut().for_each(|seen| seen.deviation = seen.deviation.sqrt());
        all
    }

    /// Makes a plan, and takes a step towards it.
    async fn plan(
        &mut self,
        now: Time,
        why: &Why,
        planned: Vec<PlannedModel>,
        pools: Vec<Arc<Pool>>,
        seen: &[Seen],
    ) {
        for (pool, seen) in pools.iter().zip(seen) {
            let tally = self.tally(pool);
            if tally.planned > 0 {
                tally.correction.learn(tally.planned, pool.executors(), seen);
            }
        }
        let asked = |model: &PlannedModel| (HEADROOM * model.expected()).max(RATE_MIN);
        let demands = planned.iter().map(|model| demand(model, asked(model))).collect();
        // The limit is heeded below: a server that has too few GPUs serves all models with them.
        let kinds = vec![Kind { memory: self.limits.memory, ..Kind::UNLIMITED }];
        let problem = Problem { demands, kinds, limit: None };
        let previous = as_plan(&planned, &pools);
        let planner = self.settings.planner;
        let solved = tokio::task::spawn_blocking(move || planner(&problem, Some(&previous))).await;
        let Ok(plan) = solved else {
            // It comes back at the next epoch.
            self.planned_at = now;
            return tracing::error!("the planner panicked");
        };
        let wanted = Wanted::new(&plan, planned.len());
        let layout = Layout {
            pools: pools.len(),
            homes: planned.iter().map(|model| model.home).collect(),
            memory: planned.iter().map(|model| model.served.memory).collect(),
        };
        let mut next = step(&layout, &wanted, moves_max(planned.len()), self.limits.memory);
        self.basis = planned
            .iter()
            .zip(&wanted.loads)
            .map(|(model, &load)| {
                let (came, asked) = (model.expected(), asked(model));
                (model.key.clone(), Basis { came, asked, load })
            })
            .collect();
        // Where none can go now, none can soon.
        self.moves_left = next.left > 0 && !next.moves.is_empty();
        let kept = self.settle_sizes(now, &pools, &mut next.before, &mut next.after);
        // A thread that unloads a model waits until nothing holds it, and has the lock that a move
        // waits for.
        let weak = |model: usize| Arc::downgrade(&planned[model].served);
        let moves = next.moves.iter().map(|&(model, to)| (weak(model), to)).collect();
        let names: Vec<String> = planned.into_iter().map(|model| model.key.0).collect();
        let change = Change { pools, before: next.before, after: next.after, kept, moves };
        let moved = self.apply(change).await;
        self.begin_tallies(now);
        self.tell(why, &plan, &names, moved, next.left);
    }

    /// Corrects sizes by what was learnt, and cuts them to what there is. Returns how many
    /// executors each pool keeps in any case, since it needed them a short while ago.
    fn settle_sizes(
        &mut self,
        now: Time,
        pools: &[Arc<Pool>],
        before: &mut [usize],
        after: &mut [usize],
    ) -> Vec<usize> {
        for (at, pool) in pools.iter().enumerate() {
            let tally = self.tally(pool);
            tally.planned = after[at];
            before[at] = tally.correction.apply(before[at]);
            after[at] = tally.correction.apply(after[at]);
        }
        fit(before, self.limits.gpus);
        fit(after, self.limits.gpus);
        let keep = Span(self.trigger.epoch.0 / KEPT.1 * KEPT.0);
        let mut kept = Vec::new();
        for (at, pool) in pools.iter().enumerate() {
            let tally = self.tally(pool);
            tally.asked.push_back((now, after[at]));
            tally.asked.retain(|&(then, _)| now - then <= keep);
            kept.push(tally.asked.iter().map(|&(_, size)| size).max().unwrap_or(0));
        }
        kept
    }

    /// Takes a step. Returns how many models moved.
    async fn apply(&self, change: Change) -> usize {
        let service = self.service.clone();
        let grown = tokio::task::spawn_blocking(move || {
            change.grow(service.fleet());
            change
        });
        let Ok(mut change) = grown.await else { return 0 };
        let mut moved = 0;
        let others = change.after.len() > change.pools.len();
        if others || !change.moves.is_empty() || change.after.contains(&0) {
            // Loads and unloads wait for as long as this takes.
            let _lock = self.service.lock_loads().await;
            let service = self.service.clone();
            let relocated = tokio::task::spawn_blocking(move || {
                let moved = change.relocate(&service);
                (moved, change)
            });
            let Ok(done) = relocated.await else { return 0 };
            (moved, change) = done;
        }
        let service = self.service.clone();
        let settled = tokio::task::spawn_blocking(move || change.settle(service.fleet()));
        // A panic ends the process.
        let _ = settled.await;
        moved
    }

    fn tally(&mut self, pool: &Pool) -> &mut Tally {
        self.tallies.entry(pool.name().to_owned()).or_default()
    }

    fn begin_tallies(&mut self, now: Time) {
        self.planned_at = now;
        for pool in self.service.fleet().pools() {
            let tally = self.tally(&pool);
            (tally.good, tally.bad, tally.available) = (0, 0, Span::ZERO);
            tally.busy_before = busy(&pool);
        }
    }

    fn tell(&self, why: &Why, plan: &Plan, names: &[String], moved: usize, left: usize) {
        let models = self.service.models();
        let held = |pool: &Arc<Pool>| {
            models.iter().filter(|served| Arc::ptr_eq(served.pool(), pool)).count()
        };
        let pools: Vec<(String, usize, usize)> = self
            .service
            .fleet()
            .pools()
            .iter()
            .map(|pool| (pool.name().to_owned(), pool.executors(), held(pool)))
            .collect();
        let infeasible = plan
            .infeasible
            .iter()
            .map(|each| (names[each.demand].clone(), report::in_words(&each.reason)));
        let report = Report {
            at: SystemTime::now(),
            why: why.to_string(),
            asked: plan.gpus(),
            gpus: pools.iter().map(|&(_, executors, _)| executors).sum(),
            limit: self.limits.gpus,
            lower_bound: plan.lower_bound,
            moved,
            left,
            pools,
            infeasible: infeasible.collect(),
        };
        let (gpus, pools) = (report.gpus, report.pools.len());
        if report.asked > report.limit {
            let (asked, limit) = (report.asked, report.limit);
            tracing::warn!(asked, limit, "more GPUs are needed than there may be");
        }
        let before = self.history.last();
        if before.is_some_and(|before| before.pools == report.pools && moved == 0) {
            tracing::debug!(%why, gpus, pools, left, "planned, and nothing changed");
        } else {
            tracing::info!(%why, gpus, pools, moved, left, "planned");
        }
        self.history.note(report);
    }
}

/// What is asked of the planner for a model.
fn demand(model: &PlannedModel, rate: f64) -> Demand {
    let served = &model.served;
    // The way back to the client comes off every deadline.
    let slo = span(served.slo) - served.pool().margin();
    let profile = served.place.spec().profile(CLASS).map(|profile| (**profile).clone());
    Demand { profiles: vec![profile], slo, rate, memory: served.memory, workspace: 0 }
}

/// How things are, as a plan.
fn as_plan(planned: &[PlannedModel], pools: &[Arc<Pool>]) -> Plan {
    let mut first = 0;
    let pool = |(at, pool): (usize, &Arc<Pool>)| {
        let gpus = (first..first + pool.executors()).collect();
        first += pool.executors();
        let here = planned.iter().enumerate().filter(|(_, model)| model.home == at);
        let members = here.map(|(demand, model)| Member {
            demand,
            rate: model.expected(),
            batch: 1,
            occupancy: 0.0,
            latency: span(model.served.slo),
        });
        let members = members.collect();
        fermata_plan::Pool { kind: 0, gpus, share: 100, round: None, members }
    };
    Plan { pools: pools.iter().enumerate().map(pool).collect(), ..Plan::default() }
}

fn busy(pool: &Pool) -> Span {
    pool.gauges().busy().fold(Span::ZERO, |sum, busy| sum + busy)
}
