//! Networks as they were measured on a GPU, for the suites that simulate them.

use std::fs;
use std::path::PathBuf;

use clap::Args as Arguments;
use fermata_files::{INTERFERENCE, InputError, read_unpadded};

use crate::trials::mixes::ZooModel;

/// Where the measured profiles are.
#[derive(Debug, Arguments)]
pub(crate) struct MeasuredArgs {
    /// The folder with the profiles of networks, as `fermata bench gpu` wrote them.
    #[arg(long, value_name = "DIR", env = "FERMATA_PROFILES", default_value = "profiles/h200")]
    profiles: PathBuf,
}

/// Networks by the name of their file.
pub(super) struct MeasuredZoo {
    /// In the order of their names.
    pub(super) models: Vec<ZooModel>,
    folder: PathBuf,
}

impl MeasuredArgs {
    /// Reads all profiles of the folder, on a whole GPU and linear between the measured sizes: what
    /// is asked of these suites was measured so.
    pub(super) fn zoo(&self) -> Result<MeasuredZoo, InputError> {
        let read = |source| InputError::Read { file: self.profiles.clone(), source };
        let entries = fs::read_dir(&self.profiles).map_err(read)?;
        let files: Result<Vec<PathBuf>, _> =
            entries.map(|entry| entry.map(|entry| entry.path())).collect();
        let mut files = files.map_err(read)?;
        files.retain(|file| {
            file.extension().is_some_and(|extension| extension == "json")
                && !file.ends_with(INTERFERENCE)
        });
        files.sort();
        let models = files.iter().map(|file| {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let profile = read_unpadded(file).map_err(refuse)?;
            Ok(ZooModel { name, profile })
        });
        let models = models.collect::<Result<Vec<ZooModel>, InputError>>()?;
        Ok(MeasuredZoo { models, folder: self.profiles.clone() })
    }
}

impl MeasuredZoo {
    /// The network of this name.
    pub(super) fn find(&self, name: &str) -> Result<&ZooModel, InputError> {
        let missing = || refuse(format!("{}: has no {name}.json", self.folder.display()));
        self.models.iter().find(|model| model.name == name).ok_or_else(missing)
    }
}

fn refuse(reason: String) -> InputError {
    InputError::Argument { name: "--profiles", reason }
}
