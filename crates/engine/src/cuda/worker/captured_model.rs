//! A model on a worker: captured batch by batch size, and moved from share to share.
//!
//! It is captured on a stream of the whole GPU. What was captured is then made ready on the share that the worker has, as often as
//! that changes; nothing is loaded or captured again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::binding::{Binding, Bound};
use super::capture::{Capture, Capturer, Open, StreamSession};
use super::share::Share;
use crate::cuda::driver::{Buffer, CudaError, Device, Event, Exec, Graph};
use crate::cuda::wire::{Column, Form, Granularity};
use crate::{EngineError, Signature, TensorSpec};

/// A model whose batches are captured.
pub(super) struct CapturedModel {
    // In this order they are given back: graphs refer to the session's memory.
    sizes: BTreeMap<usize, CapturedSize>,
    runner: StreamSession,
    /// A second session that runs what the first one does, to tell which kernels are a session's own.
    witness: Option<StreamSession>,
    capturer: Capturer,
    /// A size of it has kernels that are unloaded when the session runs another shape: from then on each size has a session of its own.
    apart: bool,
    largest: usize,
    granularity: Granularity,
    pub(super) inputs: Vec<Buffer>,
    pub(super) outputs: Vec<Buffer>,
}

struct CapturedSize {
    /// One is ready on the share that there is, the other is for the one to come.
    twins: [Arc<Mutex<Twin>>; 2],
    /// How often it was run of late.
    runs: u64,
    _binding: Binding,
    /// Its own, where sizes are apart.
    _runner: Option<StreamSession>,
}

/// A capture, and where it is ready. Held for as long as it takes to make it ready.
pub(super) struct Twin {
    graph: Graph,
    ready: Option<Arc<ReadyGraph>>,
}

/// A graph that is ready on a share, which is kept for as long.
pub(super) struct ReadyGraph {
    // In this order they are given back.
    exec: Exec,
    share: Arc<Share>,
    /// It runs on the whole GPU in place of the share.
    on_whole_gpu: bool,
}

/// Sizes that take longer to settle, because kernels are compiled for them, are few.
const SLOW: Duration = Duration::from_millis(1_500);
/// How often a batch is timed to compare ways to run it.
const TIMED: usize = 10;

impl CapturedModel {
    /// Of sessions that `open` makes.
    pub(super) fn new(
        open: Box<Open>,
        signature: Signature,
        form: &Form,
        gpu: usize,
    ) -> Result<Self, EngineError> {
        let buffers = |columns: &[Column]| {
            columns
                .iter()
                .map(|column| Buffer::new(column.item * form.largest))
                .collect::<Result<Vec<_>, CudaError>>()
        };
        let bound = |specs: &[TensorSpec], buffers: &[Buffer]| {
            let both = specs.iter().zip(buffers);
            both.map(|(spec, buffer)| Bound { spec: spec.clone(), address: buffer.address })
                .collect()
        };
        let (inputs, outputs) = (buffers(&form.inputs)?, buffers(&form.outputs)?);
        let capturer = Capturer {
            open,
            inputs: bound(&signature.inputs, &inputs),
            outputs: bound(&signature.outputs, &outputs),
            signature,
            gpu,
        };
        Ok(Self {
            sizes: BTreeMap::new(),
            runner: capturer.runner()?,
            witness: None,
            capturer,
            apart: false,
            largest: form.largest,
            granularity: Granularity::Fine,
            inputs,
            outputs,
        })
    }

    /// The size at which a batch of so many is run.
    pub(super) fn size_of(&self, size: usize) -> usize {
        self.granularity.size(size, self.largest)
    }

    /// Whether batches of so many can be run at once.
    pub(super) fn has(&self, size: usize) -> bool {
        self.sizes.contains_key(&self.size_of(size))
    }

    /// Which sizes are captured.
    pub(super) fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// Captures the first size, and decides which others there are, unless that was decided elsewhere: all seats have the same.
    pub(super) fn capture_first(
        &mut self,
        size: usize,
        known: Option<Granularity>,
    ) -> Result<(), EngineError> {
        if known == Some(Granularity::Coarse) {
            // Only models with compiled kernels have few sizes.
            let capture = self.capturer.capture(&mut self.runner, size)?;
            self.apart = true;
            self.sizes.insert(size, CapturedSize::new(capture, None));
            self.granularity = Granularity::Coarse;
        } else {
            let settling = self.capture(size)?;
            self.granularity = known.unwrap_or_else(|| granularity(self.apart, settling));
        }
        Ok(())
    }

    /// Captures batches of so many; how long they took to settle. Nothing of this model may run meanwhile.
    pub(super) fn capture(&mut self, size: usize) -> Result<Duration, EngineError> {
        let size = self.size_of(size);
        let (capture, runner) = if self.apart {
            let mut runner = self.capturer.runner()?;
            (self.capturer.capture(&mut runner, size)?, Some(runner))
        } else {
            let capture = self.capture_together(size);
            // Whatever its session has compiled by now must stay: after an error it runs no other size.
            self.apart |= capture.is_err();
            if self.apart {
                self.witness = None;
            }
            (capture?, None)
        };
        let settling = capture.settling;
        self.sizes.insert(size, CapturedSize::new(capture, runner));
        Ok(settling)
    }

