//! A model on a worker: captured batch by batch size, and moved from share to share.
//!
//! It is captured on a stream of the whole GPU. What was captured is then made ready on the share that the worker has, as often as
//! that changes; nothing is loaded or captured again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

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
    graph: Arc<Mutex<Graph>>,
    /// What it runs with, on the share that there is and on the one to come.
    ready: Vec<Ready>,
    /// How often it was run of late.
    runs: u64,
    _binding: Binding,
}

/// A graph that is ready on a share, which is kept for as long.
pub(super) type Ready = (Arc<Share>, Exec);

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
        let graph = Arc::new(Mutex::new(graph));
        let captured = Captured { graph, ready: Vec::new(), runs: 0, _binding: binding };
        self.sizes.insert(size, captured);
        Ok(())
    }

    /// Milliseconds that a batch of a captured size takes on the whole GPU.
    pub(super) fn time(&mut self, size: usize) -> Result<f32, CudaError> {
        let size = self.size_of(size);
        let graph = &self.sizes.get(&size).expect("it was captured").graph;
        let exec = graph.lock().unwrap_or_else(PoisonError::into_inner).ready(None)?;
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

    /// What runs a batch of so many on a share.
    ///
    /// # Panics
    ///
    /// If the size was not captured.
    pub(super) fn ready(&mut self, size: usize, share: &Arc<Share>) -> Result<&Exec, CudaError> {
        let size = self.size_of(size);
        let captured = self.sizes.get_mut(&size).expect("it was captured");
        captured.runs += 1;
        if !captured.is_ready(share) {
            let exec = made_ready(&captured.graph, share)?;
            captured.ready.push((share.clone(), exec));
        }
        let (_, exec) = captured
            .ready
            .iter()
            .find(|(there, _)| there.number == share.number)
            .expect("it was just made");
        Ok(exec)
    }

    /// What is not ready on a share, most used sizes first.
    pub(super) fn missing(&self, share: &Share) -> Vec<(usize, Arc<Mutex<Graph>>)> {
        let missing = self.sizes.iter().filter(|(_, captured)| !captured.is_ready(share));
        let mut missing: Vec<_> = missing.collect();
        missing.sort_by_key(|(_, captured)| std::cmp::Reverse(captured.runs));
        missing.into_iter().map(|(&size, captured)| (size, captured.graph.clone())).collect()
    }

    /// A size was made ready on a share.
    pub(super) fn accept(&mut self, size: usize, ready: Ready) {
        if let Some(captured) = self.sizes.get_mut(&size)
            && !captured.is_ready(&ready.0)
        {
            captured.ready.push(ready);
        }
    }

    /// Forgets all shares but one; what was ready there is handed over, to be given back when its last run has ended.
    pub(super) fn settle(&mut self, share: &Share, old: &mut Vec<Ready>) {
        for captured in self.sizes.values_mut() {
            captured.runs /= 2;
            old.extend(captured.ready.extract_if(.., |(there, _)| there.number != share.number));
        }
    }
}

impl Captured {
    fn is_ready(&self, share: &Share) -> bool {
        self.ready.iter().any(|(there, _)| there.number == share.number)
    }
}

/// A graph made ready on a share, which takes about a millisecond.
pub(super) fn made_ready(graph: &Mutex<Graph>, share: &Share) -> Result<Exec, CudaError> {
    graph.lock().unwrap_or_else(PoisonError::into_inner).ready(share.green.as_ref())
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run(crate::onnx::one_line(&error))
}
