//! NVIDIA GPUs: ONNX Runtime's CUDA provider in worker processes, one process for each seat.
//!
//! `seat/` runs in the server's process. `worker/` runs in a worker process, and so does `driver/`,
//! the bindings to CUDA's driver. `wire/` is what both processes share: messages and memory.
//!
//! A seat is a process of its own because an error on a GPU destroys the CUDA context of the whole
//! process, and everything that ONNX Runtime holds in it.

mod driver;
mod seat;
mod wire;
mod worker;

pub use seat::{NAME, SUBCOMMAND, Workers};
pub use worker::{gpus, work};
