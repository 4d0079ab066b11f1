//! Ends the process when nothing can run in it any more.

use super::lanes::Lanes;
use crate::cuda::driver::CudaError;

/// What ONNX Runtime says of an error does not tell whether anything can run after it; the GPU does.
pub(super) fn end_if_broken(lanes: &Lanes) {
    if let Err(error) = lanes.compute.wait() {
        end_if_fatal(&error);
    }
}

/// A worker in which nothing can run ends, so that another takes its place.
pub(super) fn end_if_fatal(error: &CudaError) {
    if error.is_fatal() {
        broken(error);
    }
}

pub(super) fn broken(error: &CudaError) {
    eprintln!("fermata gpu-worker: {error}");
    std::process::exit(70);
}
