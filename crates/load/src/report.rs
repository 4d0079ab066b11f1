//! The figures of a load, for machines: the JSON of `fermata load --json`.

use serde::{Serialize, Serializer};

use super::campaign::Run;
use super::goodput::Step;
use super::plan::{Mode, Plan};
use super::record::{ModelRecord, Outcome};

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) url: String,
    pub(super) seconds: f64,
    /// It was ended before its time.
    pub(super) cut: bool,
    /// Null in a closed loop.
    pub(super) offered_rps: Option<f64>,
    /// Only in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) concurrency: Option<usize>,
    /// Only where it was asked for; zero if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) goodput_rps: Option<f64>,
    #[serde(flatten)]
    pub(super) total: Figures,
    /// By how much requests were sent later than they were due: the fault of this program or
    /// machine.
    pub(super) lag_us: LagUs,
    /// How many had to wait because all connections were in use.
    pub(super) waited_for_connection: u64,
    /// CPU time of this program for each request.
    pub(super) cpu_us_per_request: f64,
    /// The part of all processors' time that a hypervisor gave to other machines meanwhile; null
    /// where nobody counts.
    pub(super) stolen_share: Option<f64>,
    pub(super) errors: Vec<ErrorReport>,
    #[serde(serialize_with = "by_name")]
    pub(super) models: Vec<ModelReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) steps: Option<Vec<Step>>,
}

/// One model of a report.
#[derive(Clone, Debug)]
pub(super) struct ModelReport {
    pub(super) name: String,
    pub(super) figures: Figures,
}

/// What is told of a model, and of all together.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    /// Null where there is none, or several: then every answer is in time.
    pub(super) slo_ms: Option<f64>,
    pub(super) sent_rps: f64,
    pub(super) in_time_rps: f64,
    pub(super) in_time_share: f64,
    pub(super) counts: Counts,
    /// Of answers, from the moment at which the request was due; null where there are none.
    pub(super) latency_ms: Option<LatencyMs>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) in_time: u64,
    pub(super) late: u64,
    pub(super) shed: u64,
    pub(super) missed: u64,
    pub(super) failed: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LatencyMs {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LagUs {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// Errors of one kind.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ErrorReport {
    pub(super) outcome: &'static str,
    pub(super) kind: String,
    pub(super) count: u64,
    pub(super) first: String,
}

impl Report {
    pub(super) fn new(plan: &Plan, run: &Run, steps: Option<&[Step]>) -> Self {
        let record = &run.record;
        let slos: Vec<Option<f64>> =
            plan.models.iter().map(|model| model.slo.map(|slo| slo.as_secs_f64() * 1e3)).collect();
        let common = slos.iter().all(|slo| *slo == slos[0]).then_some(slos[0]).flatten();
        let lag = |share| record.lag.value_at_quantile(share) as f64 / 1e3;
        let best = |steps: &[Step]| {
            steps.iter().filter(|step| step.good).map(|step| step.offered_rps).fold(0.0, f64::max)
        };
        let error =
            |((outcome, kind), errors): (&(Outcome, String), &super::record::Errors)| ErrorReport {
                outcome: outcome.name(),
                kind: kind.clone(),
                count: errors.count,
                first: errors.first.clone(),
            };
        let model =
            |((model, record), slo): ((&super::plan::ModelPlan, &ModelRecord), &Option<f64>)| {
                ModelReport {
                    name: model.name.clone(),
                    figures: Figures::new(record, run.seconds, *slo),
                }
            };
        Self {
            url: plan.target.to_string(),
            seconds: run.seconds,
            cut: run.cut,
            offered_rps: run.offered_rps,
            concurrency: match plan.mode {
                Mode::Closed { concurrency } => Some(concurrency),
                Mode::Goodput { .. } | Mode::Open { .. } => None,
            },
            goodput_rps: steps.map(best),
            total: Figures::new(&record.total(), run.seconds, common),
            lag_us: LagUs { p50: lag(0.5), p99: lag(0.99), max: record.lag.max() as f64 / 1e3 },
            waited_for_connection: record.waited,
            cpu_us_per_request: run.cpu_us,
            stolen_share: run.stolen,
            errors: record.errors.iter().map(error).collect(),
            models: plan.models.iter().zip(&record.models).zip(&slos).map(model).collect(),
            steps: steps.map(<[Step]>::to_vec),
        }
    }

    pub(super) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

impl Figures {
    fn new(record: &ModelRecord, seconds: f64, slo_ms: Option<f64>) -> Self {
        let [in_time, late, shed, missed, failed] = record.counts;
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let latency = &record.latency;
        let quantile = |share| latency.value_at_quantile(share) as f64 / 1e6;
        Self {
            slo_ms,
            sent_rps: rate(record.sent),
            in_time_rps: rate(in_time),
            in_time_share: in_time as f64 / record.sent.max(1) as f64,
            counts: Counts { sent: record.sent, in_time, late, shed, missed, failed },
            latency_ms: (!latency.is_empty()).then(|| LatencyMs {
                mean: latency.mean() / 1e6,
                p50: quantile(0.5),
                p90: quantile(0.9),
                p99: quantile(0.99),
                p999: quantile(0.999),
                max: latency.max() as f64 / 1e6,
            }),
        }
    }
}

fn by_name<S: Serializer>(models: &[ModelReport], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(models.iter().map(|model| (&model.name, &model.figures)))
}
