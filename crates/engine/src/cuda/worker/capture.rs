//! Captures batches of one size: binds a session to memory of the GPU, warms it up and records a
//! run.

use std::time::{Duration, Instant};

use ort::session::{NoSelectedOutputs, RunOptions, Session};

use super::binding::{Binding, Bound};
use crate::cuda::driver::{Graph, Stream};
use crate::{EngineError, Signature};

/// Makes a session whose work runs on a stream.
pub(super) type Open = dyn Fn(&Stream) -> Result<Session, EngineError> + Send;

/// A model, with the memory that all its batch sizes are bound to.
pub(super) struct Capturer {
    pub(super) open: Box<Open>,
    pub(super) signature: Signature,
    pub(super) gpu: usize,
    pub(super) inputs: Vec<Bound>,
    pub(super) outputs: Vec<Bound>,
}

/// A session, with the stream that its work runs on.
pub(super) struct StreamSession {
    // Fields are dropped in this order.
    session: Session,
    pub(super) stream: Stream,
    options: RunOptions<NoSelectedOutputs>,
}

/// The work of batches of one size, captured twice, with the binding that it uses.
pub(super) struct Capture {
    pub(super) graphs: [Graph; 2],
    pub(super) binding: Binding,
    /// How much longer the first run took than the second: the time to search for algorithms, to
    /// load and to compile.
    pub(super) settling: Duration,
}

impl Capturer {
    /// Makes another session.
    pub(super) fn session(&self) -> Result<StreamSession, EngineError> {
        let stream = Stream::new()?;
        let session = (self.open)(&stream)?;
        let mut options = RunOptions::new().map_err(failed)?;
        options.disable_device_sync().map_err(failed)?;
        Ok(StreamSession { session, stream, options })
    }

    /// Runs batches of `size` items until their work no longer changes, and captures it. Nothing
    /// else of this model may run meanwhile.
    ///
    /// The first run takes seconds where cuDNN compiles kernels. Capturing several sizes at the
    /// same time would save hardly anything: cuDNN compiles for one thread at a time.
    pub(super) fn capture(
        &self,
        stream_session: &mut StreamSession,
        size: usize,
    ) -> Result<Capture, EngineError> {
        let batch = (self.signature.max_batch > 0).then_some(size);
        let StreamSession { session, stream, options } = stream_session;
        let binding = Binding::new(session, self.gpu, batch, &self.inputs, &self.outputs);
        let binding = binding.map_err(failed)?;
        let mut run = || {
            let began = Instant::now();
            binding.run(session, options).map_err(failed)?;
            stream.wait()?;
            Ok::<_, EngineError>(began.elapsed())
        };
        // The first run is slow, and the second still chooses how to run.
        let (first, second) = (run()?, run()?);
        let mut graph = || Graph::capture(stream, || binding.run(session, options).map_err(failed));
        let graphs = [graph()?, graph()?];
        Ok(Capture { graphs, binding, settling: first.saturating_sub(second) })
    }
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run(crate::onnx::one_line(&error))
}
