//! What the frontends ask of the server, whatever their protocol.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::inference::InferError;
use crate::proto;
use crate::served::Served;

/// The models that are served. Shared by the frontends; cheap to ask.
#[derive(Debug, Default)]
pub struct Service {}

/// What comes with a request to load a model: files in place of those of the repository.
#[derive(Clone, Debug, Default)]
pub struct LoadOverride {
    /// The model's configuration as JSON, in place of its `config.pbtxt`.
    pub config: Option<String>,
    /// Files by path, such as `1/model.onnx`, in place of the model's folder.
    pub files: BTreeMap<String, Bytes>,
}

/// A model of the repository, served or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its name.
    pub name: String,
    /// Its version; empty if none could be read.
    pub version: String,
    /// `READY`, `LOADING`, `UNLOADING` or `UNAVAILABLE`; empty if it was never loaded.
    pub state: String,
    /// Why it is not ready.
    pub reason: String,
}

impl Service {
    /// Whether all models that should be served are, and the server is not draining.
    pub fn is_ready(&self) -> bool {
        false
    }

    /// A served version; the newest, if `version` is empty. The error says which of name and version is
    /// unknown.
    pub fn model(&self, name: &str, _version: &str) -> Result<Arc<Served>, InferError> {
        Err(InferError::Unknown(format!("unknown model '{name}'")))
    }

    /// Everything in the repository, sorted by name and version.
    pub fn index(&self) -> Vec<IndexEntry> {
        Vec::new()
    }

    /// Loads a model, or loads it again. Returns when it is ready.
    pub async fn load(&self, _name: &str, _files: LoadOverride) -> Result<(), InferError> {
        Ok(())
    }

    /// Stops serving a model. Returns when its last request has left.
    pub async fn unload(&self, _name: &str) -> Result<(), InferError> {
        Ok(())
    }

    /// The statistics of one model or of all (`name` empty), of one version or of all.
    pub fn statistics(
        &self,
        _name: &str,
        _version: &str,
    ) -> Result<Vec<proto::ModelStatistics>, InferError> {
        Ok(Vec::new())
    }
}