    /// Captures a size in the session that all have in common for as long as no kernels are compiled for any.
    fn capture_together(&mut self, size: usize) -> Result<Capture, EngineError> {
        let mut capture = self.capturer.capture(&mut self.runner, size)?;
        let alone = capture.graphs[0].kernels_alone()?;
        if alone.is_empty() {
            return Ok(capture);
        }
        // Two sessions have kernels in common that come with a library, and each its own that are compiled for it.
        let witness = match &mut self.witness {
            Some(witness) => witness,
            none => none.insert(self.capturer.runner()?),
        };
        let seen = self.capturer.capture(witness, size)?;
        self.apart = seen.graphs[0].kernels_alone()? != alone;
        // The first model of a process waits for libraries as well, the witness does not.
        capture.settling = seen.settling;
        Ok(capture)
    }

    /// Milliseconds that a batch of a captured size takes on the whole GPU.
    pub(super) fn time(&self, size: usize, device: &Device) -> Result<f32, CudaError> {
        let captured = self.sizes.get(&self.size_of(size)).expect("it was captured");
        let mut twin = captured.twins[0].lock().unwrap_or_else(PoisonError::into_inner);
        let exec = twin.graph.ready(device.context())?;
        drop(twin);
        let (first, last) = (Event::new()?, Event::new()?);
        exec.launch(&self.runner.stream)?;
        self.runner.stream.record(&first)?;
        for _ in 0..TIMED {
            exec.launch(&self.runner.stream)?;
        }
        self.runner.stream.record(&last)?;
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
    ) -> Result<Arc<ReadyGraph>, CudaError> {
        let size = self.size_of(size);
        let mut first = None;
        // Kernels of a size may not fit into the share. Rather than beside others on the whole GPU it is run as a larger one that does.
        for captured in self.sizes.range_mut(size..=2 * size).map(|(_, captured)| captured) {
            let ready =
                captured.on(share).map_or_else(|| make_ready(&captured.free(), share), Ok)?;
            if !ready.on_whole_gpu {
                captured.runs += 1;
                return Ok(ready);
            }
            first.get_or_insert(ready);
        }
        Ok(first.expect("it was captured"))
    }

    /// What is not ready on a share of so many sizes, those that are used most.
    pub(super) fn missing(&self, share: &Share, most: usize) -> Vec<Arc<Mutex<Twin>>> {
        let mut sizes: Vec<_> = self.sizes.values().collect();
        sizes.sort_by_key(|captured| std::cmp::Reverse(captured.runs));
        let missing = sizes.into_iter().take(most).filter(|captured| captured.on(share).is_none());
        missing.map(CapturedSize::free).collect()
    }

    /// Forgets all shares but one; what was ready there is handed over, to be given back when its last run has ended.
    pub(super) fn forget_other_shares(&mut self, share: &Share, old: &mut Vec<Arc<ReadyGraph>>) {
        for captured in self.sizes.values_mut() {
            captured.runs /= 2;
            for twin in &captured.twins {
                let mut twin = twin.lock().unwrap_or_else(PoisonError::into_inner);
                old.extend(twin.ready.take_if(|ready| ready.share.number != share.number));
            }
        }
    }
}

impl ReadyGraph {
    /// What is to be launched.
    pub(super) fn exec(&self) -> &Exec {
        &self.exec
    }
}

impl CapturedSize {
    fn new(capture: Capture, runner: Option<StreamSession>) -> Self {
        let Capture { graphs, binding, .. } = capture;
        let twins = graphs.map(|graph| Arc::new(Mutex::new(Twin { graph, ready: None })));
        Self { twins, runs: 0, _binding: binding, _runner: runner }
    }

    /// What is ready on a share. A twin that is held is being made ready, and is not.
    fn on(&self, share: &Share) -> Option<Arc<ReadyGraph>> {
        let there = self.twins.iter().filter_map(|twin| twin.try_lock().ok()?.ready.clone());
        there.into_iter().find(|ready| ready.share.number == share.number)
    }

    /// The twin that is to be ready on another share: the one that is being made so, or else is ready nowhere, or on the older share.
    fn free(&self) -> Arc<Mutex<Twin>> {
        let age = |twin: &&Arc<Mutex<Twin>>| match twin.try_lock() {
            Err(_) => None,
            Ok(twin) => Some(twin.ready.as_ref().map(|ready| ready.share.number)),
        };
        self.twins.iter().min_by_key(age).expect("there are two").clone()
    }
}

/// A twin made ready on a share, which takes about a millisecond; what it was ready on before must have ended.
pub(super) fn make_ready(
    twin: &Mutex<Twin>,
    share: &Arc<Share>,
) -> Result<Arc<ReadyGraph>, CudaError> {
    let mut twin = twin.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(ready) = twin.ready.as_ref().filter(|ready| ready.share.number == share.number) {
        return Ok(ready.clone());
    }
    twin.ready = None;
    let (exec, on_whole_gpu) = match twin.graph.ready(share.context()) {
        Ok(exec) => (exec, false),
        // Some kernels want multiprocessors in groups that a share may not have.
        Err(_) => (twin.graph.ready(share.device.context())?, true),
    };
    let ready = Arc::new(ReadyGraph { share: share.clone(), exec, on_whole_gpu });
    twin.ready = Some(ready.clone());
    Ok(ready)
}

/// How many sizes a model has, by whether kernels are compiled for each, and how long one took to settle.
fn granularity(apart: bool, settling: Duration) -> Granularity {
    if apart && settling > SLOW { Granularity::Coarse } else { Granularity::Fine }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_few_only_where_kernels_are_compiled_for_long() {
        let (quick, long) = (Duration::from_millis(300), Duration::from_secs(4));
        assert_eq!(granularity(true, long), Granularity::Coarse);
        assert_eq!(granularity(true, quick), Granularity::Fine);
        assert_eq!(granularity(false, long), Granularity::Fine, "libraries were loaded");
    }
}
