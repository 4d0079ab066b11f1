//! The server: the dispatcher against the clock, behind the Open Inference Protocol.

pub mod frontend;
pub mod inference;
pub mod proto;
pub mod served;
pub mod service;
