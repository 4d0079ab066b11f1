//! The model repository: Triton's layout, read as it is, and `fermata.toml` beside it.
//!
//! `NAME/[config.pbtxt]`, `NAME/[fermata.toml]`, `NAME/VERSION/model.onnx`. Only reading: nothing
//! is loaded, run or kept. A model that is broken is told with its reason and never hides the
//! others.

mod alone;
mod config;
mod entry;
mod error;
mod folder;
mod format;
mod length;
mod note;
mod number;
mod place;
mod poll;
mod resolve;
mod root;
mod settings;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fermata_core::Span;
use fermata_dispatch::Spare;

pub use entry::{ModelEntry, Version};
pub use error::RepositoryError;
pub use note::Note;
pub use poll::{Changes, Fingerprint, Survey, Watch, diff};
pub use resolve::{Resolved, resolve};
pub use settings::{Device, EngineKind, RunTime, Settings};

use entry::Parts;
use folder::{TemporaryFolder, inside};
use root::RootSettings;
use settings::{Defaults, FILE_NAME};

/// One or several folders of models.
#[derive(Clone, Debug)]
pub struct Repository {
    roots: Vec<PathBuf>,
    /// The objective of models for which no file has one.
    slo: Option<Span>,
}

/// What comes with a request to load a model: files in place of those of the repository.
#[derive(Clone, Debug, Default)]
pub struct LoadOverride {
    /// The model's configuration as JSON, in place of its `config.pbtxt`.
    pub config: Option<String>,
    /// Files by path, such as `1/model.onnx`, in place of the model's folder.
    pub files: BTreeMap<String, Bytes>,
}

/// Every model by name: an entry, or what is wrong with it.
pub type Scan = BTreeMap<String, Result<ModelEntry, RepositoryError>>;

impl Repository {
    /// The models of these folders; `slo` is the objective where no file has one.
    pub fn new(roots: Vec<PathBuf>, slo: Option<Span>) -> Self {
        Self { roots, slo }
    }

    /// What spare executors are for, where the repositories say. They have the same pools, so those
    /// that say it must say the same.
    pub fn spare(&self) -> Result<Option<Spare>, RepositoryError> {
        let mut said: Option<(Spare, &Path)> = None;
        for root in &self.roots {
            let Some(spare) = RootSettings::read(root)?.spare else { continue };
            match said {
                Some((other, first)) if other != spare => {
                    let (file, first) = (root.join(FILE_NAME), first.join(FILE_NAME));
                    let (spare, other, first) = (spare.name(), other.name(), first.display());
                    let reason =
                        format!("is {spare} here and {other} in {first}: say --spare, or the same");
                    return Err(RepositoryError::key(&file, "spare", reason));
                }
                _ => said = said.or(Some((spare, root))),
            }
        }
        Ok(said.map(|(spare, _)| spare))
    }

    /// Reads every model. Fails only where a whole repository cannot be read.
    pub fn scan(&self) -> Result<Scan, RepositoryError> {
        let folders = self.folders()?;
        Ok(folders
            .iter()
            .map(|(name, homes)| {
                (name.clone(), self.read_at(name, homes, &LoadOverride::default()))
            })
            .collect())
    }

    /// Looks at every model without reading any. Fails only where a whole repository cannot be
    /// read.
    pub fn survey(&self) -> Result<Survey, RepositoryError> {
        let fingerprint = |(name, homes): (String, Vec<Home<'_>>)| {
            // A model that is in two repositories is mended by removing it from one.
            let first = homes.first().expect("a name is there because a folder has it");
            let others: Vec<PathBuf> = homes[1..].iter().map(|home| home.folder.clone()).collect();
            let defaults = first.root.join(FILE_NAME);
            let others = others.iter().map(PathBuf::as_path).chain([defaults.as_path()]);
            let print = Fingerprint::of(&first.folder, &others.collect::<Vec<_>>());
            (name, print)
        };
        Ok(self.folders()?.into_iter().map(fingerprint).collect())
    }

    /// Reads one model, with what came in place of its files.
    pub fn read(&self, name: &str, instead: &LoadOverride) -> Result<ModelEntry, RepositoryError> {
        let homes = self.folders()?.remove(name).unwrap_or_default();
        self.read_at(name, &homes, instead)
    }

