//! Reads questions and begins batches, on the main thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::fatal::exit_if_fatal;
use super::finisher::StartedBatch;
use super::host::{Host, HostedModel, Opening};
use super::loader::{Batch, Job};
use super::mover::Move;
use super::responder::Responder;
use super::share::CurrentShare;
use super::streams::BatchStreams;
use crate::EngineError;
use crate::cuda::driver::Device;
use crate::cuda::wire::{Question, Reply};

/// What the main thread needs.
pub(super) struct Reader {
    pub(super) device: Device,
    pub(super) host: Arc<Host>,
    pub(super) streams: Arc<BatchStreams>,
    pub(super) responder: Arc<Responder>,
    pub(super) started: Sender<StartedBatch>,
    /// To the loader.
    pub(super) jobs: Sender<Job>,
    /// To the runner.
    pub(super) batches: Sender<Job>,
    pub(super) moves: Sender<Move>,
    pub(super) current: Arc<CurrentShare>,
    pub(super) models: HashMap<u32, Arc<HostedModel>>,
}

impl Reader {
    /// Answers a question, begins its batch, or hands it to another thread.
    pub(super) fn handle(&mut self, id: u64, what: Question) {
        match what {
            Question::Load { model, file, threads, memory } => {
                self.hand_over(Job::Load { id, model, file, threads, memory });
            }
            Question::Open { model, signature, region, form, known } => {
                let Some(hosted) = self.find(id, model) else { return };
                let what = Opening { signature, region, form, known };
                self.hand_over(Job::Open { id, hosted, what });
            }
            Question::Run { model, slot, size, heads } => {
                self.run(id, model, Batch { slot, size, heads });
            }
            Question::Unload { model } => {
                let Some(hosted) = self.find(id, model) else { return };
                self.models.remove(&model);
                self.host.forget(model);
                self.hand_over(Job::Forget { id, hosted });
            }
            Question::Share { place, takes } => {
                let models = self.models.values().cloned().collect();
                // The mover ends with the process only.
                let _ = self.moves.send(Move { id, place, takes, models });
            }
            Question::Memory => {
                let memory = self.device.memory().inspect_err(exit_if_fatal);
                let memory = memory.map_err(EngineError::from);
                self.responder
                    .answer(id, memory.map(|(free, total)| Reply::Memory { free, total }));
            }
            Question::Press { what, seconds } => {
                let time = Duration::from_secs_f64(seconds.clamp(0.0, 60.0));
                self.hand_over(Job::Press { id, what, time });
            }
        }
    }

    fn hand_over(&self, job: Job) {
        // The loader ends with the process only.
        let _ = self.jobs.send(job);
    }

    fn find(&mut self, id: u64, model: u32) -> Option<Arc<HostedModel>> {
        // Most questions are about a model that an earlier question named.
        if let Some(hosted) = self.models.get(&model) {
            return Some(hosted.clone());
        }
        let hosted = self.host.find(model);
        match &hosted {
            Some(hosted) => _ = self.models.insert(model, hosted.clone()),
            None => self
                .responder
                .answer(id, Err(EngineError::Run(format!("there is no model {model}")))),
        }
        hosted
    }

    fn run(&mut self, id: u64, model: u32, batch: Batch) {
        let Some(hosted) = self.find(id, model) else { return };
        let Batch { slot, size, .. } = batch;
        let begun = hosted.with_captured_soon(|model| {
            let captured = model.has(size);
            captured
                .then(|| self.streams.begin(model, hosted.slot(slot), size, &self.current.get()))
        });
        match begun.flatten() {
            Some(Ok(())) => _ = self.started.send(StartedBatch { id, hosted, slot }),
            Some(Err(error)) => {
                exit_if_fatal(&error);
                self.responder.answer(id, Err(error.into()));
            }
            None if batch.heads.is_some() => {
                // The runner ends with the process only.
                let _ = self.batches.send(Job::Run { id, hosted, batch });
            }
            None => self.hand_over(Job::Run { id, hosted, batch }),
        }
    }
}
