//! The models that a worker holds.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use ort::environment::Environment;

use super::captured_model::CapturedModel;
use super::provider::open;
use super::share::CurrentShare;
use super::streams::{BatchEvents, BatchStreams, PlacedSlot, Slot};
use crate::cuda::driver::{Buffer, CudaError, Device, Pinned, Stream};
use crate::cuda::wire::{Form, Granularity, Head, Region, Reply, Tuning};
use crate::onnx::{compatible, file, library, specs};
use crate::{EngineError, Inputs, Session, Signature, Source, Tensor};

/// The models of a worker, by the number that the server gave them.
pub(super) struct Host {
    gpu: usize,
    device: Device,
    environment: Environment,
    models: Mutex<HashMap<u32, Arc<HostedModel>>>,
}

/// A model of a worker.
pub(super) struct HostedModel {
    source: Source,
    /// What runs its batches, if it could be captured. Locked for moments only, except while a size
    /// is captured.
    captured: Mutex<Option<CapturedModel>>,
    /// Whether a size is being captured.
    busy: AtomicBool,
    /// Locked while graphs are made executable on another share, and while the model is dropped:
    /// graphs refer to what its session has loaded.
    moving: Mutex<()>,
    /// What runs its batches otherwise.
    plain: Mutex<Option<Box<dyn Session>>>,
    memory: OnceLock<BatchMemory>,
}

struct BatchMemory {
    form: Form,
    slots: Vec<Slot>,
    // Fields are dropped in this order: memory is unpinned before it is unmapped.
    _pinned: Option<Pinned>,
    region: Region,
}

/// How to make a model ready.
pub(super) struct Opening {
    pub(super) signature: Signature,
    /// The shared memory through which its batches come and go.
    pub(super) region: PathBuf,
    /// The layout of batches there.
    pub(super) form: Form,
    /// The tuning and the sizes to capture, if another seat has found them.
    pub(super) known: Option<(Tuning, Granularity)>,
}

impl Host {
    pub(super) fn new(
        gpu: usize,
        device: Device,
        folders: &[PathBuf],
    ) -> Result<Self, EngineError> {
        let environment = library::environment(folders)?;
        Ok(Self { gpu, device, environment, models: Mutex::default() })
    }

    pub(super) fn find(&self, model: u32) -> Option<Arc<HostedModel>> {
        self.lock().get(&model).cloned()
    }

