//! A seat as the server has it: a worker process, what it is asked, and the batches on their way there and back.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use fermata_core::Span;

use super::link::{Link, Pending};
use super::provider::{Tuning, TuningKey};
use super::region::Region;
use super::wire::{Form, Grain, Head, Place, Question, Reply};
use super::workers::Workers;
use crate::onnx::session::check_inputs;
use crate::{
    Cut, Ended, Engine, EngineError, Gpu, Inputs, Memory, Model, Outputs, Pressure, Running, Seat,
    Session, Signature, Source, Tensor,
};

/// What this engine is called, in kept profiles too.
pub const NAME: &str = "cuda";

/// A seat in a worker process.
pub(super) struct WorkerSeat {
    gpu: Gpu,
    workers: Arc<Workers>,
    state: Mutex<State>,
    next_model: AtomicU32,
}

struct State {
    link: Arc<Link>,
    /// Models that are loaded, by file, so that one that is asked for again is not loaded again.
    models: HashMap<PathBuf, (Option<SystemTime>, Weak<Loaded>)>,
    /// What it was cut to.
    share: Option<(Cut, usize)>,
    closed: bool,
}

impl WorkerSeat {
    pub(super) fn start(workers: Arc<Workers>, gpu: Gpu) -> Result<Self, EngineError> {
        let link = workers.spawn(&gpu)?;
        workers.open();
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

/// A batch that takes longer than this has met a device that hangs. The first of a size may have to be compiled.
const PATIENCE: Duration = Duration::from_secs(120);

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
            && Arc::ptr_eq(&model.link, &state.link)
        {
            return Ok(Arc::new(WorkerModel(model)));
        }
        let link = state.link.clone();
        // Loading takes seconds, and others ask meanwhile.
        drop(state);
        let number = self.next_model.fetch_add(1, Ordering::Relaxed);
        // The worker need not be in the same folder.
        let file = std::path::absolute(&source.file).unwrap_or_else(|_| source.file.clone());
        let (threads, memory) = (source.threads, source.memory);
        let wrong = |error: EngineError| match error {
            EngineError::Run(reason) => EngineError::Load { file: source.file.clone(), reason },
            error => error,
        };
        let loaded =
            link.ask(Question::Load { model: number, file, threads, memory }).map_err(wrong)?;
        let Reply::Loaded { signature } = loaded else { return Err(strange(&loaded)) };
        let model = Loaded {
            link,
            number,
            signature,
            key: (source.file.clone(), written, self.gpu.name.clone()),
            workers: self.workers.clone(),
            opened: Mutex::default(),
        };
        let model = Arc::new(model);
        self.lock().models.insert(source.file.clone(), (written, Arc::downgrade(&model)));
        Ok(Arc::new(WorkerModel(model)))
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
        // The one before may only be stuck.
        self.link().end();
        let link = self.workers.spawn(&self.gpu)?;
        let cut = self.lock().share.clone();
        if let Some((cut, part)) = cut {
            // A worker that nobody has would be left behind.
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
            self.workers.close();
        }
    }

    fn memory(&self) -> Result<Memory, EngineError> {
        let link = self.link();
        let asked = link.ask_later(Question::Memory)?;
        match link.wait_for(asked, PATIENCE)? {
            Reply::Memory { free, total } => Ok(Memory { used: total.saturating_sub(free), total }),
            reply => Err(strange(&reply)),
        }
    }

    fn press(&self, what: Pressure, time: Duration) -> Result<f64, EngineError> {
        match self.link().ask(Question::Press { what, seconds: time.as_secs_f64() })? {
            Reply::Pressed { rate } => Ok(rate),
            reply => Err(strange(&reply)),
        }
    }
}

fn share(cut: &Cut, part: usize, takes: bool) -> Question {
    Question::Share { place: Place::of(cut, part), takes }
}

fn strange(reply: &Reply) -> EngineError {
    EngineError::Run(format!("the worker gave a strange answer: {reply:?}"))
}

/// A model that a worker has read. It is unloaded when nobody has it or a session of it.
struct WorkerModel(Arc<Loaded>);

