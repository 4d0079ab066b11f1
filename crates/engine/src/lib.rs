//! Where batches run: the words for tensors, the trait of an engine, and the engines.
//!
//! An engine knows nothing of requests, deadlines or clients: a session gets a batch of inputs and gives
//! back as many outputs. Which batch, when and where is decided by `dispatch`.

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
