//! A model that is open on a worker, and the batches on their way there and back.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use fermata_core::Span;

use super::link::{Link, PATIENCE, Pending, unexpected};
use crate::cuda::wire::{Form, Granularity, Head, Question, Region, Reply, Tuning};
use crate::onnx::session::check_inputs;
use crate::{Ended, EngineError, Inputs, Outputs, Running, Signature, Tensor};

/// A model that is open on a worker, with the memory through which its batches go.
pub(super) struct OpenedModel {
    link: Arc<Link>,
    model: u32,
    pub(super) signature: Signature,
    form: Form,
    /// The way to run it and the sizes that are captured; `None` if it cannot be captured.
    pub(super) captured: Option<(Tuning, Granularity)>,
    region: Region,
    /// Kept open: the worker opens the memory through its descriptor.
    _file: File,
    /// Slots that are free.
    free: (Sender<usize>, Receiver<usize>),
    /// Sizes that have run.
    warm: Mutex<BTreeSet<usize>>,
}

impl OpenedModel {
    pub(super) fn new(
        link: &Arc<Link>,
        model: u32,
        signature: &Signature,
        file: &Path,
        known: Option<(Tuning, Granularity)>,
    ) -> Result<Self, EngineError> {
        let wrong = |reason| EngineError::Load { file: file.to_owned(), reason };
        // A model that cannot be captured is opened a second time, to run without capture.
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
                Ok(reply) => return Err(unexpected(&reply)),
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
        Err(wrong("it can run neither captured nor uncaptured".to_owned()))
    }

    /// Checks a batch, writes it to a free slot, and asks the worker to run it. Waits for a slot.
    pub(super) fn begin(
        self: &Arc<Self>,
        batch: &[Inputs],
    ) -> Result<Box<dyn Running>, EngineError> {
        let signature = &self.signature;
        if batch.is_empty() || batch.len() > self.form.largest {
            let (size, largest) = (batch.len(), self.form.largest);
            return Err(EngineError::Run(format!(
                "a batch of {size} where {largest} is the largest"
            )));
        }
        for inputs in batch {
            check_inputs(&signature.inputs, signature.max_batch > 0, inputs)
                .and_then(|()| signature.check_length(inputs))
                .map_err(EngineError::Run)?;
        }
        let slot = self.free.1.recv().expect("it holds the other end itself");
        let slot = HeldSlot { opened: self.clone(), slot };
        let size = batch.len();
        let heads = self.gather(slot.slot, batch)?;
        let question = Question::Run { model: self.model, slot: slot.slot, size, heads };
        let pending = self.link.ask_later(question)?;
        Ok(Box::new(PendingBatch { slot, size, pending }))
    }

    /// The size at which a batch of `size` items runs.
    pub(super) fn size_of(&self, size: usize) -> usize {
        self.captured.map_or(size, |(_, granularity)| granularity.size(size, self.form.largest))
    }

    /// Whether batches of a size have run.
    pub(super) fn is_warm(&self, size: usize) -> bool {
        let size = self.size_of(size);
        self.warm.lock().unwrap_or_else(PoisonError::into_inner).contains(&size)
    }

    fn note_warm(&self, size: usize) {
        let size = self.size_of(size);
        self.warm.lock().unwrap_or_else(PoisonError::into_inner).insert(size);
    }

    /// Writes the inputs of a batch to a slot. Returns their heads for a model that is not
    /// captured.
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

    /// Reads the outputs of a batch from a slot.
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

/// A slot in use. It becomes free when this is dropped.
struct HeldSlot {
    opened: Arc<OpenedModel>,
    slot: usize,
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let _ = self.opened.free.0.send(self.slot);
    }
}

/// A batch that the worker was asked to run.
struct PendingBatch {
    slot: HeldSlot,
    size: usize,
    pending: Pending,
}

impl Running for PendingBatch {
    fn wait(self: Box<Self>) -> Result<Ended, EngineError> {
        let Self { slot, size, pending } = *self;
        match slot.opened.link.wait_for(pending, PATIENCE)? {
            Reply::Ran { ns, heads } => {
                slot.opened.note_warm(size);
                let outputs = slot.opened.scatter(slot.slot, size, heads);
                Ok(Ended { outputs, took: Span(ns) })
            }
            reply => Err(unexpected(&reply)),
        }
    }
}
