//! One model of a repository as its folder says: versions, configuration, settings, labels.
//!
//! Nothing is loaded here: whether the model's file agrees is found by `resolve`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use fermata_protocol::proto::{self, model_version_policy::PolicyChoice};

use super::error::RepositoryError;
use super::folder::{TemporaryFolder, inside};
use super::note::Note;
use super::settings::{Defaults, EngineKind, Settings};
use super::{config, format};

const CONFIG_NAME: &str = "config.pbtxt";
const MODEL_NAME: &str = "model.onnx";

/// A model that can be loaded, as far as its folder tells.
#[derive(Clone, Debug)]
pub struct ModelEntry {
    /// Its name, which is its folder's.
    pub name: String,
    /// Where it is.
    pub folder: PathBuf,
    /// The versions that should be served, by rising number; never empty.
    pub versions: Vec<Version>,
    /// Its configuration as it is written; `None` without a `config.pbtxt`.
    pub config: Option<proto::ModelConfig>,
    /// What Fermata was told of it.
    pub settings: Settings,
    /// The names of classes by output, for those that have a label file.
    pub labels: BTreeMap<String, Vec<String>>,
    /// What has no effect.
    pub notes: Vec<Note>,
    /// Where the configuration is from, for messages.
    pub(super) config_file: PathBuf,
    /// Holds the files that came with a request to load the model.
    pub(super) temporary: Option<Arc<TemporaryFolder>>,
}

/// One version of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number, which is its folder's name.
    pub number: u64,
    /// Its model file. An emulated model need not have one.
    pub file: PathBuf,
}

/// The parts of a model that need not be in its folder.
#[derive(Default)]
pub(super) struct Parts {
    /// In place of the folder's `config.pbtxt`.
    pub(super) config: Option<proto::ModelConfig>,
    /// In place of the folder's `fermata.toml`.
    pub(super) settings: Option<Settings>,
    /// What the folder belongs to.
    pub(super) temporary: Option<Arc<TemporaryFolder>>,
}

