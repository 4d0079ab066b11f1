//! The GPU that `--gpu N` names.

use std::sync::Arc;

use fermata_engine::Gpu;
use fermata_engine::cuda::Workers;
use fermata_experiments::GpuAccess;
use fermata_files::{InputError, in_one_line};
use fermata_server::gpu::NETWORK;

use crate::serve::gpu_library_folders;

/// What `fermata bench gpu` is told of this program.
pub(crate) const ACCESS: GpuAccess = GpuAccess { find, network: NETWORK };

/// A GPU by its number, and what starts workers on it.
pub(crate) fn find(number: usize) -> Result<(Arc<Workers>, Gpu), InputError> {
    let refuse = |reason: String| InputError::Argument { name: "--gpu", reason };
    let workers = Workers::new(gpu_library_folders());
    let there = workers.and_then(|workers| Ok((workers.gpus()?, workers)));
    let (gpus, workers) = there.map_err(|error| refuse(in_one_line(&error.to_string())))?;
    match gpus.iter().find(|gpu| gpu.index == number) {
        Some(gpu) => Ok((workers, gpu.clone())),
        None if gpus.is_empty() => {
            Err(refuse("this machine has no GPU that CUDA can use".to_owned()))
        }
        None => Err(refuse(format!("there is no GPU {number}: the last is {}", gpus.len() - 1))),
    }
}
