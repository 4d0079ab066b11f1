//! What the frontends ask of the server, whatever their protocol.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fermata_protocol::proto;

use crate::fleet::Fleet;
use crate::gpu::{By, Gpus, Recut, RecutError};
use crate::inference::InferError;
use crate::loader::Loader;
use crate::pool::Pool;
use crate::registry::{Registry, Versions};
use crate::repository::{Repository, RepositoryError};
use crate::served::Served;
use crate::statistics;

/// The models that are served. Shared by the frontends; cheap to ask.
#[derive(Debug)]
pub struct Service {
    repository: Repository,
    loader: Arc<Loader>,
    registry: Registry,
    /// What became of each model that was ever loaded, for the index.
    states: Mutex<BTreeMap<String, State>>,
    /// Loads and unloads take turns, so that two of one model cannot mix.
    turn: tokio::sync::Mutex<()>,
    started: AtomicBool,
    draining: AtomicBool,
}

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

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Loading,
    Ready(Vec<u64>),
    /// A model that could not be loaded; what was served of it before still is.
    Failed(String),
    Unloading(Vec<u64>),
    Unloaded(Vec<u64>),
}

impl Service {
    /// A server without models.
    pub fn new(repository: Repository, loader: Loader) -> Self {
        Self {
            repository,
            loader: Arc::new(loader),
            registry: Registry::default(),
            states: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            started: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        }
    }

    /// Nothing is run to learn from any more.
    pub(crate) fn stop_learning(&self) {
        if let Some(online) = &self.loader.online {
            online.stop();
        }
    }