struct Loaded {
    link: Arc<Link>,
    number: u32,
    signature: Signature,
    /// Its file, and by what it is known in which way it runs.
    key: TuningKey,
    /// Who knows it.
    workers: Arc<Workers>,
    /// What its sessions have in common: one seat runs a batch at a time, whoever begins it.
    opened: Mutex<Option<Arc<Opened>>>,
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
            // Otherwise than it was read: the worker has room for one way to run a model.
            Some(_) => {
                let reason = "it is open with another signature".to_owned();
                return Err(EngineError::Load { file: model.key.0.clone(), reason });
            }
            None => {
                let known = model.workers.tunings.get(&model.key);
                let made = Opened::new(&model.link, model.number, signature, &model.key.0, known)?;
                if let Some(captured) = made.captured {
                    model.workers.tunings.keep(model.key.clone(), captured);
                }
                opened.insert(Arc::new(made)).clone()
            }
        };
        Ok(Box::new(WorkerSession { _model: model.clone(), opened: there }))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Where the worker is gone, so is the model.
        let _ = self.link.ask_later(Question::Unload { model: self.number });
    }
}

/// A model that is ready, and the memory through which its batches go.
struct Opened {
    link: Arc<Link>,
    model: u32,
    signature: Signature,
    form: Form,
    /// In which way and for which sizes it is captured, if it is.
    captured: Option<(Tuning, Grain)>,
    region: Region,
    /// Open for as long as the worker may look for it.
    _file: File,
    /// Slots that nobody uses.
    free: (Sender<usize>, Receiver<usize>),
    /// Sizes that have run.
    warm: Mutex<BTreeSet<usize>>,
}

impl Opened {
    fn new(
        link: &Arc<Link>,
        model: u32,
        signature: &Signature,
        file: &std::path::Path,
        known: Option<(Tuning, Grain)>,
    ) -> Result<Self, EngineError> {
        let wrong = |reason| EngineError::Load { file: file.to_owned(), reason };
        // What cannot be captured is run as it comes.
        let fixed = Form::fixed(signature).map(|form| (form, true));
        for (form, fixed) in fixed.into_iter().chain([(Form::plain(signature), false)]) {
            let region = Region::create(form.bytes());
            let (region, held, path) = region.map_err(|error| wrong(error.to_string()))?;
            let question = Question::Open {
                model,
                signature: signature.clone(),
                region: path,
                form: form.clone(),
                known,
            };
            let captured = match link.ask(question) {
                Ok(Reply::Opened { captured }) => captured,
                Ok(reply) => return Err(strange(&reply)),
                Err(EngineError::Run(reason)) => return Err(wrong(reason)),
                Err(error) => return Err(error),
            };
            if captured.is_some() || !fixed {
                let free = crossbeam_channel::unbounded();
                (0..form.slots).for_each(|slot| _ = free.0.send(slot));
                let (link, signature) = (link.clone(), signature.clone());
                let warm = Mutex::default();
                return Ok(Self {
                    link,
                    model,
                    signature,
                    form,
                    captured,
                    region,
                    _file: held,
                    free,
                    warm,
                });
            }
        }
        Err(wrong("it can neither be captured nor be run as it is".to_owned()))
    }

    /// The size at which a batch of so many runs.
    fn size_of(&self, size: usize) -> usize {
        self.captured.map_or(size, |(_, grain)| grain.size(size, self.form.largest))
    }

    fn note_warm(&self, size: usize) {
        let size = self.size_of(size);
        self.warm.lock().unwrap_or_else(PoisonError::into_inner).insert(size);
    }

    /// Brings a batch together in a slot. What is not captured is described.
    fn gather(&self, slot: usize, batch: &[Inputs]) -> Result<Option<Vec<Vec<Head>>>, EngineError> {
        let start = slot * self.form.slot;
        if self.captured.is_some() {
            for (row, inputs) in batch.iter().enumerate() {
                for (column, input) in self.form.inputs.iter().zip(inputs) {
                    self.region.write(start + column.at + row * column.item, &input.data);
                }
            }
            return Ok(None);
        }
        let bytes: usize = batch.iter().flatten().map(|tensor| tensor.data.len()).sum();
        if bytes > self.form.inputs[0].item {
            return Err(EngineError::Run(format!(
                "{bytes} bytes of inputs are too many for a batch"
            )));
        }
        let mut at = start + self.form.inputs[0].at;
        let mut put = |tensor: &Tensor| {
            self.region.write(at, &tensor.data);
            at += tensor.data.len();
            Head {
                datatype: tensor.datatype,
                shape: tensor.shape.clone(),
                bytes: tensor.data.len(),
            }
        };
        Ok(Some(batch.iter().map(|inputs| inputs.iter().map(&mut put).collect()).collect()))
    }

