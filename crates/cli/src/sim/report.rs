//! The figures of a run, for machines: the JSON of `fermata sim --json`.

use fermata_core::Span;
use fermata_sim::ModelStats;
use serde::{Serialize, Serializer};

use super::Answer;

/// What came out under one policy.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) policy: String,
    pub(super) seed: u64,
    /// How many executors the reported run began with.
    pub(super) gpus: usize,
    /// Only where it was asked for; null where no number is enough.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "found_or_null")]
    pub(super) min_gpus: Option<Result<usize, usize>>,
    /// All models together.
    #[serde(flatten)]
    pub(super) total: Figures,
    /// By name, in the order of the file.
    #[serde(serialize_with = "by_name")]
    pub(super) models: Vec<ModelReport>,
    /// The highest bad rate of any model.
    #[serde(skip)]
    pub(super) worst_bad_rate: f64,
    /// How many executors there were, with those that joined.
    #[serde(skip)]
    pub(super) executors: usize,
    #[serde(skip)]
    pub(super) seconds: f64,
}

/// One model of a report.
#[derive(Clone, Debug)]
pub(super) struct ModelReport {
    pub(super) name: String,
    pub(super) slo: Span,
    pub(super) figures: Figures,
}

/// What is told of a model, and of all together.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    /// Only where it was asked for.
    pub(super) goodput_rps: Option<f64>,
    pub(super) offered_rps: f64,
    pub(super) in_time_rps: f64,
    pub(super) bad_rate: f64,
    pub(super) busy_fraction: f64,
    pub(super) executors_used: usize,
    pub(super) batch_p50: usize,
    /// Null where nothing was answered.
    pub(super) latency_ms: Option<LatencyMs>,
}

/// From arrival to answer.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LatencyMs {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
}

impl Report {
    pub(super) fn new(answer: &Answer, names: &[String]) -> Self {
        let Answer { scenario, stats, .. } = answer;
        let seconds = answer.offered_until.as_secs();
        let busy_seconds = stats.executor_seconds();
        let rate = scenario.rate();
        let models = names.iter().zip(&scenario.loads).zip(&stats.models).zip(&answer.usage);
        let models = models.map(|(((name, load), stats), usage)| ModelReport {
            name: name.clone(),
            slo: load.slo(),
            figures: Figures {
                goodput_rps: answer.goodput.map(|goodput| goodput * load.rate() / rate),
                busy_fraction: ratio(usage.busy.as_secs(), busy_seconds),
                executors_used: usage.executors.len(),
                ..Figures::counted(stats, seconds)
            },
        });
        Self {
            policy: answer.policy.clone(),
            seed: scenario.seed,
            gpus: scenario.executors.len(),
            min_gpus: answer.min_gpus,
            total: Figures {
                goodput_rps: answer.goodput,
                busy_fraction: stats.busy_fraction(),
                executors_used: stats.executors_used(),
                ..Figures::counted(&stats.total(), seconds)
            },
            models: models.collect(),
            worst_bad_rate: stats.worst_bad_rate(),
            executors: stats.executors(),
            seconds,
        }
    }
}

impl Figures {
    /// What the counts of a model tell.
    fn counted(stats: &ModelStats, seconds: f64) -> Self {
        let quantile = |share| stats.latency.quantile(share).as_ms();
        Self {
            goodput_rps: None,
            offered_rps: ratio(stats.offered as f64, seconds),
            in_time_rps: ratio(stats.in_time as f64, seconds),
            bad_rate: stats.bad_rate(),
            busy_fraction: 0.0,
            executors_used: 0,
            batch_p50: stats.batch_p50(),
            latency_ms: (stats.latency.total() > 0).then(|| LatencyMs {
                p50: quantile(0.5),
                p99: quantile(0.99),
                p999: quantile(0.999),
            }),
        }
    }
}

/// The reports as JSON: one object, or a list of several.
pub(super) fn json(reports: &[Report]) -> serde_json::Result<String> {
    let text = match reports {
        [report] => serde_json::to_string_pretty(report),
        several => serde_json::to_string_pretty(several),
    };
    text.map(|text| text + "\n")
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn by_name<S: Serializer>(models: &[ModelReport], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(models.iter().map(|model| (&model.name, &model.figures)))
}

fn found_or_null<S: Serializer>(
    found: &Option<Result<usize, usize>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    found.and_then(Result::ok).serialize(serializer)
}