impl ModelEntry {
    /// Reads the model `name` in `folder`.
    pub(super) fn read(
        name: &str,
        folder: &Path,
        defaults: &Defaults,
        parts: Parts,
    ) -> Result<Self, RepositoryError> {
        let (config, config_file) = match parts.config {
            Some(config) => (Some(config), PathBuf::from("config")),
            None => (read_config(&folder.join(CONFIG_NAME))?, folder.join(CONFIG_NAME)),
        };
        let mut settings = match parts.settings {
            Some(settings) => settings,
            None => Settings::read(folder, defaults)?,
        };
        let mut notes = Vec::new();
        if let Some(config) = &config {
            settings.device = settings.device.or_else(|| config::device(config));
            notes = config::check(config, &config_file, name)?;
            if settings.engine == EngineKind::OnnxRuntime {
                config::check_platform(config, &config_file)?;
            }
        }
        let mut labels = BTreeMap::new();
        for output in config.iter().flat_map(|config| &config.output) {
            if !output.label_filename.is_empty() {
                labels.insert(output.name.clone(), read_labels(folder, &config_file, output)?);
            }
        }
        let mut entry = Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            versions: Vec::new(),
            config,
            settings,
            labels,
            notes,
            config_file,
            temporary: parts.temporary,
        };
        entry.versions = entry.choose_versions()?;
        Ok(entry)
    }

    /// Whether its files came with a request, rather than from a repository.
    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    fn choose_versions(&mut self) -> Result<Vec<Version>, RepositoryError> {
        let emulated = matches!(self.settings.engine, EngineKind::Emulated(_));
        let mut numbers = version_numbers(&self.folder)?;
        if numbers.is_empty() && emulated {
            numbers.push(1);
        }
        if numbers.is_empty() {
            let reason = format!("has no version: a folder such as '1' with a {MODEL_NAME}");
            return Err(RepositoryError::layout(&self.folder, reason));
        }
        let chosen = self.apply_policy(&numbers)?;
        let file =
            |number: u64| self.model_file(number, emulated).map(|file| Version { number, file });
        chosen.into_iter().map(file).collect()
    }

    /// Which of these versions are served.
    fn apply_policy(&mut self, numbers: &[u64]) -> Result<Vec<u64>, RepositoryError> {
        let policy = self.config.as_ref().and_then(|config| config.version_policy.as_ref());
        let latest = |count: usize| numbers[numbers.len().saturating_sub(count)..].to_vec();
        match policy.and_then(|policy| policy.policy_choice.as_ref()) {
            None => Ok(latest(1)),
            Some(PolicyChoice::All(_)) => Ok(numbers.to_vec()),
            // Zero is what the format has for a number that was not given.
            Some(PolicyChoice::Latest(policy)) => Ok(latest(policy.num_versions.max(1) as usize)),
            Some(PolicyChoice::Specific(policy)) => {
                let wanted = |number: &u64| policy.versions.contains(&(*number as i64));
                let found: Vec<u64> = numbers.iter().copied().filter(wanted).collect();
                let missing =
                    |version: &&i64| !found.iter().any(|&number| number as i64 == **version);
                let missing: Vec<&i64> = policy.versions.iter().filter(missing).collect();
                const KEY: &str = "version_policy.specific.versions";
                if found.is_empty() {
                    let reason = format!("none of {:?} is there", policy.versions);
                    return Err(RepositoryError::key(&self.config_file, KEY, reason));
                }
                self.notes.extend(
                    missing
                        .into_iter()
                        .map(|version| Note::new(KEY, format!("{version} is not there"))),
                );
                Ok(found)
            }
        }
    }

    fn model_file(&self, number: u64, emulated: bool) -> Result<PathBuf, RepositoryError> {
        let given =
            self.config.as_ref().map_or("", |config| config.default_model_filename.as_str());
        let name = match given {
            "" => PathBuf::from(MODEL_NAME),
            given => inside(given).ok_or_else(|| {
                let reason =
                    format!("'{}' is not a file in a version's folder", given.escape_default());
                RepositoryError::key(&self.config_file, "default_model_filename", reason)
            })?,
        };
        let folder = self.folder.join(number.to_string());
        let file = folder.join(&name);
        // Triton's place for a model whose weights are in files of their own.
        let within = file.join(name.file_name().unwrap_or_default());
        match (file.is_file(), within.is_file()) {
            (true, _) => Ok(file),
            (_, true) => Ok(within),
            _ if emulated => Ok(file),
            _ => Err(RepositoryError::layout(&folder, format!("has no {}", name.display()))),
        }
    }
}

fn read_config(file: &Path) -> Result<Option<proto::ModelConfig>, RepositoryError> {
    match fs::read_to_string(file) {
        Ok(text) => format::from_text(file, &text).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RepositoryError::read(file, &error)),
    }
}

/// One class a line.
fn read_labels(
    folder: &Path,
    config_file: &Path,
    output: &proto::ModelOutput,
) -> Result<Vec<String>, RepositoryError> {
    let key = || format!("output '{}': label_filename", output.name);
    let Some(path) = inside(&output.label_filename) else {
        let reason = format!(
            "'{}' is not a file in the model's folder",
            output.label_filename.escape_default()
        );
        return Err(RepositoryError::key(config_file, key(), reason));
    };
    let text = fs::read_to_string(folder.join(&path)).map_err(|error| {
        RepositoryError::key(
            config_file,
            key(),
            format!("{} cannot be read: {error}", path.display()),
        )
    })?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The versions in a model's folder, by rising number. Like Triton, ignores names that are no number or begin
/// with zero.
fn version_numbers(folder: &Path) -> Result<Vec<u64>, RepositoryError> {
    let entries = fs::read_dir(folder).map_err(|error| RepositoryError::read(folder, &error))?;
    let mut numbers = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| RepositoryError::read(folder, &error))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let digits = name.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with('0');
        // The protocol's versions are signed.
        if let (true, Ok(number)) = (digits && entry.path().is_dir(), name.parse::<i64>()) {
            numbers.push(number.unsigned_abs());
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}
