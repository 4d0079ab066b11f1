//! The files that `fermata bench gpu` leaves, which planning and simulation read: how long batches
//! of a model take on shares of a GPU, and what neighbours on one GPU do to each other.

use std::fs;
use std::path::Path;

use fermata_core::{Profile, Span};
use fermata_plan::shares::{Coefficients, Grid, Usage};
use serde::{Deserialize, Serialize};

/// The only format so far.
pub const FORMAT: u32 = 1;

/// The name of the file of neighbours, beside those of the models.
pub const INTERFERENCE: &str = "interference.json";

/// A model's latencies by batch size and share, as they are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredFile {
    /// The format: [`FORMAT`].
    pub format: u32,
    /// The model.
    pub model: String,
    /// The GPU.
    pub device: String,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// Of the weights: `fp16`, `fp32`.
    pub precision: String,
    /// The sizes that were measured.
    pub batches: Vec<usize>,
    /// The sizes that the engine runs: it pads others up to the next of them. None, if it runs all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captured: Vec<usize>,
    /// One row a share.
    pub shares: Vec<ShareRow>,
    /// What it uses of what shares have in common, on a whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageRow>,
}

/// Latencies on one share, by the sizes of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShareRow {
    /// The share, of the whole GPU.
    pub percent: u32,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// What half of the batches do not exceed, by size.
    pub median_ms: Vec<f64>,
    /// What 99 % of the batches do not exceed, by size.
    pub tail_ms: Vec<f64>,
}

/// `Usage`, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Of the L2 cache's bandwidth.
    pub l2: f64,
    /// Of the memory's bandwidth.
    pub dram: f64,
}

/// `Coefficients`, as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoefficientsRow {
    /// For its own use of the L2 cache.
    pub own_l2: f64,
    /// For its neighbour's use of the L2 cache.
    pub other_l2: f64,
    /// For its own use of the memory.
    pub own_dram: f64,
    /// For its neighbour's use of the memory.
    pub other_dram: f64,
    /// What is there without any use.
    pub constant: f64,
}

/// What is known of a model on shares of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What half of the batches do not exceed: what a server plans with on a GPU, where the next
    /// batch waits if one takes longer.
    medians: Grid,
    /// What it uses of what shares have in common.
    pub usage: Option<Usage>,
}

impl Measured {
    /// How long batches take on a share of so many percent.
    pub fn on_share(&self, percent: u32) -> Profile {
        self.medians.on_share(percent)
    }
}

impl MeasuredFile {
    /// What the file says, if it makes sense.
    pub fn check(&self) -> Result<Measured, String> {
        if self.format != FORMAT {
            return Err(format!("format {}: only {FORMAT} is known", self.format));
        }
        // Tails are for people, but a file in which they are wrong is not to be trusted.
        self.tails()?;
        let medians = self.medians()?;
        let usage = self.usage.map(UsageRow::check).transpose()?;
        Ok(Measured { medians, usage })
    }

    /// What half of the batches do not exceed: how fast the model is when nobody disturbs it.
    pub fn medians(&self) -> Result<Grid, String> {
        self.grid(|row| &row.median_ms)
    }

    /// What 99 % of the batches do not exceed.
    pub fn tails(&self) -> Result<Grid, String> {
        self.grid(|row| &row.tail_ms)
    }

    fn grid(&self, latencies: impl Fn(&ShareRow) -> &[f64]) -> Result<Grid, String> {
        let row = |row: &ShareRow| {
            let spans: Result<Vec<Span>, String> =
                latencies(row).iter().map(|&ms| span(ms)).collect();
            Ok((row.percent, spans?))
        };
        let rows = self.shares.iter().map(row).collect::<Result<Vec<_>, String>>()?;
        let grid = Grid::new(&self.batches, &rows).and_then(|grid| grid.padded_to(&self.captured));
        grid.map_err(|error| error.to_string())
    }
}

impl UsageRow {
    fn check(self) -> Result<Usage, String> {
        let Self { l2, dram } = self;
        let sound = [l2, dram].iter().all(|part| (0.0..=1.0).contains(part));
        sound.then_some(Usage { l2, dram }).ok_or("usage: l2 and dram are from 0 to 1".to_owned())
    }
}

impl From<Coefficients> for CoefficientsRow {
    fn from(from: Coefficients) -> Self {
        let Coefficients { own_l2, other_l2, own_dram, other_dram, constant } = from;
        Self { own_l2, other_l2, own_dram, other_dram, constant }
    }
}

