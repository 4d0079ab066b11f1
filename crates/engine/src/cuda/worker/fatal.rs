//! Ends the process when nothing can run in it any more.

use super::streams::BatchStreams;
use crate::cuda::driver::CudaError;

/// What ONNX Runtime says of an error does not tell whether anything can run after it; the GPU does.
pub(super) fn exit_if_broken(streams: &BatchStreams) {
    if let Err(error) = streams.compute.wait() {
        exit_if_fatal(&error);
    }
}

/// A worker in which nothing can run ends, so that another takes its place.
pub(super) fn exit_if_fatal(error: &CudaError) {
    if error.is_fatal() {
        exit_broken(error);
    }
}

pub(super) fn exit_broken(error: &CudaError) {
    eprintln!("fermata gpu-worker: {error}");
    std::process::exit(70);
}
