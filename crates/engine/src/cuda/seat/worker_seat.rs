//! A seat as the server sees it: the handle of a worker process.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use super::link::{Link, PATIENCE, unexpected};
use super::model::{LoadedModel, WorkerModel};
use super::workers::Workers;
use crate::cuda::wire::{Question, Reply, SharePlace};
use crate::{Cut, Engine, EngineError, Gpu, Memory, Model, Pressure, Seat, Source};

/// The name of this engine, which is also written to kept profiles.
pub const NAME: &str = "cuda";

impl Workers {
    /// Starts a seat on a GPU. It has the whole GPU at first.
    pub fn seat(self: &Arc<Self>, gpu: &Gpu) -> Result<Arc<dyn Seat>, EngineError> {
        Ok(Arc::new(WorkerSeat::start(self.clone(), gpu.clone())?))
    }
}

/// A seat whose batches run in a worker process.
struct WorkerSeat {
    gpu: Gpu,
    workers: Arc<Workers>,
    state: Mutex<State>,
    next_model: AtomicU32,
}

struct State {
    link: Arc<Link>,
    /// Loaded models by file, so that a second request for a file does not load it again.
    models: HashMap<PathBuf, (Option<SystemTime>, Weak<LoadedModel>)>,
    /// The share that it has; `None` for the whole GPU.
    share: Option<(Cut, usize)>,
    closed: bool,
}

impl WorkerSeat {
    fn start(workers: Arc<Workers>, gpu: Gpu) -> Result<Self, EngineError> {
        let link = workers.spawn(&gpu)?;
        workers.seat_opened();
        let state = State { link, models: HashMap::new(), share: None, closed: false };
        Ok(Self { gpu, workers, state: Mutex::new(state), next_model: AtomicU32::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self) -> Arc<Link> {
        self.lock().link.clone()
    }
}

impl Drop for WorkerSeat {
    fn drop(&mut self) {
        self.close();
    }
}

impl Engine for WorkerSeat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> String {
        let share = |(cut, part): &(Cut, usize)| cut.multiprocessors()[*part];
        let count = self.lock().share.as_ref().map_or(self.gpu.multiprocessors, share);
        self.gpu.share_name(count)
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn load(&self, source: &Source) -> Result<Arc<dyn Model>, EngineError> {
        let written = source.file.metadata().and_then(|file| file.modified()).ok();
        let mut state = self.lock();
        state.models.retain(|_, (_, model)| model.strong_count() > 0);
        if let Some((then, model)) = state.models.get(&source.file)
            && *then == written
            && let Some(model) = model.upgrade()
            && model.is_on(&state.link)
        {
            return Ok(Arc::new(WorkerModel::new(model)));
        }
        let link = state.link.clone();
        // Loading takes seconds, and other threads need the lock in the meantime.
        drop(state);
        let number = self.next_model.fetch_add(1, Ordering::Relaxed);
        let key = (source.file.clone(), written, self.gpu.name.clone());
        let model = Arc::new(LoadedModel::load(link, number, source, key, self.workers.clone())?);
        self.lock().models.insert(source.file.clone(), (written, Arc::downgrade(&model)));
        Ok(Arc::new(WorkerModel::new(model)))
    }
}

impl Seat for WorkerSeat {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn prepare_share(&self, cut: &Cut, part: usize) -> Result<(), EngineError> {
        self.link().ask(share(cut, part, false)).map(drop)
    }

    fn set_share(&self, cut: &Cut, part: usize) -> Result<(), EngineError> {
        self.link().ask(share(cut, part, true))?;
        self.lock().share = Some((cut.clone(), part));
        Ok(())
    }

    fn is_lost(&self) -> bool {
        self.link().is_lost()
    }

    fn restart(&self) -> Result<(), EngineError> {
        // The earlier worker may be stuck rather than ended.
        self.link().end();
        let link = self.workers.spawn(&self.gpu)?;
        let cut = self.lock().share.clone();
        if let Some((cut, part)) = cut {
            // Kill the new worker on an error, or no handle to it would be left.
            link.ask(share(&cut, part, true)).inspect_err(|_| link.end())?;
        }
        let mut state = self.lock();
        state.link = link;
        state.models.clear();
        Ok(())
    }

    fn close(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.closed, true) {
            state.link.end();
            self.workers.seat_closed();
        }
    }

    fn memory(&self) -> Result<Memory, EngineError> {
        let link = self.link();
        let asked = link.ask_later(Question::Memory)?;
        match link.wait_for(asked, PATIENCE)? {
            Reply::Memory { free, total } => Ok(Memory { used: total.saturating_sub(free), total }),
            reply => Err(unexpected(&reply)),
        }
    }

    fn press(&self, what: Pressure, time: Duration) -> Result<f64, EngineError> {
        match self.link().ask(Question::Press { what, seconds: time.as_secs_f64() })? {
            Reply::Pressed { rate } => Ok(rate),
            reply => Err(unexpected(&reply)),
        }
    }
}

fn share(cut: &Cut, part: usize, takes: bool) -> Question {
    Question::Share { place: SharePlace::of(cut, part), takes }
}