/// A latency as files have it, if it is one.
pub fn span(ms: f64) -> Result<Span, String> {
    let sound = (0.0..=1e9).contains(&ms);
    sound.then(|| Span::from_ms(ms)).ok_or_else(|| format!("{ms} is no latency in milliseconds"))
}

/// How long batches take on a whole GPU whose engine runs every size, linear between the measured
/// ones; else why that is not known.
pub fn read_unpadded(file: &Path) -> Result<Profile, String> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let read: MeasuredFile =
        serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}"))?;
    let unpadded = MeasuredFile { captured: Vec::new(), ..read };
    let measured = unpadded.check().map_err(|reason| format!("{shown}: {reason}"))?;
    Ok(measured.on_share(100))
}

/// The coefficients of a file of neighbours; else why there are none.
pub fn read_interference(file: &Path) -> Result<Coefficients, String> {
    /// What such a file has, of what is needed here.
    #[derive(Deserialize)]
    struct Raw {
        format: u32,
        coefficients: CoefficientsRow,
    }
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let raw: Raw = serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}"))?;
    if raw.format != FORMAT {
        return Err(format!("{shown}: format {}: only {FORMAT} is known", raw.format));
    }
    let CoefficientsRow { own_l2, other_l2, own_dram, other_dram, constant } = raw.coefficients;
    let all = [own_l2, other_l2, own_dram, other_dram, constant];
    if let Some(wild) = all.iter().find(|each| each.abs() > 100.0) {
        return Err(format!("{shown}: {wild} is no coefficient"));
    }
    Ok(Coefficients { own_l2, other_l2, own_dram, other_dram, constant })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"format": 1, "model": "m", "device": "a GPU", "multiprocessors": 100,
        "precision": "fp16",
        "batches": [1, 4], "captured": [1, 2, 4],
        "shares": [{"percent": 50, "multiprocessors": 50, "median_ms": [1, 5], "tail_ms": [2, 6]},
                   {"percent": 100, "multiprocessors": 100, "median_ms": [1, 2],
                    "tail_ms": [1, 4]}],
        "usage": {"l2": 0.5, "dram": 0.25}}"#;

    fn read(text: &str) -> Result<Measured, String> {
        serde_json::from_str::<MeasuredFile>(text).map_err(|error| error.to_string())?.check()
    }

    #[test]
    fn without_padding_sizes_in_between_are_on_a_line() {
        let file = std::env::temp_dir().join(format!("fermata-unpadded-{}", std::process::id()));
        fs::write(
            &file,
            FILE.replace("[1, 4], \"captured\": [1, 2, 4]", "[1, 3], \"captured\": [1, 3]"),
        )
        .unwrap();
        let profile = read_unpadded(&file);
        fs::remove_file(&file).unwrap();
        assert_eq!(profile.unwrap().latency(2), Span::from_ms(1.5));
        assert!(read_unpadded(&file).unwrap_err().contains("fermata-unpadded"));
    }

    #[test]
    fn a_file_is_the_medians_by_share_and_the_usage() {
        let measured = read(FILE).unwrap();
        assert_eq!(measured.on_share(50).latency(1), Span::from_ms(1.0));
        // Three are run as four.
        assert_eq!(measured.on_share(100).latency(3), Span::from_ms(2.0));
        assert!(measured.on_share(100).latency(2) < Span::from_ms(2.0));
        assert_eq!(measured.usage, Some(Usage { l2: 0.5, dram: 0.25 }));
        let file: MeasuredFile = serde_json::from_str(FILE).unwrap();
        let again = serde_json::to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<MeasuredFile>(&again).unwrap(), file);
        assert_eq!(file.tails().unwrap().on_share(50).latency(4), Span::from_ms(6.0));
    }

    #[test]
    fn files_that_make_no_sense_are_refused_in_one_line() {
        for (from, to, reason) in [
            ("\"format\": 1", "\"format\": 2", "format 2"),
            ("[1, 5]", "[1]", "50 %"),
            ("[2, 6]", "[2, -6]", "-6"),
            ("\"percent\": 50", "\"percent\": 100", "100 %"),
            ("\"batches\": [1, 4]", "\"batches\": [4, 1]", "ascend"),
            ("\"captured\": [1, 2, 4]", "\"captured\": [2, 2]", "ascend"),
            ("0.25", "1.25", "usage"),
            ("\"shares\"", "\"chairs\"", "shares"),
        ] {
            let error = read(&FILE.replace(from, to)).unwrap_err();
            assert!(error.contains(reason) && !error.contains('\n'), "{to}: {error}");
        }
    }
}
