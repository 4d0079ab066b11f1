//! What is measured: every model of a repository, one folder, or one file.

use std::fs;
use std::path::{Path, PathBuf};

use fermata_core::{Profile, Span};
use fermata_engine::Signature;
use fermata_files::InputError;
use fermata_repository::{
    EngineKind, ModelEntry, Repository, RepositoryError, Resolved, read_model, resolve,
};

use super::args::ProfileArgs;

/// One model to measure.
pub(super) struct Subject {
    /// Its name, with the version where there are several.
    pub(super) name: String,
    pub(super) what: What,
}

pub(super) enum What {
    /// Its latencies are known.
    Emulated(Box<Resolved>, Profile),
    File {
        file: PathBuf,
        /// Missing for a file alone.
        entry: Option<Box<ModelEntry>>,
    },
}

/// Everything that the path stands for, each with its own error.
pub(super) fn find(
    args: &ProfileArgs,
    limit: Option<Span>,
) -> anyhow::Result<Vec<anyhow::Result<Subject>>> {
    let path = &args.path;
    let refuse = |name, reason: &str| InputError::Argument { name, reason: reason.to_owned() };
    if !path.is_dir() {
        fs::File::open(path).map_err(|source| InputError::Read { file: path.clone(), source })?;
        if limit.is_none() {
            return Err(refuse("--slo-ms", "missing: a file alone has no SLO").into());
        }
        if !args.model.is_empty() {
            return Err(refuse("--model", "PATH is a file, not a repository").into());
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let what = What::File { file: path.clone(), entry: None };
        return Ok(vec![Ok(Subject { name, what })]);
    }
    if is_model(path) {
        if !args.model.is_empty() {
            return Err(refuse("--model", "PATH is the folder of a model, not a repository").into());
        }
        return Ok(subjects(read_model(path, limit)));
    }
    let mut scan = Repository::new(vec![path.clone()], limit).scan().map_err(broken)?;
    if !args.model.is_empty() {
        if let Some(unknown) = args.model.iter().find(|name| !scan.contains_key(*name)) {
            let known: Vec<&str> = scan.keys().map(String::as_str).collect();
            let reason = format!(
                "'{}' is not in {}: {}",
                unknown.escape_default(),
                path.display(),
                known.join(", ")
            );
            return Err(refuse("--model", &reason).into());
        }
        scan.retain(|name, _| args.model.contains(name));
    }
    if scan.is_empty() {
        return Err(refuse("PATH", &format!("{}: there is no model in it", path.display())).into());
    }
    Ok(scan.into_values().flat_map(subjects).collect())
}

/// What the model's files say together.
pub(super) fn resolve_file(entry: &ModelEntry, file: &Signature) -> Result<Resolved, InputError> {
    resolve(entry, Some(file)).map_err(broken)
}

/// A model's folder has versions or a configuration; one that has neither is emulated, and has
/// nothing else.
fn is_model(folder: &Path) -> bool {
    let names: Vec<(String, bool)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path().is_dir()))
        .filter(|(name, _)| !name.starts_with('.'))
        .collect();
    let has = |wanted: &str| names.iter().any(|(name, _)| name == wanted);
    let version = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    has("config.pbtxt")
        || names.iter().any(|(name, is_folder)| *is_folder && version(name))
        || (has("fermata.toml") && !names.iter().any(|(_, is_folder)| *is_folder))
}

fn subjects(entry: Result<ModelEntry, RepositoryError>) -> Vec<anyhow::Result<Subject>> {
    let entry = match entry {
        Ok(entry) => entry,
        Err(error) => return vec![Err(broken(error).into())],
    };
    if let EngineKind::Emulated(_) = entry.settings.engine {
        let subject = resolve(&entry, None).map_err(broken).map(|resolved| {
            let EngineKind::Emulated(profile) = resolved.engine.clone() else {
                unreachable!("an emulated model stays one");
            };
            let what = What::Emulated(Box::new(resolved), profile);
            Subject { name: entry.name.clone(), what }
        });
        return vec![subject.map_err(Into::into)];
    }
    let several = entry.versions.len() > 1;
    let subject = |version: &fermata_repository::Version| {
        let name = match several {
            true => format!("{}/{}", entry.name, version.number),
            false => entry.name.clone(),
        };
        let what = What::File { file: version.file.clone(), entry: Some(Box::new(entry.clone())) };
        Ok(Subject { name, what })
    };
    entry.versions.iter().map(subject).collect()
}

fn broken(error: RepositoryError) -> InputError {
    InputError::Argument { name: "PATH", reason: error.to_string() }
}
