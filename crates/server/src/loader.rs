//! Makes a model of the repository ready to be served: read, warmed, profiled, placed in a pool.
//!
//! Everything here is slow, and happens off the way of requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fermata_core::Span;
use fermata_dispatch::ModelSpec;
use fermata_engine::{Emulated, Engine, EngineError, Model, Source};
use fermata_pool::{MakeSession, Place, PlaceError, Pool, Profiles};
use fermata_repository::{
    Device, EngineKind, ModelEntry, RepositoryError, Resolved, Version, resolve,
};

use crate::fleet::Fleet;
use crate::gpu::{Gpus, LoadError, OnGpu, OnGpus};
use crate::kinds::Kinds;
use crate::metrics::ModelMetrics;
use crate::profiler::online::{Alone, Online, OnlineProfile};
use crate::profiler::{self, Known, Planned, Watch, followed};
use crate::registry::{Registry, Versions};
use crate::served::Served;

/// Loads models into pools.
pub struct Loader {
    /// The engine for model files; without it, only emulated models can be served.
    pub engine: Result<Box<dyn Engine>, EngineError>,
    /// Where model files run.
    pub cpu: Arc<Pool>,
    /// Where emulated models run.
    pub emulated: Fleet,
    /// Where model files run that are not to stay on the processors, where there are any.
    pub(crate) gpus: Option<Arc<Gpus>>,
    /// Threads that one session may use.
    pub threads: usize,
    /// Runs requests again to learn what they take, where that is done.
    pub(crate) online: Option<Online>,
}

impl Loader {
    /// The pools that there are.
    pub(crate) fn pools(&self) -> Vec<Arc<Pool>> {
        let mut pools = self.emulated.pools();
        pools.insert(0, self.cpu.clone());
        pools.extend(self.gpus.as_ref().map(|gpus| gpus.pool().clone()));
        pools
    }

    /// Makes all chosen versions of a model ready. Counters go on from those of `served`.
    pub(crate) fn load(
        &self,
        entry: &ModelEntry,
        served: &Registry,
    ) -> Result<Versions, RepositoryError> {
        let mut versions = Versions::new();
        for version in &entry.versions {
            versions.insert(version.number, self.load_version(entry, version, served)?);
        }
        Ok(versions)
    }

    fn load_version(
        &self,
        entry: &ModelEntry,
        version: &Version,
        served: &Registry,
    ) -> Result<Arc<Served>, RepositoryError> {
        let mut on_gpus = None;
        let (resolved, place, online) = match (&entry.settings.engine, self.gpus_for(entry)?) {
            (EngineKind::Emulated(_), _) => {
                let resolved = resolve(entry, None)?;
                let (place, online) = self.place_emulated(entry, &resolved, served)?;
                (resolved, place, online)
            }
            (EngineKind::OnnxRuntime, Some(gpus)) => {
                let (resolved, place, online, model) = self.place_on(gpus, entry, version)?;
                on_gpus = Some(model);
                (resolved, place, online)
            }
            (EngineKind::OnnxRuntime, None) => self.place_file(entry, version)?,
        };
        for note in &resolved.notes {
            tracing::info!(model = entry.name, "{note}");
        }
        let number = version.number.to_string();
        let max_batch = resolved.signature.max_batch.max(1);
        let metrics = match served.get(&entry.name, &number) {
            Ok(before) if before.metrics.fits(resolved.slo, max_batch) => before.metrics.clone(),
            _ => Arc::new(ModelMetrics::new(resolved.slo, max_batch)),
        };
        let ready = Arc::new(Served::new(
            entry.name.clone(),
            number,
            resolved.signature,
            Duration::from_nanos(resolved.slo.0),
            resolved.config,
            resolved.labels,
            memory(entry, version),
            metrics,
            place,
            Arc::new(online),
        ));
        if let Some(model) = on_gpus {
            model.serve(&ready);
        }
        Ok(ready)
    }

    fn place_emulated(
        &self,
        entry: &ModelEntry,
        resolved: &Resolved,
        served: &Registry,
    ) -> Result<(Place, OnlineProfile), RepositoryError> {
        let EngineKind::Emulated(profile) = &resolved.engine else {
            unreachable!("an emulated model stays one");
        };
        let model = Emulated::new(resolved.signature.clone(), profile.clone())
            .with_alone_input(resolved.alone_input);
        let signature = resolved.signature.clone();
        let make: Arc<MakeSession> = Arc::new(move |_| model.session(&signature));
        let known = Known::of(profile.clone(), entry.settings.run_time);
        let spec = Arc::new(ModelSpec::uniform(resolved.slo, known.profile.clone()));
        let online = self.online_profile(entry, known, make.clone(), Watch::Wall);
        let pool = self.emulated.room_for(&entry.name, entry.settings.memory, &served.all());
        let pool =
            pool.map_err(|error| RepositoryError::layout(&entry.folder, error.to_string()))?;
        // What is emulated is as fast as it says.
        let place = pool.add(&entry.name, spec, make, Profiles::True);
        Ok((place.map_err(|error| refused(entry, &error))?, online))
    }

    /// What is learned of a model's requests from now on.
    fn online_profile(
        &self,
        entry: &ModelEntry,
        known: Known,
        make: Arc<MakeSession>,
        watch: Watch,
    ) -> OnlineProfile {
        let Known { rule, ledger, .. } = known;
        let alone = Alone { make, watch, ledger };
        let samples = self.online.as_ref().map(Online::samples);
        OnlineProfile::new(&entry.name, Kinds::new(rule), entry.settings.run_time, alone, samples)
    }

