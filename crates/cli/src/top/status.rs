//! What a server says of itself in `/status.json`, as far as it is shown.

use serde::Deserialize;

/// Everything. Counters count from the server's start.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) ready: bool,
    pub(super) draining: bool,
    pub(super) uptime_s: f64,
    pub(super) models: Vec<Model>,
    pub(super) pools: Vec<Pool>,
    /// Where the server plans.
    #[serde(default)]
    pub(super) plan: Option<Plan>,
    #[serde(default)]
    pub(super) missing: Vec<Missing>,
}

/// A version of a model.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) slo_ms: f64,
    pub(super) pending: u64,
    pub(super) in_time: u64,
    pub(super) late: u64,
    pub(super) dropped: u64,
    #[serde(default)]
    pub(super) failed: u64,
    /// Upper edge in milliseconds, and how many answers were at most as slow.
    pub(super) latency: Vec<(f64, u64)>,
    pub(super) answers: u64,
    /// Size and number of batches.
    pub(super) batches: Vec<(usize, u64)>,
    /// Other models, and how many batches were shorter, or waited, so that they need not wait.
    #[serde(default)]
    pub(super) limited_by: Vec<(String, u64)>,
}

/// A pool of executors.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) executors: usize,
    pub(super) busy: f64,
    pub(super) bad: f64,
    pub(super) advised_executors: usize,
    /// How long each executor was busy, in seconds.
    #[serde(default)]
    pub(super) busy_s: Vec<f64>,
}

/// The plan in force.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Plan {
    pub(super) plans: u64,
    pub(super) moves: u64,
    pub(super) gpus: usize,
    pub(super) gpus_limit: usize,
    pub(super) last: Option<LastPlan>,
}

/// When and why it was made.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LastPlan {
    pub(super) age_s: f64,
    pub(super) why: String,
    /// GPUs that it asked for.
    pub(super) gpus: usize,
}

/// A model that is not served.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Missing {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) reason: String,
}

impl Model {
    /// Requests that left and count: those of clients that went away do not.
    pub(super) fn left(&self) -> u64 {
        self.in_time + self.late + self.dropped + self.failed
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.name == other.name && self.version == other.version
    }
}