    /// The folders of each name, in the order of the repositories.
    fn folders(&self) -> Result<BTreeMap<String, Vec<Home<'_>>>, RepositoryError> {
        let mut folders: BTreeMap<String, Vec<Home<'_>>> = BTreeMap::new();
        for root in &self.roots {
            let fail = |error| RepositoryError::read(root, &error);
            for entry in fs::read_dir(root).map_err(fail)? {
                let folder = entry.map_err(fail)?.path();
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                if !name.starts_with('.') && folder.is_dir() {
                    folders.entry(name.into_owned()).or_default().push(Home { root, folder });
                }
            }
        }
        Ok(folders)
    }

    fn read_at(
        &self,
        name: &str,
        homes: &[Home<'_>],
        instead: &LoadOverride,
    ) -> Result<ModelEntry, RepositoryError> {
        if let [first, second, ..] = homes {
            let reason = format!("is in another repository too: {}", first.folder.display());
            return Err(RepositoryError::layout(&second.folder, reason));
        }
        let home = homes.first();
        let root = home.map(|home| home.root).or(self.roots.first().map(PathBuf::as_path));
        let repository = root.map_or(Ok(RootSettings::default()), RootSettings::read)?.slo;
        let defaults = Defaults { repository, flag: self.slo };
        let mut parts = Parts {
            config: instead.config.as_deref().map(format::from_json).transpose()?,
            ..Parts::default()
        };
        let folder = match (home, instead.files.is_empty()) {
            (Some(home), true) => home.folder.clone(),
            (None, true) => return Err(self.unknown(name)),
            (_, false) => {
                check_name(name)?;
                let temporary = unpack(instead)?;
                // The objective does not come with the files of most clients, and is still the
                // model's.
                if let (Some(home), false) = (home, instead.files.contains_key(FILE_NAME)) {
                    parts.settings = Some(Settings::read(&home.folder, &defaults)?);
                }
                parts.temporary.insert(Arc::new(temporary)).path().to_owned()
            }
        };
        ModelEntry::read(name, &folder, &defaults, parts)
    }

    fn unknown(&self, name: &str) -> RepositoryError {
        let roots: Vec<String> = self.roots.iter().map(|root| root.display().to_string()).collect();
        let what = format!("model '{}'", name.escape_default());
        RepositoryError::Override { what, reason: format!("is not in {}", roots.join(" or ")) }
    }
}

/// Reads the model of a folder that is in no repository. Its name is the folder's.
pub fn read_model(folder: &Path, slo: Option<Span>) -> Result<ModelEntry, RepositoryError> {
    let whole = folder.canonicalize().map_err(|error| RepositoryError::read(folder, &error))?;
    let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let repository = whole.parent().map_or(Ok(RootSettings::default()), RootSettings::read)?.slo;
    ModelEntry::read(&name, folder, &Defaults { repository, flag: slo }, Parts::default())
}

/// Where a model is.
#[derive(Clone, Debug)]
struct Home<'a> {
    root: &'a Path,
    folder: PathBuf,
}

/// A name that comes from the network must be one that a folder could have.
fn check_name(name: &str) -> Result<(), RepositoryError> {
    let alone = inside(name).is_some_and(|path| path.components().count() == 1);
    match alone && !name.contains(char::is_control) {
        true => Ok(()),
        false => {
            let what = format!("model '{}'", name.escape_default());
            Err(RepositoryError::Override {
                what,
                reason: "is not a name that a model can have".to_owned(),
            })
        }
    }
}

/// Writes the files of a request into a folder of their own.
fn unpack(instead: &LoadOverride) -> Result<TemporaryFolder, RepositoryError> {
    let refuse = |path: &str, reason: String| {
        Err(RepositoryError::Override { what: format!("file:{}", path.escape_default()), reason })
    };
    let folder = match TemporaryFolder::new() {
        Ok(folder) => folder,
        Err(error) => return refuse("", format!("no temporary folder can be made: {error}")),
    };
    for (path, data) in &instead.files {
        let Some(inner) = inside(path) else {
            return refuse(path, "is not a path inside the model's folder".to_owned());
        };
        if let Err(error) = folder.write(&inner, data) {
            return refuse(path, format!("cannot be written: {error}"));
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests;
