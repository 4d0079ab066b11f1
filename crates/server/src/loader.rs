//! Makes a model of the repository ready to be served: read, warmed, profiled, placed in a pool.
//!
//! Everything here is slow, and happens off the way of requests.

use std::sync::Arc;
use std::time::Duration;

use fermata_dispatch::ModelSpec;
use fermata_engine::{Emulated, Engine, EngineError, Model, Session, Source};

use crate::metrics::ModelMetrics;
use crate::pool::{Place, PlaceError, Pool};
use crate::profiler::{self, Corrector};
use crate::registry::{Registry, Versions};
use crate::repository::{EngineKind, ModelEntry, RepositoryError, Resolved, Version, resolve};
use crate::served::Served;

/// Loads models into pools.
pub struct Loader {
    /// The engine for model files; without it, only emulated models can be served.
    pub engine: Result<Box<dyn Engine>, EngineError>,
    /// Where model files run.
    pub cpu: Arc<Pool>,
    /// Where emulated models run.
    pub emulated: Arc<Pool>,
    /// Threads that one session may use.
    pub threads: usize,
}

impl Loader {
    /// The pools.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        [&self.cpu, &self.emulated].into_iter()
    }

    /// Makes all chosen versions of a model ready. Counters go on from those of `served`.
    pub(crate) fn load(
        &self,
        entry: &ModelEntry,
        served: &Registry,
    ) -> Result<Versions, RepositoryError> {
        let mut versions = Versions::new();
        for version in &entry.versions {
            let ready = self.load_version(entry, version, served)?;
            versions.insert(version.number, Arc::new(ready));
        }
        Ok(versions)
    }

    fn load_version(
        &self,
        entry: &ModelEntry,
        version: &Version,
        served: &Registry,
    ) -> Result<Served, RepositoryError> {
        let (resolved, place) = match &entry.settings.engine {
            EngineKind::Emulated(_) => {
                let resolved = resolve(entry, None)?;
                let place = self.place_emulated(entry, &resolved)?;
                (resolved, place)
            }
            EngineKind::OnnxRuntime => self.place_file(entry, version)?,
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
        Ok(Served::new(
            entry.name.clone(),
            number,
            resolved.signature,
            Duration::from_nanos(resolved.slo.0),
            resolved.config,
            resolved.labels,
            metrics,
            place,
        ))
    }

    fn place_emulated(
        &self,
        entry: &ModelEntry,
        resolved: &Resolved,
    ) -> Result<Place, RepositoryError> {
        let EngineKind::Emulated(profile) = &resolved.engine else {
            unreachable!("an emulated model stays one");
        };
        let model = Emulated::new(resolved.signature.clone(), profile.clone());
        let sessions = sessions(&model, resolved, self.emulated.executors(), None)
            .map_err(|error| broken(entry, &error))?;
        let spec = ModelSpec::uniform(resolved.slo, profile.clone());
        // What is emulated is as fast as it says.
        self.emulated.add(&entry.name, spec, sessions, None).map_err(|error| refused(entry, &error))
    }

    fn place_file(
        &self,
        entry: &ModelEntry,
        version: &Version,
    ) -> Result<(Resolved, Place), RepositoryError> {
        let engine = self.engine.as_deref().map_err(|error| broken(entry, error))?;
        let source = Source { file: version.file.clone(), threads: self.threads };
        let model = engine.load(&source).map_err(|error| broken(entry, &error))?;
        let resolved = resolve(entry, Some(model.signature()))?;
        let mut first =
            model.session(&resolved.signature).map_err(|error| broken(entry, &error))?;
        let profile = profiler::cached_or_measured(
            engine,
            &source,
            first.as_mut(),
            &resolved.signature,
            resolved.slo,
            &resolved.shapes,
        )
        .map_err(|error| broken(entry, &error))?;
        let slo = resolved.slo;
        if profile.shortest() > slo {
            let (needed, asked) = (profile.shortest().as_ms(), slo.as_ms());
            let reason =
                format!("one request takes {needed:.3} ms, which is longer than slo_ms = {asked}");
            return Err(RepositoryError::layout(&entry.folder, reason));
        }
        let sizes = profile.max_batch();
        let mut all = sessions(model.as_ref(), &resolved, self.cpu.executors() - 1, Some(sizes))
            .map_err(|error| broken(entry, &error))?;
        all.push(first);
        let spec = ModelSpec::uniform(slo, profile.clone());
        let corrector = Corrector::new(profile, slo);
        let place = self.cpu.add(&entry.name, spec, all, Some(corrector));
        Ok((resolved, place.map_err(|error| refused(entry, &error))?))
    }
}

/// So many sessions, in which every batch size up to `warm` has run once.
fn sessions(
    model: &dyn Model,
    resolved: &Resolved,
    count: usize,
    warm: Option<usize>,
) -> Result<Vec<Box<dyn Session>>, EngineError> {
    let mut sessions = Vec::with_capacity(count);
    for _ in 0..count {
        let mut session = model.session(&resolved.signature)?;
        if let Some(sizes) = warm {
            profiler::warm(session.as_mut(), &resolved.signature, sizes, &resolved.shapes)?;
        }
        sessions.push(session);
    }
    Ok(sessions)
}

fn broken(entry: &ModelEntry, error: &EngineError) -> RepositoryError {
    match error {
        EngineError::Load { file, reason } => RepositoryError::layout(file, reason.clone()),
        EngineError::Library(reason) | EngineError::Run(reason) => {
            RepositoryError::layout(&entry.folder, reason.clone())
        }
    }
}

fn refused(entry: &ModelEntry, error: &PlaceError) -> RepositoryError {
    RepositoryError::layout(&entry.folder, error.to_string())
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("threads", &self.threads).finish_non_exhaustive()
    }
}
