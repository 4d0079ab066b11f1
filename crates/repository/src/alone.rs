//! `[[alone]]` and `growth` of `fermata.toml`: an emulated model whose requests do not all run
//! equally long.

use std::path::Path;
use std::sync::Arc;

use fermata_core::{Growth, Profile, Span, Spread};
use serde::Deserialize;

use crate::error::RepositoryError;
use crate::number::{not_negative, positive};

/// Requests that run about equally long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMode {
    mean_ms: Option<f64>,
    #[serde(default)]
    deviation_ms: f64,
    #[serde(default = "one")]
    share: f64,
}

fn one() -> f64 {
    1.0
}

/// How batches grow: `fixed_ms + (base + each k)` times the longest of `k` requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawGrowth {
    #[serde(default)]
    fixed_ms: f64,
    #[serde(default)]
    base: f64,
    #[serde(default)]
    each: f64,
}

/// The largest batch, since only the objective and `max_batch_size` end it.
const MAX_BATCH: usize = 128;
/// A normal distribution is this many runs squared.
const STEPS: usize = 32;
/// Runs of each mode, where all have the same share.
const RUNS: f64 = (STEPS * STEPS) as f64;

/// The profile of a model with these modes: as many batch sizes as finish within the objective on
/// average, and at least one.
pub(crate) fn profile(
    file: &Path,
    modes: &[RawMode],
    growth: Option<&RawGrowth>,
    slo: Span,
) -> Result<Profile, RepositoryError> {
    let growth = growth.map_or(Ok(Growth::FREE), |growth| growth.check(file))?;
    let shares: f64 = modes.iter().map(|mode| mode.share).sum();
    let each = RUNS * modes.len() as f64 / shares;
    let runs = modes.iter().enumerate().map(|(at, mode)| mode.runs(file, at, each));
    // All are one kind: which of them a request is does not show before it runs.
    let runs: Vec<Span> = runs.collect::<Result<Vec<_>, _>>()?.concat();
    let wrong = |reason: String| RepositoryError::key(file, "alone", reason);
    let spread = Spread::new(&vec![(1.0, runs)], growth, MAX_BATCH);
    let spread = spread.map_err(|error| wrong(error.to_string()))?;
    let least = growth.latency(1, spread.grid().shortest());
    if slo < least {
        let (slo, least) = (slo.as_ms(), least.as_ms());
        let reason = format!(
            "{slo} ms is below the {least} ms that the shortest request takes: none could be in \
             time"
        );
        return Err(RepositoryError::key(file, "slo_ms", reason));
    }
    let sizes = spread.profile().largest_within(slo).max(1);
    Ok(Profile::spread_out(Arc::new(spread.with_max_batch(sizes))))
}

impl RawMode {
    /// Runs of this mode, so many for a share of one.
    fn runs(&self, file: &Path, at: usize, each: f64) -> Result<Vec<Span>, RepositoryError> {
        let key = |key: &str| format!("alone[{at}].{key}");
        let Some(mean) = self.mean_ms else {
            return Err(RepositoryError::key(file, key("mean_ms"), "missing"));
        };
        let mean = positive(file, &key("mean_ms"), mean)?;
        let deviation = not_negative(file, &key("deviation_ms"), self.deviation_ms)?;
        let share = positive(file, &key("share"), self.share)?;
        // At least one, however small its share.
        let count = (share * each).round().max(1.0) as usize;
        // Below nothing there is no run: what a wide distribution has there takes a thousandth of
        // the mean.
        let least = mean / 1000.0;
        let run = |at: usize| Span::from_ms((mean + deviation * normal(at)).max(least));
        Ok((0..count).map(run).collect())
    }
}

/// The `at`-th of numbers that are normally distributed, evenly rather than by chance: Box and
/// Muller's transformation of a grid. They come again after all steps.
fn normal(at: usize) -> f64 {
    let place = |at: usize| (at as f64 + 0.5) / STEPS as f64;
    // The first is in the middle, and one step of either for each number spreads a few as well as
    // all.
    let (radius, angle) = ((at + STEPS / 2) % STEPS, (STEPS / 4 + at / STEPS + at * 13) % STEPS);
    (-2.0 * place(radius).ln()).sqrt() * (std::f64::consts::TAU * place(angle)).cos()
}

