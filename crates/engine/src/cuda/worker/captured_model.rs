//! A model of a worker: captured for each batch size, and moved from share to share.
//!
//! Captures are made on a stream of the whole GPU. They are then made executable on the share that
//! the worker has, again after each change. Nothing is loaded or captured a second time.

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
    // Fields are dropped in this order: graphs refer to the session's memory.
    sizes: BTreeMap<usize, CapturedSize>,
    session: StreamSession,
    /// A second session that captures the same sizes as the first, to tell which kernels belong to
    /// one session only.
    witness: Option<StreamSession>,
    capturer: Capturer,
    /// One of its sizes has kernels that are unloaded when the session runs another shape. From
    /// then on, each size has a session of its own.
    apart: bool,
    largest: usize,
    granularity: Granularity,
    pub(super) inputs: Vec<Buffer>,
    pub(super) outputs: Vec<Buffer>,
}

struct CapturedSize {
    /// One is executable on the present share, the other is for the next share.
    twins: [Arc<Mutex<Twin>>; 2],
    /// How often it ran recently.
    runs: u64,
    _binding: Binding,
    /// Its own session, where each size has one.
    _session: Option<StreamSession>,
}

/// A capture, and its executable form on a share. Locked while it is made executable.
pub(super) struct Twin {
    graph: Graph,
    ready: Option<Arc<ReadyGraph>>,
}

/// A graph that is executable on a share, and keeps the share.
pub(super) struct ReadyGraph {
    // Fields are dropped in this order.
    exec: Exec,
    share: Arc<Share>,
    /// The share cannot run it, so it runs on the whole GPU.
    on_whole_gpu: bool,
}

/// A model has few sizes if one takes longer than this to settle, because kernels are compiled for
/// it.
const SLOW_SETTLING: Duration = Duration::from_millis(1_500);
/// How many runs of a batch are timed to compare tunings.
const TIMED_RUNS: usize = 10;