    pub(super) fn forget(&self, model: u32) {
        self.lock().remove(&model);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<HostedModel>>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a model, far enough to know its signature. It is read on the processor, which takes no
    /// memory of the GPU.
    pub(super) fn load(
        &self,
        model: u32,
        file: PathBuf,
        threads: usize,
        memory: Option<u64>,
    ) -> Result<Signature, EngineError> {
        let source = Source { file, threads, memory };
        let wrong = |reason| EngineError::Load { file: source.file.clone(), reason };
        let read = file::read(&self.environment, &source).map_err(wrong)?;
        let signature = file::signature(specs::read(&read).map_err(wrong)?);
        drop(read);
        let hosted = HostedModel {
            source,
            captured: Mutex::default(),
            busy: AtomicBool::new(false),
            moving: Mutex::default(),
            plain: Mutex::default(),
            memory: OnceLock::new(),
        };
        self.lock().insert(model, Arc::new(hosted));
        Ok(signature)
    }

    /// Makes a model ready. Returns its tuning and the sizes that are captured, if it can be
    /// captured.
    pub(super) fn open(
        &self,
        hosted: &HostedModel,
        what: Opening,
    ) -> Result<Option<(Tuning, Granularity)>, EngineError> {
        let Opening { signature, region, form, known } = what;
        let wrong = |reason| EngineError::Load { file: hosted.source.file.clone(), reason };
        let region =
            Region::open(&region, form.bytes()).map_err(|error| wrong(error.to_string()))?;
        let fixed = Form::fixed(&signature).as_ref() == Some(&form);
        let (captured, slots, pinned) = if fixed {
            let granularity = known.map(|(_, granularity)| granularity);
            let capture =
                |ways: &[(Tuning, f32)]| self.capture(hosted, &signature, &form, granularity, ways);
            let mut captured = None;
            if let Some((tuning, _)) = known {
                // The best tuning of another seat may fail here.
                captured = capture(&[(tuning, 1.0)]).unwrap_or(None);
            }
            if captured.is_none() {
                captured = capture(&Tuning::CANDIDATES)?;
            }
            let Some((tuning, model)) = captured else { return Ok(None) };
            let captured = (tuning, model.granularity());
            let pinned = Pinned::new(region.start(), form.bytes())?;
            let slot = |_| Ok(Slot { stage: Buffer::new(form.slot)?, events: BatchEvents::new()? });
            let slots = (0..form.slots).map(slot).collect::<Result<Vec<_>, CudaError>>()?;
            *hosted.captured.lock().unwrap_or_else(PoisonError::into_inner) = Some(model);
            (Some(captured), slots, Some(pinned))
        } else {
            let source = &hosted.source;
            let session = open(&self.environment, source, self.gpu, Tuning::default(), None);
            let session = session
                .and_then(|session| crate::onnx::make_ready(session, &signature))
                .map_err(wrong)?;
            *hosted.plain.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
            (None, Vec::new(), None)
        };
        match hosted.memory.set(BatchMemory { form, slots, _pinned: pinned, region }) {
            Ok(()) => Ok(captured),
            Err(_) => Err(wrong("it is open already".to_owned())),
        }
    }

    /// The model in the fastest of the candidate tunings; `None` if no tuning can be captured.
    fn capture(
        &self,
        hosted: &HostedModel,
        signature: &Signature,
        form: &Form,
        known: Option<Granularity>,
        candidates: &[(Tuning, f32)],
    ) -> Result<Option<(Tuning, CapturedModel)>, EngineError> {
        let size = TRIED_SIZE.min(form.largest);
        let mut best: Option<(f32, Tuning, CapturedModel)> = None;
        let mut wrong = None;
        for &(tuning, worth) in candidates {
            let timed =
                self.not_captured_yet(hosted, signature, form, tuning).and_then(|mut model| {
                    model.capture_first(size, known)?;
                    Ok((model.time(size, &self.device)?, model))
                });
            match timed {
                // Compiling its kernels for the other tunings too would take longer than it could
                // gain.
                Ok((_, model)) if best.is_none() && model.granularity() == Granularity::Coarse => {
                    return Ok(Some((tuning, model)));
                }
                Ok((ms, model)) if best.as_ref().is_none_or(|(least, ..)| ms < worth * least) => {
                    best = Some((ms, tuning, model));
                }
                Ok(_) => {}
                Err(error) => {
                    if std::env::var_os("ORT_LOG").is_some() {
                        eprintln!("fermata gpu-worker: {}: {error}", hosted.source.file.display());
                    }
                    wrong = wrong.or(Some(error));
                }
            }
        }
        match (best, wrong) {
            (Some((_, tuning, model)), _) => Ok(Some((tuning, model))),
            // A file that cannot be opened cannot run uncaptured either.
            (None, Some(error @ EngineError::Load { .. })) => Err(error),
            (None, _) => Ok(None),
        }
    }

    /// The model in one tuning, with nothing captured yet.
    fn not_captured_yet(
        &self,
        hosted: &HostedModel,
        signature: &Signature,
        form: &Form,
        tuning: Tuning,
    ) -> Result<CapturedModel, EngineError> {
        let (environment, source, gpu) =
            (self.environment.clone(), hosted.source.clone(), self.gpu);
        let expected = signature.clone();
        let open = move |stream: &Stream| {
            let wrong = |reason| EngineError::Load { file: source.file.clone(), reason };
            let session = open(&environment, &source, gpu, tuning, Some(stream)).map_err(wrong)?;
            // The file may have been replaced.
            compatible::check(&specs::read(&session).map_err(wrong)?, &expected).map_err(wrong)?;
            Ok(session)
        };
        CapturedModel::new(Box::new(open), signature.clone(), form, self.gpu)
    }
}

/// Marks a model as busy for as long as this value exists.
struct Busy<'a>(&'a AtomicBool);