impl RawGrowth {
    fn check(&self, file: &Path) -> Result<Growth, RepositoryError> {
        let part = |key: &str, value| not_negative(file, &format!("growth.{key}"), value);
        let fixed = part("fixed_ms", self.fixed_ms)? * 1e6;
        let base = part("base", self.base)?;
        let each = part("each", self.each)?;
        if base + each == 0.0 {
            let reason = "base and each are zero: a batch would take no time for its requests";
            return Err(RepositoryError::key(file, "growth", reason));
        }
        Ok(Growth { fixed, base, each })
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::KindId;

    use super::*;

    #[derive(Deserialize)]
    struct Raw {
        alone: Vec<RawMode>,
        growth: Option<RawGrowth>,
    }

    fn read(text: &str, slo_ms: f64) -> Result<Profile, String> {
        let raw: Raw = toml::from_str(text).unwrap();
        profile(Path::new("f"), &raw.alone, raw.growth.as_ref(), Span::from_ms(slo_ms))
            .map_err(|error| error.to_string())
    }

    const TWO: &str = "growth = { base = 0.95, each = 0.05 }
        [[alone]]\nmean_ms = 50\ndeviation_ms = 10\nshare = 3\n[[alone]]\nmean_ms = 150";

    #[test]
    fn modes_are_mixed_by_their_shares() {
        let profile = read(TWO, 300.0).unwrap();
        let spread = profile.spread().unwrap();
        let ms = |share| spread.mixture().quantile(spread.grid(), share) / 1e6;
        assert!((ms(0.375) - 50.0).abs() < 2.0 && (ms(0.9) - 150.0).abs() < 5.0, "{}", ms(0.9));
        assert!((spread.mean(KindId::default()) / 1e6 - 75.0).abs() < 2.0);
        assert_eq!(spread.growth().each, 0.05);
        // As many as finish in time on average: k take 150 (0.95 + 0.05 k) at most.
        assert_eq!(profile.max_batch(), 21);
        assert_eq!(read(TWO, 60.0).unwrap().max_batch(), 1, "some of one are in time");
    }

    #[test]
    fn what_cannot_be_is_told_by_its_key() {
        for (text, message) in [
            ("[[alone]]", "f: alone[0].mean_ms: missing"),
            ("[[alone]]\nmean_ms = 0", "f: alone[0].mean_ms: 0 is not a number above 0"),
            ("[[alone]]\nmean_ms = inf", "f: alone[0].mean_ms: inf is not"),
            ("[[alone]]\nmean_ms = 1\ndeviation_ms = -1", "f: alone[0].deviation_ms: -1 is not"),
            ("[[alone]]\nmean_ms = 1\nshare = 0", "f: alone[0].share: 0 is not"),
            ("[[alone]]\nmean_ms = 1\nshare = nan", "f: alone[0].share: NaN is not"),
            ("growth = {}\n[[alone]]\nmean_ms = 1", "f: growth: base and each are zero"),
            ("growth = { each = -1 }\n[[alone]]\nmean_ms = 1", "f: growth.each: -1 is not"),
            ("[[alone]]\nmean_ms = 11", "f: slo_ms: 10 ms is below the 11"),
        ] {
            let said = read(text, 10.0).unwrap_err();
            assert!(said.starts_with(message), "{said}");
        }
        // However wide, small or far apart.
        let odd =
            "[[alone]]\nmean_ms = 1\ndeviation_ms = 1e12\nshare = 1e-6\n[[alone]]\nmean_ms = 2";
        assert!(read(odd, 10.0).unwrap().max_batch() >= 1);
    }

    #[test]
    fn even_numbers_are_normally_distributed() {
        let numbers: Vec<f64> = (0..STEPS * STEPS).map(normal).collect();
        let mean = numbers.iter().sum::<f64>() / RUNS;
        let variance = numbers.iter().map(|number| number.powi(2)).sum::<f64>() / RUNS;
        assert!(mean.abs() < 1e-6, "{mean}");
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
        for (at, below) in [(-1.96, 0.025), (-1.0, 0.1587), (0.0, 0.5), (1.0, 0.8413)] {
            let share = numbers.iter().filter(|&&number| number < at).count() as f64 / RUNS;
            assert!((share - below).abs() < 0.02, "{at}: {share}");
        }
        let few: Vec<f64> = (0..STEPS).map(normal).collect();
        let mean = few.iter().sum::<f64>() / STEPS as f64;
        assert!(mean.abs() < 0.2 && few[0].abs() < 0.2, "{mean} {}", few[0]);
    }
}
