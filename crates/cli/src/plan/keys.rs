//! The keys that demands and the nodes of queries have in common.

use std::collections::BTreeMap;

use fermata_files::{Checker, InputError};
use fermata_plan::Kind;
use serde::Deserialize;

use crate::input::{Latency, LatencyKeys};

/// Bytes of a megabyte, as makers of memory count.
pub(super) const MEGABYTE: f64 = 1e6;

/// A kind of GPU.
pub(super) struct NamedKind {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// Latencies on one kind of GPU.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLatency {
    alpha_ms: Option<f64>,
    beta_ms: Option<f64>,
    latency_ms: Option<Vec<f64>>,
    profile: Option<String>,
}

pub(super) fn bytes(megabytes: f64) -> u64 {
    (megabytes * MEGABYTE).round() as u64
}

/// Bytes, of a key that may be missing.
pub(super) fn memory(
    checker: &Checker<'_>,
    key: &str,
    megabytes: Option<f64>,
) -> Result<u64, InputError> {
    megabytes.map_or(Ok(0), |megabytes| checker.not_negative(key, megabytes).map(bytes))
}

/// The latencies of a model on each kind: those of the kind's own table, or else those for all.
pub(super) fn latencies(
    checker: &Checker<'_>,
    model: &str,
    keys: LatencyKeys<'_>,
    tables: &BTreeMap<String, RawLatency>,
    kinds: &[NamedKind],
) -> Result<Vec<Option<Latency>>, InputError> {
    let known = |name: &String| kinds.iter().any(|kind| kind.name == *name);
    if let Some(unknown) = tables.keys().find(|name| !known(name)) {
        let key = format!("on.{unknown}");
        return Err(checker.refuse(&key, format!("there is no [[gpu]] '{unknown}'")));
    }
    let everywhere = match keys.is_empty() && !tables.is_empty() {
        true => None,
        false => Some(keys.check(checker, model)?),
    };
    let on = |kind: &NamedKind| match tables.get(&kind.name) {
        None => Ok(everywhere.clone()),
        Some(raw) => {
            let place = checker.place.as_ref().map(|place| format!("{place}: on.{}", kind.name));
            let checker = Checker { file: checker.file, place };
            raw.keys().check(&checker, model).map(Some)
        }
    };
    kinds.iter().map(on).collect()
}

impl RawLatency {
    fn keys(&self) -> LatencyKeys<'_> {
        LatencyKeys {
            alpha_ms: self.alpha_ms,
            beta_ms: self.beta_ms,
            latency_ms: self.latency_ms.as_deref(),
            profile: self.profile.as_deref(),
        }
    }
}