    /// Where its models are from.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The pools in which they run.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.loader.pools()
    }

    /// The pools of emulated executors.
    pub fn fleet(&self) -> &Fleet {
        &self.loader.emulated
    }

    /// The GPUs, where it has any.
    pub fn gpus(&self) -> Option<&Arc<Gpus>> {
        self.loader.gpus.as_ref()
    }

    /// Cuts a GPU into other shares, while nobody loads or unloads models.
    pub async fn recut(
        self: &Arc<Self>,
        gpu: usize,
        percents: Vec<u32>,
    ) -> Result<Recut, RecutError> {
        self.recut_by(gpu, percents, By::Hand).await
    }

    /// The same, for whoever wants it.
    pub(crate) async fn recut_by(
        self: &Arc<Self>,
        gpu: usize,
        percents: Vec<u32>,
        by: By,
    ) -> Result<Recut, RecutError> {
        let service = self.clone();
        // A task of its own: a client that goes away must not leave half a cut behind.
        let recut = tokio::spawn(async move {
            let _turn = service.take_turn().await;
            let held = service.clone();
            let recut = tokio::task::spawn_blocking(move || match held.gpus() {
                Some(gpus) => gpus.recut(gpu, &percents, by),
                None => Err(RecutError::Unknown { gpu, there: "none (--gpus)".to_owned() }),
            });
            recut.await
        });
        let failed = |error: tokio::task::JoinError| RecutError::Failed {
            reason: error.to_string(),
            now: "unknown".to_owned(),
        };
        recut.await.unwrap_or_else(Err).map_err(failed)?
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Nobody loads or unloads a model while this is held.
    pub(crate) async fn take_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Whether all models that should be served are, and the server is not draining.
    pub fn is_ready(&self) -> bool {
        let failed = |state: &State| matches!(state, State::Failed(_));
        self.started.load(Ordering::Acquire)
            && !self.is_draining()
            && !self.states.lock().expect("nothing panics with it").values().any(failed)
    }

    /// The models of the beginning are there, or could not be loaded.
    pub(crate) fn set_started(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// Whether the server is about to stop: it finishes what it has, and is not ready for more.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// A served version; the newest, if `version` is empty. The error says which of name and version is
    /// unknown, or why a known model is not served.
    pub fn model(&self, name: &str, version: &str) -> Result<Arc<Served>, InferError> {
        let unknown = match self.registry.get(name, version) {
            Ok(served) => return Ok(served),
            Err(unknown) => unknown,
        };
        let states = self.states.lock().expect("nothing panics with it");
        Err(match states.get(name) {
            Some(State::Loading) => {
                InferError::Unavailable(format!("model '{name}' is being loaded"))
            }
            Some(State::Failed(reason)) => {
                InferError::Unavailable(format!("model '{name}' could not be loaded: {reason}"))
            }
            Some(State::Unloading(_) | State::Unloaded(_)) => {
                InferError::Unavailable(format!("model '{name}' is not loaded"))
            }
            Some(State::Ready(_)) | None => unknown,
        })
    }

    /// All served versions, by name.
    pub fn models(&self) -> Vec<Arc<Served>> {
        self.registry.all()
    }

    /// Everything in the repository, sorted by name and version.
    pub fn index(&self) -> Vec<IndexEntry> {
        let states = self.states.lock().expect("nothing panics with it").clone();
        let mut entries = Vec::new();
        let entry = |name: &str, version: &str, state: &str, reason: &str| IndexEntry {
            name: name.to_owned(),
            version: version.to_owned(),
            state: state.to_owned(),
            reason: reason.to_owned(),
        };
        for (name, state) in &states {
            let (versions, word, reason) = match state {
                State::Loading => (&[][..], "LOADING", ""),
                State::Ready(versions) => (&versions[..], "READY", ""),
                State::Failed(reason) => (&[][..], "UNAVAILABLE", reason.as_str()),
                State::Unloading(versions) => (&versions[..], "UNLOADING", ""),
                State::Unloaded(versions) => (&versions[..], "UNAVAILABLE", "unloaded"),
            };
            if versions.is_empty() {
                entries.push(entry(name, "", word, reason));
            }
            for version in versions {
                entries.push(entry(name, &version.to_string(), word, reason));
            }
        }
        let names = self.repository.survey().map(|survey| survey.into_keys()).into_iter().flatten();
        for name in names.filter(|name| !states.contains_key(name)) {
            entries.push(entry(&name, "", "", ""));
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries
    }

    /// Loads a model, or loads it again. Returns when it is ready. What was served of it before is served
    /// until then, and stays if the new one cannot be.
    pub async fn load(self: &Arc<Self>, name: &str, files: LoadOverride) -> Result<(), InferError> {
        let (service, name) = (self.clone(), name.to_owned());
        // A task of its own: a client that goes away must not leave half a load behind.
        let load = tokio::spawn(async move { service.load_in_turn(&name, files).await });
        load.await.unwrap_or_else(|error| Err(InferError::Internal(error.to_string())))
    }

    async fn load_in_turn(
        self: &Arc<Self>,
        name: &str,
        files: LoadOverride,
    ) -> Result<(), InferError> {
        let _turn = self.turn.lock().await;
        let before = self.registry.get(name, "").is_ok();
        if !before {
            self.set_state(name, State::Loading);
        }
        let (service, known) = (self.clone(), name.to_owned());
        let load = tokio::task::spawn_blocking(move || {
            let entry = service.repository.read(&known, &files)?;
            service.loader.load(&entry, &service.registry)
        });
        let loaded = load.await.unwrap_or_else(|error| {
            let what = format!("model '{name}'");
            Err(RepositoryError::Override { what, reason: error.to_string() })
        });
        match loaded {
            Ok(versions) => {
                let numbers: Vec<u64> = versions.keys().copied().collect();
                tracing::info!(model = name, versions = ?numbers, "ready");
                self.registry.set(name, versions);
                self.set_state(name, State::Ready(numbers));
                Ok(())
            }
            Err(error) => {
                tracing::error!(model = name, %error, "cannot be loaded");
                let known = self.repository.survey().is_ok_and(|all| all.contains_key(name));
                if !before && known {
                    self.set_state(name, State::Failed(error.to_string()));
                } else if !before {
                    self.forget(name);
                }
                Err(InferError::Invalid(format!("model '{name}' cannot be loaded: {error}")))
            }
        }
    }

    /// Stops serving a model. Returns when its last request has left.
    pub async fn unload(self: &Arc<Self>, name: &str) -> Result<(), InferError> {
        let (service, name) = (self.clone(), name.to_owned());
        let unload = tokio::spawn(async move { service.unload_in_turn(&name).await });
        unload.await.unwrap_or_else(|error| Err(InferError::Internal(error.to_string())))
    }

    async fn unload_in_turn(&self, name: &str) -> Result<(), InferError> {
        let _turn = self.turn.lock().await;
        let before = self.registry.set(name, Versions::new());
        if before.is_empty() {
            let known = self.states.lock().expect("nothing panics with it").contains_key(name);
            return if known {
                Ok(())
            } else {
                Err(InferError::Unknown(format!("unknown model '{}'", name.escape_debug())))
            };
        }
        let numbers: Vec<u64> = before.keys().copied().collect();
        self.set_state(name, State::Unloading(numbers.clone()));
        for served in before.into_values() {
            let gone = served.gone();
            drop(served);
            gone.await;
        }
        tracing::info!(model = name, "unloaded");
        self.set_state(name, State::Unloaded(numbers));
        Ok(())
    }

    /// Forgets a model whose folder is gone.
    pub(crate) fn forget(&self, name: &str) {
        self.states.lock().expect("nothing panics with it").remove(name);
    }

    fn set_state(&self, name: &str, state: State) {
        self.states.lock().expect("nothing panics with it").insert(name.to_owned(), state);
    }

    /// The statistics of one model or of all (`name` empty), of one version or of all.
    pub fn statistics(
        &self,
        name: &str,
        version: &str,
    ) -> Result<Vec<proto::ModelStatistics>, InferError> {
        let mut all = self.registry.all();
        if !name.is_empty() {
            self.model(name, version)?;
            all.retain(|served| {
                served.name == name && (version.is_empty() || served.version == version)
            });
        }
        Ok(all.iter().map(|served| statistics::of(served)).collect())
    }
}
