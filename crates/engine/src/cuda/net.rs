//! A model on a worker: captured batch by batch size, and moved from share to share.
//!
//! It is captured on a stream of the whole GPU. What was captured is then made ready on the share that the worker has, as often as
//! that changes; nothing is loaded or captured again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ort::session::{NoSelectedOutputs, RunOptions, Session};

use super::binding::{Binding, Bound};
use super::driver::{Buffer, Context, CudaError, Device, Event, Exec, Graph, Green, Stream};
use super::wire::{Form, captured_size};
use crate::{EngineError, Signature, TensorSpec};

/// The share that a worker has. Each has another number.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) number: u64,
    pub(super) device: Device,
    /// `None`: all of the GPU.
    pub(super) green: Option<Green>,
    pub(super) multiprocessors: u32,
}

impl Share {
    fn context(&self) -> Context {
        self.green.as_ref().map_or_else(|| self.device.context(), Green::context)
    }
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
    /// One is ready on the share that there is, the other is for the one to come.
    twins: [Twin; 2],
    /// How often it was run of late.
    runs: u64,
    _binding: Binding,
}

#[derive(Clone)]
struct Twin {
    graph: Arc<Mutex<Graph>>,
    ready: Option<Arc<Ready>>,
}

/// A graph that is ready on a share. The share is kept for as long, and the one before it until then.
pub(super) struct Ready {
    share: Arc<Share>,
    exec: Exec,
}

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
        let mut twin = || -> Result<Twin, EngineError> {
            let graph = self.stream.capture(|| binding.run(session, options).map_err(failed))?;
            Ok(Twin { graph: Arc::new(Mutex::new(graph)), ready: None })
        };
        let twins = [twin()?, twin()?];
        let captured = Captured { twins, runs: 0, _binding: binding };
        self.sizes.insert(size, captured);
        Ok(())
    }

    /// Milliseconds that a batch of a captured size takes on the whole GPU.
    pub(super) fn time(&self, size: usize, device: &Device) -> Result<f32, CudaError> {
        let captured = self.sizes.get(&self.size_of(size)).expect("it was captured");
        let graph = &captured.twins[0].graph;
        let exec = graph.lock().unwrap_or_else(PoisonError::into_inner).ready(device.context())?;
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
    pub(super) fn ready(
        &mut self,
        size: usize,
        share: &Arc<Share>,
    ) -> Result<Arc<Ready>, CudaError> {
        let size = self.size_of(size);
        let captured = self.sizes.get_mut(&size).expect("it was captured");
        captured.runs += 1;
        if let Some(ready) = captured.on(share) {
            return Ok(ready);
        }
        let graph = captured.free();
        let ready = Arc::new(made_ready(&graph, share)?);
        captured.accept(&graph, ready.clone());
        Ok(ready)
    }

    /// What is not ready on a share, most used sizes first, and what can be made so.
    pub(super) fn missing(&self, share: &Share) -> Vec<(usize, Arc<Mutex<Graph>>)> {
        let mut missing: Vec<_> =
            self.sizes.iter().filter(|(_, captured)| captured.on(share).is_none()).collect();
        missing.sort_by_key(|(_, captured)| std::cmp::Reverse(captured.runs));
        missing.into_iter().map(|(&size, captured)| (size, captured.free())).collect()
    }

    /// A size was made ready on a share.
    pub(super) fn accept(&mut self, size: usize, graph: &Arc<Mutex<Graph>>, ready: Ready) {
        if let Some(captured) = self.sizes.get_mut(&size)
            && captured.on(&ready.share).is_none()
        {
            captured.accept(graph, Arc::new(ready));
        }
    }

    /// Forgets all shares but one; what was ready there is handed over, to be given back when its last run has ended.
    pub(super) fn settle(&mut self, share: &Share, old: &mut Vec<Arc<Ready>>) {
        for captured in self.sizes.values_mut() {
            captured.runs /= 2;
            for twin in &mut captured.twins {
                let other =
                    twin.ready.as_ref().is_some_and(|ready| ready.share.number != share.number);
                old.extend(twin.ready.take_if(|_| other));
            }
        }
    }
}

impl Ready {
    /// What is to be launched.
    pub(super) fn exec(&self) -> &Exec {
        &self.exec
    }
}

impl Captured {
    fn on(&self, share: &Share) -> Option<Arc<Ready>> {
        let all = self.twins.iter().filter_map(|twin| twin.ready.as_ref());
        all.into_iter().find(|ready| ready.share.number == share.number).cloned()
    }

    /// The graph that is ready nowhere; of two that are, the one on the older share.
    fn free(&self) -> Arc<Mutex<Graph>> {
        let age = |twin: &&Twin| twin.ready.as_ref().map(|ready| ready.share.number);
        self.twins.iter().min_by_key(age).expect("there are two").graph.clone()
    }

    fn accept(&mut self, graph: &Arc<Mutex<Graph>>, ready: Arc<Ready>) {
        if let Some(twin) = self.twins.iter_mut().find(|twin| Arc::ptr_eq(&twin.graph, graph)) {
            twin.ready = Some(ready);
        }
    }
}

/// A graph made ready on a share, which takes about a millisecond.
pub(super) fn made_ready(graph: &Mutex<Graph>, share: &Arc<Share>) -> Result<Ready, CudaError> {
    let mut graph = graph.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Ready { share: share.clone(), exec: graph.ready(share.context())? })
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run(crate::onnx::one_line(&error))
}
