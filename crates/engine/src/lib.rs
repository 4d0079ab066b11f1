//! Where batches run: tensors, the traits of an engine, and the engines.
//!
//! An engine knows nothing of requests, deadlines or clients: a session takes a batch of inputs and
//! returns as many outputs. `dispatch` decides which batch runs, when and where.

#[cfg(feature = "cuda")]
pub mod cuda;
mod cut;
mod datatype;
mod emulated;
mod engine;
mod gpu;
mod length;
mod onnx;
mod signature;
mod tensor;
pub mod thread;

pub use cut::{Cut, CutError};
pub use datatype::DataType;
pub use emulated::Emulated;
pub use engine::{Ended, Engine, EngineError, Inputs, Model, Outputs, Running, Session, Source};
pub use gpu::{Gpu, Memory, Pressure, Seat};
pub use onnx::OnnxRuntime;
pub use signature::{Length, Padding, Signature, TensorSpec};
pub use tensor::Tensor;
