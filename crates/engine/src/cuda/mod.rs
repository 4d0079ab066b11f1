//! GPUs of NVIDIA: ONNX Runtime's CUDA provider in worker processes, a process for each seat.
//!
//! The server's side: `workers.rs` starts them, `seat.rs` is a seat as an engine, `link.rs` the line to it. The worker's side:
//! `worker.rs` its threads, `mover.rs` the one that changes its share, `host.rs` its models, `net.rs` one of them as captured graphs, `capture.rs`, `binding.rs` and `provider.rs` what is
//! asked of ONNX Runtime, `driver.rs`, `graph.rs` and `green.rs` what is asked of CUDA. Between them `wire.rs` and `region.rs`: messages, and shared memory.
//!
//! Why processes: an error on a GPU ends the context that all of a process shares, and what ONNX Runtime holds with it.

mod binding;
mod capture;
mod driver;
mod graph;
mod green;
mod host;
mod link;
mod mover;
mod mps;
mod net;
mod pressure;
mod provider;
mod region;
mod seat;
mod wire;
mod worker;
mod workers;

pub use seat::NAME;
pub use worker::{gpus, work};
pub use workers::{SUBCOMMAND, Workers};
