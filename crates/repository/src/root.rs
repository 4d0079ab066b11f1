//! `fermata.toml` at the root of a repository: what counts for all its models and their pools.

use std::path::Path;

use fermata_core::Span;
use fermata_dispatch::Spare;
use serde::Deserialize;

use crate::error::RepositoryError;
use crate::number::positive;
use crate::settings::{FILE_NAME, parse, read_if_there};

/// What the file says. Without the file, nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RootSettings {
    /// The objective of models that have none.
    pub(crate) slo: Option<Span>,
    /// What spare executors are for.
    pub(crate) spare: Option<Spare>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoot {
    spare: Option<String>,
    #[serde(default)]
    defaults: RawDefaults,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDefaults {
    slo_ms: Option<f64>,
}

impl RootSettings {
    /// Reads the file of the repository in `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, RepositoryError> {
        let file = root.join(FILE_NAME);
        let text = read_if_there(&file)?;
        Self::check(&file, text.as_deref().unwrap_or_default())
    }

    fn check(file: &Path, text: &str) -> Result<Self, RepositoryError> {
        let raw: RawRoot = parse(file, text)?;
        let slo_ms = raw.defaults.slo_ms.map(|ms| positive(file, "defaults.slo_ms", ms));
        let spare = raw.spare.map(|name| name.escape_default().to_string().parse()).transpose();
        Ok(Self {
            slo: slo_ms.transpose()?.map(Span::from_ms),
            spare: spare.map_err(|reason: String| RepositoryError::key(file, "spare", reason))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RootSettings, String> {
        let checked = RootSettings::check(Path::new("fermata.toml"), text);
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn a_repository_has_an_objective_and_a_use_for_spare_executors() {
        let (slo, spare) = (Some(Span::from_ms(5.0)), Some(Spare::Release));
        assert_eq!(read(""), Ok(RootSettings::default()));
        assert_eq!(read("[defaults]\nslo_ms = 5"), Ok(RootSettings { slo, spare: None }));
        let text = "spare = \"release\"\n[defaults]\nslo_ms = 5";
        assert_eq!(read(text), Ok(RootSettings { slo, spare }));
    }

    #[test]
    fn bad_values_are_told_by_file_and_key() {
        for (text, reason) in [
            (
                "spare = \"none\"",
                "spare: 'none' is not a use of spare executors: say latency or release",
            ),
            ("spare = \"a\\nb\"", "spare: 'a\\nb' is not a use of spare executors"),
            ("spare = true", "spare: invalid type: boolean `true`, expected a string"),
            ("[defaults]\nspare = \"release\"", "defaults.spare: unknown field `spare`"),
            ("[defaults]\nslo_ms = 0", "defaults.slo_ms: 0 is not a number above 0"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("fermata.toml: "), "{text}: {error}");
            assert!(error.contains(reason) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
