//! Latencies that were measured: the JSON of `fermata profile`, a file that the server keeps beside
//! a model, or one by shares of a GPU.

use std::fs;
use std::path::Path;

use fermata_core::Profile;
use fermata_files::{Measured as OnShares, MeasuredFile, span};
use fermata_server::profiler::{Latency, Measured, Planned, Stop};
use serde::Deserialize;
use serde_json::Value;

/// What such a file has, of what is needed here.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    /// From `fermata profile --json`: one for each model.
    Reports(Vec<Report>),
    /// As it is kept.
    Kept(Kept),
}

#[derive(Deserialize)]
struct Report {
    name: String,
    planned_ms: Vec<f64>,
}

#[derive(Deserialize)]
struct Kept {
    #[serde(default)]
    key: KeptKey,
    limit_ms: f64,
    batches: Vec<KeptRow>,
}

#[derive(Default, Deserialize)]
struct KeptKey {
    #[serde(default)]
    engine: String,
}

#[derive(Deserialize)]
struct KeptRow {
    median_ms: f64,
    tail_ms: f64,
}

/// What a file says of a model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Read {
    /// How long batches take.
    Table(Profile),
    /// How long they take on shares of a GPU.
    Shares(OnShares),
}

/// The profile of a model in a file; else why there is none.
pub(super) fn read(file: &Path, model: &str) -> Result<Read, String> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let unknown = || format!("{shown}: is not what fermata profile --json writes, or keeps");
    let value: Value = serde_json::from_str(&text).map_err(|_| unknown())?;
    let read = if value.get("shares").is_some() {
        let file: Result<MeasuredFile, _> = serde_json::from_value(value);
        file.map_err(|error| error.to_string()).and_then(|file| file.check()).map(Read::Shares)
    } else {
        let profile = match serde_json::from_value(value).map_err(|_| unknown())? {
            Written::Reports(reports) => of_reports(&reports, model),
            Written::Kept(kept) => kept.profile(),
        };
        profile.map(Read::Table)
    };
    read.map_err(|reason| format!("{shown}: {reason}"))
}

/// The report of that name; the only one, whatever its name.
fn of_reports(reports: &[Report], model: &str) -> Result<Profile, String> {
    let report = match reports {
        [only] => only,
        several => several.iter().find(|report| report.name == model).ok_or_else(|| {
            let names: Vec<&str> = several.iter().map(|report| report.name.as_str()).collect();
            format!("has no model '{model}', but '{}'", names.join("', '"))
        })?,
    };
    let spans = report.planned_ms.iter().map(|&ms| span(ms)).collect::<Result<Vec<_>, String>>()?;
    Profile::from_table(spans).map_err(|error| error.to_string())
}

impl Kept {
    fn profile(&self) -> Result<Profile, String> {
        let latency = |row: &KeptRow| {
            let (median, tail) = (span(row.median_ms)?, span(row.tail_ms)?);
            Ok(Latency { mean: median, median, tail, runs: 1 })
        };
        let batches = self.batches.iter().map(latency).collect::<Result<Vec<_>, String>>()?;
        if batches.is_empty() {
            return Err("has no batches".to_owned());
        }
        let measured = Measured { batches, stop: Stop::Limit, limit: span(self.limit_ms)? };
        // As a server plans with it.
        let on_gpu = self.key.engine == fermata_engine::cuda::NAME;
        Ok(measured.profile(if on_gpu { Planned::Median } else { Planned::Tail }))
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::Span;

    use super::*;

    fn read_text(text: &str, model: &str) -> Result<Profile, String> {
        let file = std::env::temp_dir().join(format!("fermata-profile-{}", std::process::id()));
        fs::write(&file, text).unwrap();
        let read = read(&file, model);
        fs::remove_file(&file).unwrap();
        let profile = read.map(|read| match read {
            Read::Table(profile) => profile,
            Read::Shares(measured) => measured.on_share(100),
        });
        profile.map_err(|reason| reason.replace(&file.display().to_string(), "F"))
    }

    #[test]
    fn what_the_profiler_writes_and_keeps_is_read() {
        let two = r#"[{"name": "a", "planned_ms": [1.5]}, {"name": "b", "planned_ms": [2, 3]}]"#;
        assert_eq!(read_text(two, "b").unwrap().latency(2), Span::from_ms(3.0));
        let reason = read_text(two, "c").unwrap_err();
        assert_eq!(reason, "F: has no model 'c', but 'a', 'b'");
        let kept = r#"{"format": 1, "limit_ms": 50, "batches": [{"median_ms": 1, "tail_ms": 2}]}"#;
        assert_eq!(read_text(kept, "any").unwrap().latency(1), Span::from_ms(2.0));
        let reason = read_text(r#"[{"name": "a", "planned_ms": [-1]}]"#, "a").unwrap_err();
        assert_eq!(reason, "F: -1 is no latency in milliseconds");
        assert!(read_text("{}", "a").unwrap_err().contains("fermata profile"));
        let reason = read_text(r#"{"shares": []}"#, "a").unwrap_err();
        assert_eq!(reason, "F: missing field `format`");
    }
}
