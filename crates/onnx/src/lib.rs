//! ONNX files: the part of their schema that is needed, a builder of graphs, and well-known
//! networks with random weights.
//!
//! Nothing runs here, and nothing is trained: a network has the shape, and so the speed, of the one
//! that was published, and its answers mean nothing. Weights are drawn while a file is written, so
//! that a model takes no memory to speak of.

pub mod builder;
mod element;
mod model;
pub mod proto;
mod values;
pub mod zoo;

pub use model::{Model, TensorSpec};