impl<'a> Busy<'a> {
    fn new(busy: &'a AtomicBool) -> Self {
        busy.store(true, Ordering::SeqCst);
        Self(busy)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// The batch size at which tunings are compared.
const TRIED_SIZE: usize = 8;

impl HostedModel {
    /// The layout of batches, a slot of the GPU, and the address of the slot in shared memory.
    ///
    /// # Panics
    ///
    /// If the model is not open, or there is no such slot.
    pub(super) fn slot(&self, slot: usize) -> PlacedSlot<'_> {
        let BatchMemory { form, slots, region, .. } = self.memory.get().expect("it is open");
        let start = region.start() as u64 + (slot * form.slot) as u64;
        PlacedSlot { form, slot: &slots[slot], start }
    }

    /// Begins a batch of a size that never ran, or runs a batch that cannot be captured. The reply
    /// is there if the batch has ended.
    pub(super) fn run_slowly(
        &self,
        streams: &BatchStreams,
        (slot, size): (usize, usize),
        heads: Option<Vec<Vec<Head>>>,
        current: &CurrentShare,
    ) -> Result<Option<Reply>, EngineError> {
        if let Some(heads) = heads {
            return self.run_plainly(slot, &heads).map(Some);
        }
        let _busy = Busy::new(&self.busy);
        let mut captured = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        let model =
            captured.as_mut().ok_or_else(|| EngineError::Run("it is not open".to_owned()))?;
        if !model.has(size) {
            // All sizes of a model share its memory.
            streams.compute.wait()?;
            model.capture(size)?;
        }
        // The model is still locked here, so the share is read now: the mover may have changed it.
        streams.begin(model, self.slot(slot), size, &current.get())?;
        Ok(None)
    }

    fn run_plainly(&self, slot: usize, heads: &[Vec<Head>]) -> Result<Reply, EngineError> {
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        let session =
            plain.as_mut().ok_or_else(|| EngineError::Run("it is not open".to_owned()))?;
        let BatchMemory { form, region, .. } = self.memory.get().expect("it is open");
        let start = slot * form.slot;
        let mut at = start + form.inputs[0].at;
        let mut tensor = |head: &Head| {
            let data = Bytes::copy_from_slice(region.read(at, head.bytes));
            at += head.bytes;
            Tensor { datatype: head.datatype, shape: head.shape.clone(), data }
        };
        let batch: Vec<Inputs> =
            heads.iter().map(|item| item.iter().map(&mut tensor).collect()).collect();
        let began = Instant::now();
        let items = session.run(&batch)?;
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let bytes: usize = items.iter().flatten().map(|tensor| tensor.data.len()).sum();
        if bytes > form.outputs[0].item {
            return Err(EngineError::Run(format!("{bytes} bytes of outputs are too many")));
        }
        let mut at = start + form.outputs[0].at;
        let mut put = |tensor: &Tensor| {
            region.write(at, &tensor.data);
            at += tensor.data.len();
            Head {
                datatype: tensor.datatype,
                shape: tensor.shape.clone(),
                bytes: tensor.data.len(),
            }
        };
        let heads = items.iter().map(|item| item.iter().map(&mut put).collect()).collect();
        Ok(Reply::Ran { ns, heads: Some(heads) })
    }

    /// Locks the model against being dropped.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like `with_captured`, but returns `None` while a size is being captured, which takes long.
    pub(super) fn with_captured_soon<T>(
        &self,
        what: impl FnOnce(&mut CapturedModel) -> T,
    ) -> Option<T> {
        loop {
            match self.captured.try_lock() {
                Ok(mut captured) => return captured.as_mut().map(what),
                Err(_) if self.busy.load(Ordering::SeqCst) => return None,
                // The lock is held for a moment only.
                Err(_) => thread::yield_now(),
            }
        }
    }

    /// Applies a function to the captured model, if there is one.
    pub(super) fn with_captured<T>(&self, what: impl FnOnce(&mut CapturedModel) -> T) -> Option<T> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(what)
    }

    /// Frees its memory. The slots stay until the last batch that uses them has ended.
    pub(super) fn free(&self) {
        let _moving = self.hold();
        *self.captured.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.plain.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
