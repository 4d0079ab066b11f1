//! A model on a worker: captured batch by batch size, and moved from share to share.
//!
//! It is captured on a stream of the whole GPU. What was captured is then made ready on the share that the worker has, as often as
//! that changes; nothing is loaded or captured again.

use std::collections::BTreeMap;
use std::sync::Arc;

use ort::session::{NoSelectedOutputs, RunOptions, Session};

use super::binding::{Binding, Bound};
use super::driver::{Buffer, CudaError, Event, Exec, Graph, Green, Stream};
use super::wire::{Form, captured_size};
use crate::{EngineError, Signature, TensorSpec};

/// The share that a worker has. Each has another number.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) number: u64,
    /// `None`: all of the GPU.
    pub(super) green: Option<Green>,
    pub(super) multiprocessors: u32,
}

/// A model whose batches are captured.
pub(super) struct Net {
    // In this order they are given back: graphs refer to the session's memory.
    sizes: BTreeMap<usize, Captured>,
    session: Session,
    /// On which it is captured.
    stream: Stream,
    options: RunOptions<NoSelectedOutputs>,
    signature: Signature,
    gpu: usize,
    largest: usize,
    pub(super) inputs: Vec<Buffer>,
    pub(super) outputs: Vec<Buffer>,
}

struct Captured {
    graph: Graph,
    /// Where it is ready, and with what it runs.
    ready: Option<(Arc<Share>, Exec)>,
    /// It was run since the share changed.
    used: bool,
    _binding: Binding,
}

/// What ran on a share that is no more, to be given back when its last run has ended.
pub(super) type Old = (Arc<Share>, Exec);

/// Engines are slow the first time, and settle on how to run at the second.
const WARM_UPS: usize = 2;
/// How often a batch is timed to compare ways to run it.
const TIMED: usize = 10;

impl Net {
    /// Of a session that runs on `stream`.
    pub(super) fn new(
        session: Session,
        stream: Stream,
        signature: Signature,
        form: &Form,
        gpu: usize,
    ) -> Result<Self, EngineError> {
        let buffers = |columns: &[super::wire::Column]| {
            columns
                .iter()
                .map(|column| Buffer::new(column.item * form.largest))
                .collect::<Result<Vec<_>, CudaError>>()
        };
        let (inputs, outputs) = (buffers(&form.inputs)?, buffers(&form.outputs)?);
        let mut options = RunOptions::new().map_err(failed)?;
        options.disable_device_sync().map_err(failed)?;
        let sizes = BTreeMap::new();
        let largest = form.largest;
        Ok(Self { sizes, session, stream, options, signature, gpu, largest, inputs, outputs })
    }

    /// The size at which a batch of so many is run.
    pub(super) fn size_of(&self, size: usize) -> usize {
        captured_size(size, self.largest)
    }

    /// Whether batches of so many can be run at once.
    pub(super) fn has(&self, size: usize) -> bool {
        self.sizes.contains_key(&self.size_of(size))
    }

    /// Captures batches of so many. Nothing of this model may run meanwhile.
    pub(super) fn capture(&mut self, size: usize) -> Result<(), EngineError> {
        let size = self.size_of(size);
        let batch = (self.signature.max_batch > 0).then_some(size);
        let bound = |specs: &'_ [TensorSpec], buffers: &[Buffer]| -> Vec<Bound> {
            let both = specs.iter().zip(buffers);
            both.map(|(spec, buffer)| Bound { spec: spec.clone(), place: buffer.place }).collect()
        };
        let inputs = bound(&self.signature.inputs, &self.inputs);
        let outputs = bound(&self.signature.outputs, &self.outputs);
        let binding =
            Binding::new(&self.session, self.gpu, batch, &inputs, &outputs).map_err(failed)?;
        for _ in 0..WARM_UPS {
            binding.run(&mut self.session, &self.options).map_err(failed)?;
            self.stream.wait()?;
        }
        let (session, options) = (&mut self.session, &self.options);
        let graph = self.stream.capture(|| binding.run(session, options).map_err(failed))?;
        let captured = Captured { graph, ready: None, used: true, _binding: binding };
        self.sizes.insert(size, captured);
        Ok(())
    }

    /// Milliseconds that a batch of a captured size takes on the whole GPU.
    pub(super) fn time(&mut self, size: usize) -> Result<f32, CudaError> {
        let size = self.size_of(size);
        let exec = self.sizes.get(&size).expect("it was captured").graph.ready(None)?;
        let (first, last) = (Event::new()?, Event::new()?);
        self.stream.launch(&exec)?;
        self.stream.record(&first)?;
        for _ in 0..TIMED {
            self.stream.launch(&exec)?;
        }
        self.stream.record(&last)?;
        last.wait()?;
        Ok(last.since(&first)? / TIMED as f32)
    }

    /// What runs a batch of so many on a share. What ran before, on another one, is handed over to be given back.
    ///
    /// # Panics
    ///
    /// If the size was not captured.
    pub(super) fn ready(
        &mut self,
        size: usize,
        share: &Arc<Share>,
        old: &mut Vec<Old>,
    ) -> Result<&Exec, CudaError> {
        let size = self.size_of(size);
        let captured = self.sizes.get_mut(&size).expect("it was captured");
        captured.used = true;
        captured.make_ready(share, old)
    }

    /// Makes ready what was in use on the share before, so that the first batches on the new one need not wait.
    pub(super) fn follow(
        &mut self,
        share: &Arc<Share>,
        old: &mut Vec<Old>,
    ) -> Result<(), CudaError> {
        for captured in self.sizes.values_mut().filter(|captured| captured.used) {
            captured.make_ready(share, old)?;
            captured.used = false;
        }
        Ok(())
    }

    /// Makes one more size ready; false, if all are.
    pub(super) fn follow_one(
        &mut self,
        share: &Arc<Share>,
        old: &mut Vec<Old>,
    ) -> Result<bool, CudaError> {
        let is_ready = |captured: &Captured| {
            captured.ready.as_ref().is_some_and(|(there, _)| there.number == share.number)
        };
        let left = self.sizes.values_mut().find(|captured| !is_ready(captured));
        left.map(|captured| captured.make_ready(share, old)).transpose().map(|exec| exec.is_some())
    }
}

impl Captured {
    fn make_ready(&mut self, share: &Arc<Share>, old: &mut Vec<Old>) -> Result<&Exec, CudaError> {
        let there = self.ready.as_ref().is_some_and(|(there, _)| there.number == share.number);
        if !there {
            let exec = self.graph.ready(share.green.as_ref())?;
            old.extend(self.ready.replace((share.clone(), exec)));
        }
        Ok(&self.ready.as_ref().expect("it was just made").1)
    }
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run(crate::onnx::one_line(&error))
}
