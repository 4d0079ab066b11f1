//! GPUs of NVIDIA: ONNX Runtime's CUDA provider in worker processes, a process for each seat.
//!
//! `seat/` runs in the server's process, `worker/` and the bindings in `driver/` run in a worker
//! process, and `wire/` is what both share: messages, and memory.
//!
//! Why processes: an error on a GPU ends the context that all of a process shares, and what ONNX
//! Runtime holds with it.

mod driver;
mod seat;
mod wire;
mod worker;

pub use seat::{NAME, SUBCOMMAND, Workers};
pub use worker::{gpus, work};
