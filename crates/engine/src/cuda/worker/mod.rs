//! The worker's side: the process that has a seat, which holds its models and runs their batches on
//! one GPU. It runs in a worker process, `fermata gpu-worker`, and calls ONNX Runtime and CUDA.

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
