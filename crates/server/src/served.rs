//! A version of a model that is being served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fermata_engine::Signature;

use crate::inference::{Answer, Call, InferError};
use crate::proto;

/// A version of a model that is being served. Whoever holds it can finish what it has begun, though the
/// model be reloaded or unloaded meanwhile.
#[derive(Debug)]
pub struct Served {
    /// The model's name.
    pub name: String,
    /// Its version, a number.
    pub version: String,
    /// What goes in and what comes out.
    pub signature: Signature,
    /// Its latency objective.
    pub slo: Duration,
    /// Its configuration, completed from the model's file.
    pub config: proto::ModelConfig,
    /// The names of classes by output, for those that have a label file.
    pub labels: BTreeMap<String, Vec<String>>,
}

impl Served {
    /// Runs one request. Dropping the future cancels it.
    pub async fn infer(self: &Arc<Self>, _call: Call) -> Result<Answer, InferError> {
        Err(InferError::Unavailable("not yet".to_owned()))
    }
}