    /// The GPUs that a model's file is to run on, if any.
    fn gpus_for(&self, entry: &ModelEntry) -> Result<Option<&Arc<Gpus>>, RepositoryError> {
        match (entry.settings.device, &self.gpus) {
            (Some(Device::Cpu), _) => Ok(None),
            (Some(Device::Gpu), None) => {
                let reason =
                    "is to run on a GPU (device = \"gpu\"), and the server has none: --gpus";
                Err(RepositoryError::layout(&entry.folder, reason))
            }
            (_, gpus) => Ok(gpus.as_ref()),
        }
    }

    fn place_on(
        &self,
        gpus: &Arc<Gpus>,
        entry: &ModelEntry,
        version: &Version,
    ) -> Result<(Resolved, Place, OnlineProfile, Arc<OnGpus>), RepositoryError> {
        let source = self.source(entry, version);
        let ready = gpus.load(entry, source, |signature| resolve(entry, Some(signature)));
        let OnGpu { resolved, known, spec, model } = ready.map_err(|error| match error {
            LoadError::Repository(error) => error,
            LoadError::Engine(error) => broken(entry, &error),
        })?;
        check_speed(entry, profiler::shortest_of(&spec).unwrap_or(Span::MAX), resolved.slo)?;
        let place = gpus.place(&model, spec).map_err(|error| refused(entry, &error))?;
        let online = self.online_profile(entry, known, gpus.alone(&model), Watch::Wall);
        Ok((resolved, place, online, model))
    }

    fn source(&self, entry: &ModelEntry, version: &Version) -> Source {
        let memory = Some(entry.settings.memory).filter(|&bytes| bytes > 0);
        Source { file: version.file.clone(), threads: self.threads, memory }
    }

    fn place_file(
        &self,
        entry: &ModelEntry,
        version: &Version,
    ) -> Result<(Resolved, Place, OnlineProfile), RepositoryError> {
        let engine = self.engine.as_deref().map_err(|error| broken(entry, error))?;
        let source = self.source(entry, version);
        let model = engine.load(&source).map_err(|error| broken(entry, &error))?;
        let resolved = resolve(entry, Some(model.signature()))?;
        let mut first =
            model.session(&resolved.signature).map_err(|error| broken(entry, &error))?;
        let known = profiler::cached_or_measured(
            engine,
            &source,
            first.as_mut(),
            &resolved.signature,
            resolved.slo,
            &resolved.shapes,
            entry.settings.run_time,
            // Whoever computes on this machine's processors may have to wait for one.
            Watch::Thread,
        )
        .map_err(|error| broken(entry, &error))?;
        let (slo, profile) = (resolved.slo, known.profile.clone());
        check_speed(entry, profiler::shortest(&profile), slo)?;
        let spec = Arc::new(ModelSpec::uniform(slo, profile.clone()));
        let (sizes, shapes) = (profile.max_batch(), resolved.shapes.clone());
        let alone: Arc<MakeSession> = Arc::new({
            let (model, signature) = (model.clone(), resolved.signature.clone());
            move |_| model.session(&signature)
        });
        let online = self.online_profile(entry, known, alone, Watch::Thread);
        let (signature, first) = (resolved.signature.clone(), Mutex::new(Some(first)));
        // The one that was measured has run every batch size already.
        let make = Arc::new(move |_| match first.lock().expect("nothing panics with it").take() {
            Some(first) => Ok(first),
            None => {
                let mut session = model.session(&signature)?;
                profiler::warm(session.as_mut(), &signature, sizes, &shapes)?;
                Ok(session)
            }
        });
        let place = self.cpu.add(&entry.name, spec, make, followed(Planned::Tail));
        Ok((resolved, place.map_err(|error| refused(entry, &error))?, online))
    }
}

/// Refuses a model of which no request could be in time.
fn check_speed(entry: &ModelEntry, shortest: Span, slo: Span) -> Result<(), RepositoryError> {
    if shortest <= slo {
        return Ok(());
    }
    let (needed, asked) = (shortest.as_ms(), slo.as_ms());
    let reason = format!("one request takes {needed:.3} ms, which is longer than slo_ms = {asked}");
    Err(RepositoryError::layout(&entry.folder, reason))
}

/// Bytes that a version takes where it is held: those of its file, unless its settings say
/// something else.
fn memory(entry: &ModelEntry, version: &Version) -> u64 {
    match (entry.settings.memory, &entry.settings.engine) {
        (0, EngineKind::OnnxRuntime) => version.file.metadata().map_or(0, |file| file.len()),
        (given, _) => given,
    }
}

fn broken(entry: &ModelEntry, error: &EngineError) -> RepositoryError {
    match error {
        EngineError::Load { file, reason } => RepositoryError::layout(file, reason.clone()),
        EngineError::Library(reason) | EngineError::Lost(reason) | EngineError::Run(reason) => {
            RepositoryError::layout(&entry.folder, reason.clone())
        }
    }
}

fn refused(entry: &ModelEntry, error: &PlaceError) -> RepositoryError {
    match error {
        PlaceError::Session(error) => broken(entry, error),
        _ => RepositoryError::layout(&entry.folder, error.to_string()),
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("threads", &self.threads).finish_non_exhaustive()
    }
}
