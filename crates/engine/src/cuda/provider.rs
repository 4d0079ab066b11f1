//! Sessions of ONNX Runtime on a GPU, and the ways to run a model there that are tried.

#![expect(unsafe_code, reason = "ONNX Runtime is given a stream by its address")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use ort::environment::Environment;
use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{ArenaExtendStrategy, CUDA};
use ort::session::Session;
use serde::{Deserialize, Serialize};

use super::driver::Stream;
use super::wire::Grain;
use crate::Source;
use crate::onnx::{file, one_line};

/// A way to run a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tuning {
    /// Channels last, as tensor cores want them.
    nhwc: bool,
    /// cuDNN looks longer for the best way to run each convolution, for every batch size.
    search: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { nhwc: true, search: false }
    }
}

impl Tuning {
    /// Those that are measured when a model is made ready, and what part of the best time so far one must stay below to be chosen: to search
    /// must pay for the time that it takes.
    pub(super) const CANDIDATES: [(Self, f32); 3] = [
        (Self { nhwc: true, search: false }, 1.0),
        (Self { nhwc: false, search: false }, 1.0),
        (Self { nhwc: true, search: true }, 0.97),
    ];

    fn search(self) -> ConvAlgorithmSearch {
        if self.search { ConvAlgorithmSearch::Exhaustive } else { ConvAlgorithmSearch::Heuristic }
    }
}

/// A model's file, when it was written, and the GPU.
pub(super) type TuningKey = (PathBuf, Option<SystemTime>, String);

/// The ways that were chosen, and the sizes: the next seat, or one that comes back, need not measure again, and has the same.
#[derive(Debug, Default)]
pub(super) struct Tunings(Mutex<HashMap<TuningKey, (Tuning, Grain)>>);

impl Tunings {
    pub(super) fn get(&self, key: &TuningKey) -> Option<(Tuning, Grain)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    pub(super) fn keep(&self, key: TuningKey, captured: (Tuning, Grain)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, captured);
    }
}

/// A session on a GPU, with all its work on a stream, if there is one.
pub(super) fn open(
    environment: &Environment,
    source: &Source,
    gpu: usize,
    tuning: Tuning,
    stream: Option<&Stream>,
) -> Result<Session, String> {
    let mut provider = CUDA::default()
        .with_device_id(gpu as i32)
        .with_prefer_nhwc(tuning.nhwc)
        .with_conv_algorithm_search(tuning.search())
        .with_conv_max_workspace(true)
        // Doubling would take twice what a model needs.
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested);
    if let Some(bytes) = source.memory {
        provider = provider.with_memory_limit(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    if let Some(stream) = stream {
        // SAFETY: whoever has the session has the stream, and gives the session back first.
        provider = unsafe { provider.with_compute_stream(stream.0.cast()) };
    }
    let provider = provider.build().error_on_failure();
    // What runs on a stream does not run on processors, and a model may have a session for each batch size.
    let threads = if stream.is_some() { 1 } else { source.threads };
    let builder = file::options(environment, threads)
        .and_then(|builder| Ok(builder.with_execution_providers([provider])?))
        .map_err(|error| one_line(&error))?;
    file::commit(builder, source)
}
