//! The worker's side: holds the models of one seat and runs their batches on one GPU. It runs in a
//! worker process (`fermata gpu-worker`), which calls ONNX Runtime and CUDA.

mod binding;
mod capture;
mod captured_model;
mod fatal;
mod finisher;
mod host;
mod loader;
mod mover;
mod pressure;
mod process;
mod provider;
mod reader;
mod responder;
mod share;
mod streams;

pub use process::{gpus, work};
