//! The server: the dispatcher against the clock, behind the Open Inference Protocol.

pub mod inference;
pub mod profiler;
pub mod proto;
pub mod repository;
pub mod served;
pub mod service;
