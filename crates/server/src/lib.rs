//! The server: the dispatcher against the clock, behind the Open Inference Protocol.
//!
//! A request is checked by a frontend, runs as a [`served::Served`] model in a [`pool`], and is answered by
//! the frontend. Loading, profiling and counting happen beside it.

pub mod control;
pub mod fleet;
pub mod frontend;
pub mod gpu;
pub mod inference;
mod kinds;
mod loader;
pub mod metrics;
pub mod planning;
pub mod pool;
pub mod profiler;
pub mod registry;
pub mod repository;
pub mod served;
pub mod server;
pub mod service;
pub mod spare;
mod statistics;
