//! What was measured of lengths, as it is written down.

use fermata_core::Span;
use serde::{Deserialize, Serialize};

use super::key::{CacheKey, FORMAT};
use super::lengths::LengthTable;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LengthDocument {
    format: u32,
    pub(super) key: CacheKey,
    slo_ms: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch_limit: Option<usize>,
    alone: Vec<Runs>,
    batches: Vec<Batch>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Runs {
    length: usize,
    ms: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    size: usize,
    length: usize,
    ms: f64,
}

impl LengthDocument {
    pub(super) fn of(key: &CacheKey, table: &LengthTable) -> Self {
        let alone = table.alone.iter().map(|(length, runs)| Runs {
            length: *length,
            ms: runs.iter().map(|run| run.as_ms()).collect(),
        });
        let batches = table.batches.iter();
        let batches = batches.map(|&(size, length, took)| Batch { size, length, ms: took.as_ms() });
        Self {
            format: FORMAT,
            key: key.clone(),
            slo_ms: table.slo.as_ms(),
            limit: table.limit,
            batch_limit: table.batch_limit,
            alone: alone.collect(),
            batches: batches.collect(),
        }
    }

    /// What it says, if that can be; else why not.
    pub(super) fn check(self) -> Result<LengthTable, String> {
        let span = |ms: f64| {
            let sound = ms.is_finite() && ms >= 0.0;
            sound.then(|| Span::from_ms(ms)).ok_or_else(|| format!("{ms} is no latency"))
        };
        let runs = |runs: &Runs| {
            let spans = runs.ms.iter().map(|&ms| span(ms)).collect::<Result<Vec<_>, _>>()?;
            match spans.is_empty() {
                true => Err(format!("length {} has no runs", runs.length)),
                false => Ok((runs.length, spans)),
            }
        };
        let alone = self.alone.iter().map(runs).collect::<Result<Vec<_>, _>>()?;
        if alone.is_empty() || !alone.is_sorted_by(|one, other| one.0 < other.0) {
            return Err("its lengths do not rise".to_owned());
        }
        let batches = self.batches.iter();
        let batches = batches.map(|batch| Ok((batch.size, batch.length, span(batch.ms)?)));
        Ok(LengthTable {
            alone,
            batches: batches.collect::<Result<_, String>>()?,
            limit: self.limit,
            batch_limit: self.batch_limit,
            slo: span(self.slo_ms)?,
        })
    }
}
