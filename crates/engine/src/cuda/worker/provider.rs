//! Opens sessions of ONNX Runtime on a GPU.

#![expect(unsafe_code, reason = "ONNX Runtime is given a stream by its address")]

use ort::environment::Environment;
use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{ArenaExtendStrategy, CUDA};
use ort::session::Session;

use crate::Source;
use crate::cuda::driver::Stream;
use crate::cuda::wire::Tuning;
use crate::onnx::{file, one_line};

/// Opens a session on a GPU. All its work runs on `stream`, if there is one.
pub(super) fn open(
    environment: &Environment,
    source: &Source,
    gpu: usize,
    tuning: Tuning,
    stream: Option<&Stream>,
) -> Result<Session, String> {
    let search = match tuning.search {
        true => ConvAlgorithmSearch::Exhaustive,
        false => ConvAlgorithmSearch::Heuristic,
    };
    let mut provider = CUDA::default()
        .with_device_id(gpu as i32)
        .with_prefer_nhwc(tuning.nhwc)
        .with_conv_algorithm_search(search)
        .with_conv_max_workspace(true)
        // By default ONNX Runtime doubles its memory, to twice what a model needs.
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested);
    if let Some(bytes) = source.memory {
        provider = provider.with_memory_limit(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    if let Some(stream) = stream {
        // SAFETY: the owner of the session has the stream too, and drops the session first.
        provider = unsafe { provider.with_compute_stream(stream.0.cast()) };
    }
    let provider = provider.build().error_on_failure();
    // Work on a stream does not run on processors, and a model may have a session for each batch
    // size.
    let threads = if stream.is_some() { 1 } else { source.threads };
    let builder = file::options(environment, threads)
        .and_then(|builder| Ok(builder.with_execution_providers([provider])?))
        .map_err(|error| one_line(&error))?;
    file::commit(builder, source)
}
