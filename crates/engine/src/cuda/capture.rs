//! How batches of a size are captured: a session is bound to memory of the GPU, run until it runs as it always will, and captured.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ort::session::{NoSelectedOutputs, RunOptions, Session};

use super::binding::{Binding, Bound};
use super::driver::{Device, Stream};
use super::graph::Graph;
use crate::{EngineError, Signature};

/// Makes a session that runs on a stream.
pub(super) type Open = dyn Fn(&Stream) -> Result<Session, EngineError> + Send + Sync;

/// A model, and the memory that its batches are bound to, whatever their size.
pub(super) struct Capturing {
    pub(super) open: Box<Open>,
    pub(super) signature: Signature,
    pub(super) gpu: usize,
    pub(super) device: Device,
    pub(super) inputs: Vec<Bound>,
    pub(super) outputs: Vec<Bound>,
}

/// A session with its stream.
pub(super) struct Runner {
    // In this order they are given back.
    session: Session,
    pub(super) stream: Stream,
    options: RunOptions<NoSelectedOutputs>,
}

/// What batches of a size begin, captured twice, and what it is bound with.
pub(super) struct Shot {
    pub(super) graphs: [Graph; 2],
    pub(super) binding: Binding,
}

/// Engines are slow the first time, and settle on how to run at the second.
const WARM_UPS: usize = 2;
/// At most so many sizes side by side: other models and other seats have to be made ready as well.
const THREADS_MAX: usize = 8;

impl Capturing {
    /// One more session.
    pub(super) fn runner(&self) -> Result<Runner, EngineError> {
        let stream = Stream::new()?;
        let session = (self.open)(&stream)?;
        let mut options = RunOptions::new().map_err(failed)?;
        options.disable_device_sync().map_err(failed)?;
        Ok(Runner { session, stream, options })
    }

    /// Captures batches of so many. Nothing of this model may run meanwhile.
    pub(super) fn capture(&self, runner: &mut Runner, size: usize) -> Result<Shot, EngineError> {
        let batch = (self.signature.max_batch > 0).then_some(size);
        let Runner { session, stream, options } = runner;
        let binding = Binding::new(session, self.gpu, batch, &self.inputs, &self.outputs);
        let binding = binding.map_err(failed)?;
        for _ in 0..WARM_UPS {
            binding.run(session, options).map_err(failed)?;
            stream.wait()?;
        }
        let mut graph = || stream.capture(|| binding.run(session, options).map_err(failed));
        let graphs = [graph()?, graph()?];
        Ok(Shot { graphs, binding })
    }

    /// Captures sizes, each with a session of its own. To compile its kernels takes long, and one thread: they are compiled side by side.
    pub(super) fn capture_apart(
        &self,
        sizes: &[usize],
    ) -> Result<Vec<(usize, Runner, Shot)>, EngineError> {
        let next = AtomicUsize::new(0);
        let some = || -> Result<Vec<_>, EngineError> {
            self.device.set_current()?;
            let mut made = Vec::new();
            while let Some(&size) = sizes.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut runner = self.runner()?;
                let shot = self.capture(&mut runner, size)?;
                made.push((size, runner, shot));
            }
            Ok(made)
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(THREADS_MAX).min(sizes.len());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
            let mut all = Vec::with_capacity(sizes.len());
            for thread in threads {
                all.extend(thread.join().expect("it does not panic")?);
            }
            Ok(all)
        })
    }
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run(crate::onnx::one_line(&error))
}
