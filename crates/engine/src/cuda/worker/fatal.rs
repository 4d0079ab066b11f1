//! Ends the process when nothing can run in it any more.

use super::streams::BatchStreams;
use crate::cuda::driver::CudaError;

/// Asks the GPU whether anything can still run. An error of ONNX Runtime does not tell.
pub(super) fn exit_if_broken(streams: &BatchStreams) {
    if let Err(error) = streams.compute.wait() {
        exit_if_fatal(&error);
    }
}

/// Ends the process after an error that lasts, so that the server starts another.
pub(super) fn exit_if_fatal(error: &CudaError) {
    if error.is_fatal() {
        exit_broken(error);
    }
}

/// Ends the process.
pub(super) fn exit_broken(error: &CudaError) {
    eprintln!("fermata gpu-worker: {error}");
    std::process::exit(70);
}
