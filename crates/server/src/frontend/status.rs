//! The status page: what the server does, for people, and the same numbers as JSON.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use axum::{Json, Router};
use fermata_core::Span;
use fermata_dispatch::Spare;
use fermata_pool::Pool;
use serde::Serialize;

use super::prometheus;
use crate::gpu::GpuReport;
use crate::metrics::Outcome;
use crate::monitor::Monitor;
use crate::served::Served;
use crate::spare::spare_of;

/// `/` and `/status.json`.
pub fn router(monitor: Arc<Monitor>) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("status.html"))))
        .route("/status.json", get(status))
        .with_state(monitor)
}

/// `/metrics`, in Prometheus' text format.
pub fn metrics_router(monitor: Arc<Monitor>) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(monitor)
}

async fn metrics(State(monitor): State<Arc<Monitor>>) -> impl IntoResponse {
    let format = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (format, prometheus::render(&monitor))
}

async fn status(State(monitor): State<Arc<Monitor>>) -> Json<Status> {
    Json(Status::of(&monitor))
}

/// What the page shows. Counters count from the start; the page shows their change.
#[derive(Debug, Serialize)]
pub struct Status {
    version: &'static str,
    ready: bool,
    draining: bool,
    uptime_s: f64,
    models: Vec<ModelStatus>,
    pools: Vec<PoolStatus>,
    /// The GPUs and their shares, where there are any.
    gpus: Vec<GpuReport>,
    /// The plan in force, where the server plans.
    plan: Option<PlanStatus>,
    /// Models that are not served, and why.
    missing: Vec<Missing>,
}

#[derive(Debug, Serialize)]
struct ModelStatus {
    name: String,
    version: String,
    pool: String,
    slo_ms: f64,
    memory_mb: f64,
    pending: u64,
    in_time: u64,
    late: u64,
    dropped: u64,
    cancelled: u64,
    failed: u64,
    /// Upper edge in milliseconds, and how many answers were at most as slow.
    latency: Vec<(f64, u64)>,
    answers: u64,
    /// Size and number of batches.
    batches: Vec<(usize, u64)>,
    /// Other models, and how many batches were shorter, or waited, so that they need not wait.
    limited_by: Vec<(String, u64)>,
}

#[derive(Debug, Serialize)]
struct PoolStatus {
    name: String,
    executors: usize,
    /// What its spare executors are for; null where its policy knows of none.
    spare: Option<&'static str>,
    busy: f64,
    bad: f64,
    advised_executors: usize,
    /// How long each executor was busy, in seconds.
    busy_s: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct PlanStatus {
    /// How many plans were made, and models moved, since the start.
    plans: u64,
    moves: u64,
    /// GPUs that the pools have now, and may have.
    gpus: usize,
    gpus_limit: usize,
    last: Option<LastPlan>,
}

#[derive(Debug, Serialize)]
struct LastPlan {
    age_s: f64,
    why: String,
    /// GPUs that it asked for, and without which no plan could do.
    gpus: usize,
    lower_bound: usize,
    moved: usize,
    moves_left: usize,
    pools: Vec<PlannedPool>,
    infeasible: Vec<Infeasible>,
}

#[derive(Debug, Serialize)]
struct PlannedPool {
    name: String,
    gpus: usize,
    models: usize,
}

#[derive(Debug, Serialize)]
struct Infeasible {
    model: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Missing {
    name: String,
    state: String,
    reason: String,
}

impl Status {
    fn of(monitor: &Monitor) -> Self {
        let service = monitor.service();
        let models = service.models();
        let missing = service.index().into_iter().filter(|entry| entry.state != "READY");
        Self {
            version: super::SERVER_VERSION,
            ready: service.is_ready(),
            draining: service.is_draining(),
            uptime_s: monitor.started().elapsed().unwrap_or_default().as_secs_f64(),
            models: models.iter().map(|served| ModelStatus::of(served, &models)).collect(),
            pools: monitor
                .pools()
                .map(|(pool, advice)| PoolStatus {
                    name: pool.name().to_owned(),
                    executors: pool.executors(),
                    spare: spare_of(pool.policy()).map(Spare::name),
                    busy: advice.busy,
                    bad: advice.bad,
                    advised_executors: advice.executors,
                    busy_s: busy_s(&pool),
                })
                .collect(),
            gpus: service.gpus().map(|gpus| gpus.report()).unwrap_or_default(),
            plan: PlanStatus::of(monitor),
            missing: missing
                .map(|entry| Missing { name: entry.name, state: entry.state, reason: entry.reason })
                .collect(),
        }
    }
}

/// How long each executor that there is was busy, by rising id.
fn busy_s(pool: &Pool) -> Vec<f64> {
    let busy: Vec<Span> = pool.gauges().busy().collect();
    let there = pool.executors_list().into_iter();
    let busy = there.filter_map(|(executor, ..)| busy.get(executor.index()));
    busy.map(|busy| busy.0 as f64 / 1e9).collect()
}

impl PlanStatus {
    fn of(monitor: &Monitor) -> Option<Self> {
        let (history, fleet) = (monitor.planning()?, monitor.service().fleet());
        let last = history.last().map(|last| LastPlan {
            age_s: last.at.elapsed().unwrap_or_default().as_secs_f64(),
            why: last.why.clone(),
            gpus: last.asked,
            lower_bound: last.lower_bound,
            moved: last.moved,
            moves_left: last.left,
            pools: last
                .pools
                .iter()
                .map(|(name, gpus, models)| PlannedPool {
                    name: name.clone(),
                    gpus: *gpus,
                    models: *models,
                })
                .collect(),
            infeasible: last
                .infeasible
                .iter()
                .map(|(model, reason)| Infeasible { model: model.clone(), reason: reason.clone() })
                .collect(),
        });
        Some(Self {
            plans: history.plans(),
            moves: history.moves(),
            gpus: fleet.executors(),
            gpus_limit: fleet.limits()?.gpus,
            last,
        })
    }
}

impl ModelStatus {
    fn of(served: &Served, all: &[Arc<Served>]) -> Self {
        let metrics = served.metrics();
        let latencies = metrics.latencies();
        let dropped = Outcome::BAD.into_iter().filter(|&outcome| outcome != Outcome::Late);
        Self {
            name: served.name.clone(),
            version: served.version.clone(),
            pool: served.pool().name().to_owned(),
            slo_ms: served.slo.as_secs_f64() * 1e3,
            memory_mb: served.memory as f64 / 1e6,
            pending: metrics.pending(),
            in_time: metrics.outcome(Outcome::InTime),
            late: metrics.outcome(Outcome::Late),
            dropped: dropped.map(|outcome| metrics.outcome(outcome)).sum(),
            cancelled: metrics.outcome(Outcome::Cancelled),
            failed: metrics.outcome(Outcome::Failed),
            latency: latencies.buckets.iter().map(|&(edge, n)| (edge.as_ms(), n)).collect(),
            answers: latencies.count,
            batches: metrics.batches().iter().map(|batch| (batch.size, batch.count)).collect(),
            limited_by: served.limited_by(all),
        }
    }
}
