//! How batches of a size are captured: a session is bound to memory of the GPU, warmed up, and captured.

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

/// A session of its own for one size, which has run it.
pub(super) struct Warm {
    pub(super) size: usize,
    // In this order they are given back.
    pub(super) binding: Binding,
    pub(super) runner: Runner,
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

    /// Runs batches of so many until they run as they always will. Nothing else of this model may run meanwhile but this.
    pub(super) fn warm(&self, runner: &mut Runner, size: usize) -> Result<Binding, EngineError> {
        let batch = (self.signature.max_batch > 0).then_some(size);
        let Runner { session, stream, options } = runner;
        let binding = Binding::new(session, self.gpu, batch, &self.inputs, &self.outputs);
        let binding = binding.map_err(failed)?;
        for _ in 0..WARM_UPS {
            binding.run(session, options).map_err(failed)?;
            stream.wait()?;
        }
        Ok(binding)
    }

    /// Warms sizes up, each with a session of its own. To compile its kernels takes long, and one thread: they are compiled side by side. What
    /// was made before something went wrong is there, in no order.
    ///
    /// Nothing is captured meanwhile: to make a session waits for the whole device, which is an error for whoever captures.
    pub(super) fn warm_apart(&self, sizes: &[usize]) -> (Vec<Warm>, Result<(), EngineError>) {
        let next = AtomicUsize::new(0);
        let one = |size: usize| {
            let mut runner = self.runner()?;
            let binding = self.warm(&mut runner, size)?;
            Ok(Warm { size, binding, runner })
        };
        let some = || {
            let mut made = Vec::new();
            if let Err(error) = self.device.set_current() {
                return (made, Err(error.into()));
            }
            while let Some(&size) = sizes.get(next.fetch_add(1, Ordering::Relaxed)) {
                match one(size) {
                    Ok(warm) => made.push(warm),
                    Err(error) => {
                        // There is no memory for more, most likely.
                        next.store(sizes.len(), Ordering::Relaxed);
                        return (made, Err(error));
                    }
                }
            }
            (made, Ok(()))
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(THREADS_MAX).min(sizes.len());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
            let (mut all, mut outcome) = (Vec::with_capacity(sizes.len()), Ok(()));
            for thread in threads {
                let (made, ended) = thread.join().expect("it does not panic");
                all.extend(made);
                outcome = outcome.and(ended);
            }
            (all, outcome)
        })
    }
}

impl Runner {
    /// Captures what was warmed up.
    pub(super) fn capture(&mut self, binding: Binding) -> Result<Shot, EngineError> {
        let Self { session, stream, options } = self;
        // Another thread may have warmed it up: what ONNX Runtime makes for each thread is made now, since it cannot be captured.
        binding.run(session, options).map_err(failed)?;
        stream.wait()?;
        let mut graph = || stream.capture(|| binding.run(session, options).map_err(failed));
        let graphs = [graph()?, graph()?];
        Ok(Shot { graphs, binding })
    }
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run(crate::onnx::one_line(&error))
}