    /// Takes the outputs out of a slot.
    fn scatter(&self, slot: usize, size: usize, heads: Option<Vec<Vec<Head>>>) -> Vec<Outputs> {
        let start = slot * self.form.slot;
        if let Some(heads) = heads {
            let mut at = start + self.form.outputs[0].at;
            let mut take = |head: Head| {
                let data = Bytes::copy_from_slice(self.region.read(at, head.bytes));
                at += head.bytes;
                Tensor { datatype: head.datatype, shape: head.shape, data }
            };
            return heads
                .into_iter()
                .map(|item| item.into_iter().map(&mut take).collect())
                .collect();
        }
        let batched = self.signature.max_batch > 0;
        let columns: Vec<Bytes> = self
            .form
            .outputs
            .iter()
            .map(|column| {
                Bytes::copy_from_slice(self.region.read(start + column.at, column.item * size))
            })
            .collect();
        let tensor = |row: usize, at: usize| {
            let (spec, item) = (&self.signature.outputs[at], self.form.outputs[at].item);
            let shape =
                batched.then_some(1).into_iter().chain(spec.shape.iter().copied()).collect();
            Tensor {
                datatype: spec.datatype,
                shape,
                data: columns[at].slice(row * item..(row + 1) * item),
            }
        };
        (0..size).map(|row| (0..columns.len()).map(|at| tensor(row, at)).collect()).collect()
    }
}

/// A model made ready on a seat.
struct WorkerSession {
    _model: Arc<Loaded>,
    opened: Arc<Opened>,
}

impl WorkerSession {
    fn begin_batch(&self, batch: &[Inputs]) -> Result<Box<dyn Running>, EngineError> {
        let opened = &self.opened;
        let signature = &opened.signature;
        if batch.is_empty() || batch.len() > opened.form.largest {
            let (size, largest) = (batch.len(), opened.form.largest);
            return Err(EngineError::Run(format!(
                "a batch of {size} where {largest} is the largest"
            )));
        }
        for inputs in batch {
            check_inputs(&signature.inputs, signature.max_batch > 0, inputs)
                .and_then(|()| signature.check_length(inputs))
                .map_err(EngineError::Run)?;
        }
        let slot = opened.free.1.recv().expect("it holds the other end itself");
        let slot = Taken { opened: opened.clone(), slot };
        let size = batch.len();
        let heads = opened.gather(slot.slot, batch)?;
        let question = Question::Run { model: opened.model, slot: slot.slot, size, heads };
        let pending = opened.link.ask_later(question)?;
        Ok(Box::new(Flight { slot, size, pending }))
    }
}

impl Session for WorkerSession {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.begin_batch(batch)?.wait()?.outputs)
    }

    fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
        Some(self.begin_batch(batch))
    }

    fn runs_as(&self, size: usize) -> usize {
        self.opened.size_of(size)
    }

    fn is_warm(&self, size: usize) -> bool {
        let size = self.opened.size_of(size);
        self.opened.warm.lock().unwrap_or_else(PoisonError::into_inner).contains(&size)
    }
}

/// A slot that is used; free again when this is dropped.
struct Taken {
    opened: Arc<Opened>,
    slot: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = self.opened.free.0.send(self.slot);
    }
}

/// A batch on its way.
struct Flight {
    slot: Taken,
    size: usize,
    pending: Pending,
}

impl Running for Flight {
    fn wait(self: Box<Self>) -> Result<Ended, EngineError> {
        let Self { slot, size, pending } = *self;
        match slot.opened.link.wait_for(pending, PATIENCE)? {
            Reply::Ran { ns, heads } => {
                slot.opened.note_warm(size);
                let outputs = slot.opened.scatter(slot.slot, size, heads);
                Ok(Ended { outputs, took: Span(ns) })
            }
            reply => Err(strange(&reply)),
        }
    }
}
