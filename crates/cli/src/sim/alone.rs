//! `[[model.alone]]` of a file of `fermata sim`: a model whose requests do not all run equally
//! long.

use std::sync::Arc;

use fermata_core::{Growth, KindId, Profile, Span, Spread};
use fermata_files::{Checker, InputError};
use fermata_sim::Sizes;
use fermata_sim::{Alone, Peak};
use serde::Deserialize;

/// Requests of one application.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPeak {
    mean_ms: Option<f64>,
    #[serde(default)]
    deviation_ms: f64,
    #[serde(default = "share")]
    share: f64,
}

fn share() -> f64 {
    1.0
}

/// How batches grow: `fixed_ms + (base + each k)` times the longest of `k` requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGrowth {
    #[serde(default)]
    fixed_ms: f64,
    #[serde(default)]
    base: f64,
    #[serde(default)]
    each: f64,
}

/// What the keys of such a model say.
pub(super) struct Uneven {
    pub(super) profile: Profile,
    pub(super) sizes: Sizes,
}

/// The largest batch, where the file does not say.
pub(super) const MAX_BATCH: i64 = 16;
/// Runs by which the scheduler knows the distributions.
const MEASURED: usize = 20_000;
/// Requests whose lengths are drawn; when there are more, they begin again.
const DRAWN: usize = 200_000;

/// Checks the keys of a model. Its scheduler knows which application a request is of, unless told
/// not to.
pub(super) fn check(
    checker: &Checker<'_>,
    peaks: &[RawPeak],
    growth: Option<&RawGrowth>,
    max_batch: i64,
    tags: bool,
    number: usize,
) -> Result<Uneven, InputError> {
    let peaks: Vec<Peak> =
        (1..).zip(peaks).map(|(at, peak)| peak.check(checker, at)).collect::<Result<_, _>>()?;
    let growth = growth.map_or(Ok(Growth::FREE), |growth| growth.check(checker))?;
    let max_batch = checker.count("max_batch", max_batch, usize::from(u8::MAX))?;
    let alone = Alone::Peaks(peaks);
    let kinds = if tags { alone.applications() } else { 1 };
    let seed = 2 * number as u64;
    let mut runs: Vec<Vec<Span>> = vec![Vec::new(); kinds];
    for (run, from) in alone.draw(MEASURED, seed + 1) {
        runs[from.min(kinds - 1)].push(run);
    }
    let share = |runs: &Vec<Span>| runs.len() as f32 / MEASURED as f32;
    let measured = runs.into_iter().map(|runs| (share(&runs), runs)).collect();
    let spread = Spread::new(&measured, growth, max_batch)
        .map_err(|error| checker.refuse("alone", error.to_string()))?;
    let requests = alone.draw(DRAWN, seed).into_iter();
    let requests = requests.map(|(run, from)| (run, KindId(from.min(kinds - 1) as u16)));
    let sizes = Sizes { requests: requests.collect(), growth };
    Ok(Uneven { profile: Profile::spread_out(Arc::new(spread)), sizes })
}

impl RawPeak {
    fn check(&self, checker: &Checker<'_>, number: usize) -> Result<Peak, InputError> {
        let within = Checker {
            file: checker.file,
            place: Some(format!(
                "{}, alone {number}",
                checker.place.as_deref().unwrap_or_default()
            )),
        };
        let mean = within.positive("mean_ms", within.required("mean_ms", self.mean_ms)?)?;
        let deviation = within.not_negative("deviation_ms", self.deviation_ms)?;
        let weight = within.positive("share", self.share)?;
        Ok(Peak { weight, mean, deviation })
    }
}

impl RawGrowth {
    fn check(&self, checker: &Checker<'_>) -> Result<Growth, InputError> {
        let fixed = checker.not_negative("growth.fixed_ms", self.fixed_ms)?;
        let base = checker.not_negative("growth.base", self.base)?;
        let each = checker.not_negative("growth.each", self.each)?;
        if base + each == 0.0 {
            let reason = "base and each are both 0: a batch would not depend on its requests";
            return Err(checker.refuse("growth", reason));
        }
        Ok(Growth { fixed: 1e6 * fixed, base, each })
    }
}