impl CapturedModel {
    /// A model whose sessions `open` makes.
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
            session: capturer.session()?,
            witness: None,
            capturer,
            apart: false,
            largest: form.largest,
            granularity: Granularity::Fine,
            inputs,
            outputs,
        })
    }

    /// The size at which a batch of `size` items runs.
    pub(super) fn size_of(&self, size: usize) -> usize {
        self.granularity.size(size, self.largest)
    }

    /// Whether batches of `size` items can run without a capture first.
    pub(super) fn has(&self, size: usize) -> bool {
        self.sizes.contains_key(&self.size_of(size))
    }

    /// Which sizes are captured.
    pub(super) fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// Captures the first size. It also decides which other sizes there are, unless another seat
    /// has: all seats have the same sizes.
    pub(super) fn capture_first(
        &mut self,
        size: usize,
        known: Option<Granularity>,
    ) -> Result<(), EngineError> {
        if known == Some(Granularity::Coarse) {
            // Only models with compiled kernels have few sizes.
            let capture = self.capturer.capture(&mut self.session, size)?;
            self.apart = true;
            self.sizes.insert(size, CapturedSize::new(capture, None));
            self.granularity = Granularity::Coarse;
        } else {
            let settling = self.capture(size)?;
            self.granularity = known.unwrap_or_else(|| granularity(self.apart, settling));
        }
        Ok(())
    }

    /// Captures batches of `size` items. Returns how long they took to settle. Nothing of this
    /// model may run meanwhile.
    pub(super) fn capture(&mut self, size: usize) -> Result<Duration, EngineError> {
        let size = self.size_of(size);
        let (capture, session) = if self.apart {
            let mut session = self.capturer.session()?;
            (self.capturer.capture(&mut session, size)?, Some(session))
        } else {
            let capture = self.capture_together(size);
            // After an error the common session runs no other size, so that the kernels that it has
            // compiled stay loaded.
            self.apart |= capture.is_err();
            if self.apart {
                self.witness = None;
            }
            (capture?, None)
        };
        let settling = capture.settling;
        self.sizes.insert(size, CapturedSize::new(capture, session));
        Ok(settling)
    }

    /// Captures a size in the common session, which is used until kernels are compiled for a size.
    fn capture_together(&mut self, size: usize) -> Result<Capture, EngineError> {
        let mut capture = self.capturer.capture(&mut self.session, size)?;
        let alone = capture.graphs[0].kernels_alone()?;
        if alone.is_empty() {
            return Ok(capture);
        }
        // Kernels that ship with a library are the same in two sessions. Kernels that are compiled
        // for a session are not.
        let witness = match &mut self.witness {
            Some(witness) => witness,
            none => none.insert(self.capturer.session()?),
        };
        let seen = self.capturer.capture(witness, size)?;
        self.apart = seen.graphs[0].kernels_alone()? != alone;
        // The first model of a process also waits for libraries to load. The witness does not.
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
        exec.launch(&self.session.stream)?;
        self.session.stream.record(&first)?;
        for _ in 0..TIMED_RUNS {
            exec.launch(&self.session.stream)?;
        }
        self.session.stream.record(&last)?;
        last.wait()?;
        Ok(last.since(&first)? / TIMED_RUNS as f32)
    }

    /// The executable graph for a batch of `size` items on a share.
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
        // The kernels of a size may not fit into the share. Then a larger size that does fit runs
        // instead, so that the batch stays off the multiprocessors of other shares.
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

    /// Up to `most` captures that are not executable on a share, of the sizes that run most often.
    pub(super) fn missing(&self, share: &Share, most: usize) -> Vec<Arc<Mutex<Twin>>> {
        let mut sizes: Vec<_> = self.sizes.values().collect();
        sizes.sort_by_key(|captured| std::cmp::Reverse(captured.runs));
        let missing = sizes.into_iter().take(most).filter(|captured| captured.on(share).is_none());
        missing.map(CapturedSize::free).collect()
    }

    /// Forgets the executable graphs of all other shares. They are moved to `old`, to be dropped
    /// when their last run has ended.
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
    /// The graph to launch.
    pub(super) fn exec(&self) -> &Exec {
        &self.exec
    }
}

impl CapturedSize {
    fn new(capture: Capture, session: Option<StreamSession>) -> Self {
        let Capture { graphs, binding, .. } = capture;
        let twins = graphs.map(|graph| Arc::new(Mutex::new(Twin { graph, ready: None })));
        Self { twins, runs: 0, _binding: binding, _session: session }
    }

    /// The graph that is executable on a share. A locked twin is still being made executable.
    fn on(&self, share: &Share) -> Option<Arc<ReadyGraph>> {
        let there = self.twins.iter().filter_map(|twin| twin.try_lock().ok()?.ready.clone());
        there.into_iter().find(|ready| ready.share.number == share.number)
    }

    /// The twin to make executable on another share: the one that is being made so, else one that
    /// is executable nowhere, else the one on the older share.
    fn free(&self) -> Arc<Mutex<Twin>> {
        let age = |twin: &&Arc<Mutex<Twin>>| match twin.try_lock() {
            Err(_) => None,
            Ok(twin) => Some(twin.ready.as_ref().map(|ready| ready.share.number)),
        };
        self.twins.iter().min_by_key(age).expect("there are two").clone()
    }
}

/// Makes a twin executable on a share, which takes about a millisecond. All its runs on the share
/// before must have ended.
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
        // Some kernels need groups of multiprocessors that the share may not have.
        Err(_) => (twin.graph.ready(share.device.context())?, true),
    };
    let ready = Arc::new(ReadyGraph { share: share.clone(), exec, on_whole_gpu });
    twin.ready = Some(ready.clone());
    Ok(ready)
}

/// Which sizes a model has. `apart` says that kernels are compiled for each size; `settling` is how
/// long one size took to settle.
fn granularity(apart: bool, settling: Duration) -> Granularity {
    if apart && settling > SLOW_SETTLING { Granularity::Coarse } else { Granularity::Fine }
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
