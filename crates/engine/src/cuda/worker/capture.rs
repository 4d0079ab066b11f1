//! How batches of a size are captured: a session is bound to memory of the GPU, warmed up, and captured.

use std::time::{Duration, Instant};

use ort::session::{NoSelectedOutputs, RunOptions, Session};

use super::binding::{Binding, Bound};
use crate::cuda::driver::{Graph, Stream};
use crate::{EngineError, Signature};

/// Makes a session that runs on a stream.
pub(super) type Open = dyn Fn(&Stream) -> Result<Session, EngineError> + Send;

/// A model, and the memory that its batches are bound to, whatever their size.
pub(super) struct Capturer {
    pub(super) open: Box<Open>,
    pub(super) signature: Signature,
    pub(super) gpu: usize,
    pub(super) inputs: Vec<Bound>,
    pub(super) outputs: Vec<Bound>,
}

/// A session with its stream.
pub(super) struct StreamSession {
    // In this order they are given back.
    session: Session,
    pub(super) stream: Stream,
    options: RunOptions<NoSelectedOutputs>,
}

/// What batches of a size begin, captured twice, and what it is bound with.
pub(super) struct Capture {
    pub(super) graphs: [Graph; 2],
    pub(super) binding: Binding,
    /// How much longer than the second run the first one took: what had to be looked for, loaded or compiled for it.
    pub(super) settling: Duration,
}

impl Capturer {
    /// One more session.
    pub(super) fn runner(&self) -> Result<StreamSession, EngineError> {
        let stream = Stream::new()?;
        let session = (self.open)(&stream)?;
        let mut options = RunOptions::new().map_err(failed)?;
        options.disable_device_sync().map_err(failed)?;
        Ok(StreamSession { session, stream, options })
    }

    /// Runs batches of so many until they run as they always will, and captures what they do. Nothing else of this model may run meanwhile.
    ///
    /// The first of them takes seconds where cuDNN compiles kernels. Several sizes side by side would take hardly less: it compiles for one thread at a
    /// time.
    pub(super) fn capture(
        &self,
        runner: &mut StreamSession,
        size: usize,
    ) -> Result<Capture, EngineError> {
        let batch = (self.signature.max_batch > 0).then_some(size);
        let StreamSession { session, stream, options } = runner;
        let binding = Binding::new(session, self.gpu, batch, &self.inputs, &self.outputs);
        let binding = binding.map_err(failed)?;
        let mut run = || {
            let began = Instant::now();
            binding.run(session, options).map_err(failed)?;
            stream.wait()?;
            Ok::<_, EngineError>(began.elapsed())
        };
        // Engines are slow the first time, and settle on how to run at the second.
        let (first, second) = (run()?, run()?);
        let mut graph = || Graph::capture(stream, || binding.run(session, options).map_err(failed));
        let graphs = [graph()?, graph()?];
        Ok(Capture { graphs, binding, settling: first.saturating_sub(second) })
    }
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run(crate::onnx::one_line(&error))
}
