//! A model that a worker has read, as the server holds it.

use std::sync::{Arc, Mutex, PoisonError};

use super::link::{Link, unexpected};
use super::opened::OpenedModel;
use super::tunings::TuningKey;
use super::workers::Workers;
use crate::cuda::wire::{Question, Reply};
use crate::{EngineError, Inputs, Model, Outputs, Running, Session, Signature, Source};

/// A model that a worker has read. The worker unloads it when the last value of it and of its
/// sessions is dropped.
pub(super) struct WorkerModel(Arc<LoadedModel>);

/// What its sessions keep alive.
pub(super) struct LoadedModel {
    link: Arc<Link>,
    number: u32,
    signature: Signature,
    /// Its file, and the key under which the best way to run it is kept.
    key: TuningKey,
    /// Holds the tunings, by key.
    workers: Arc<Workers>,
    /// Shared by its sessions: a seat runs one batch at a time, whichever session began it.
    opened: Mutex<Option<Arc<OpenedModel>>>,
}

impl WorkerModel {
    pub(super) fn new(model: Arc<LoadedModel>) -> Self {
        Self(model)
    }
}

impl LoadedModel {
    /// Asks a worker to read a model.
    pub(super) fn load(
        link: Arc<Link>,
        number: u32,
        source: &Source,
        key: TuningKey,
        workers: Arc<Workers>,
    ) -> Result<Self, EngineError> {
        // The working folder of the worker may be another.
        let file = std::path::absolute(&source.file).unwrap_or_else(|_| source.file.clone());
        let (threads, memory) = (source.threads, source.memory);
        let wrong = |error: EngineError| match error {
            EngineError::Run(reason) => EngineError::Load { file: source.file.clone(), reason },
            error => error,
        };
        let loaded =
            link.ask(Question::Load { model: number, file, threads, memory }).map_err(wrong)?;
        let Reply::Loaded { signature } = loaded else { return Err(unexpected(&loaded)) };
        Ok(Self { link, number, signature, key, workers, opened: Mutex::default() })
    }

    /// Whether the worker at the other end of this link has it.
    pub(super) fn is_on(&self, link: &Arc<Link>) -> bool {
        Arc::ptr_eq(&self.link, link)
    }
}

impl Model for WorkerModel {
    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn session(&self, signature: &Signature) -> Result<Box<dyn Session>, EngineError> {
        let model = &self.0;
        let mut opened = model.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let there = match &*opened {
            Some(there) if there.signature == *signature => there.clone(),
            // The worker keeps one way to run each model, so a second signature is refused.
            Some(_) => {
                let reason = "it is open with another signature".to_owned();
                return Err(EngineError::Load { file: model.key.0.clone(), reason });
            }
            None => {
                let known = model.workers.tunings.get(&model.key);
                let made =
                    OpenedModel::new(&model.link, model.number, signature, &model.key.0, known)?;
                if let Some(captured) = made.captured {
                    model.workers.tunings.keep(model.key.clone(), captured);
                }
                opened.insert(Arc::new(made)).clone()
            }
        };
        Ok(Box::new(WorkerSession { _model: model.clone(), opened: there }))
    }
}

impl Drop for LoadedModel {
    fn drop(&mut self) {
        // If the worker has ended, the model is gone with it.
        let _ = self.link.ask_later(Question::Unload { model: self.number });
    }
}

/// A session of a model. All sessions of a model share what is open on the worker.
struct WorkerSession {
    _model: Arc<LoadedModel>,
    opened: Arc<OpenedModel>,
}

impl Session for WorkerSession {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.opened.begin(batch)?.wait()?.outputs)
    }

    fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
        Some(self.opened.begin(batch))
    }

    fn runs_as(&self, size: usize) -> usize {
        self.opened.size_of(size)
    }

    fn is_warm(&self, size: usize) -> bool {
        self.opened.is_warm(size)
    }
}
