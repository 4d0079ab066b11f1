//! The Open Inference Protocol with Triton's extensions, over HTTP/REST and gRPC.
//!
//! The two protocols read a request into the same words (`check::Input`, `check::Wanted`), so that
//! what is checked, and how it is said, is the same for both. Nothing here knows of batches or
//! executors: a checked call goes to `Served::infer`, whose future belongs to the connection.
//! Dropping the connection drops it.

mod check;
mod classify;
mod deadline;
mod describe;
#[cfg(test)]
mod fixture;
pub mod grpc;
pub mod http;
mod json;
mod payload;
mod prometheus;
mod settings;
mod shared_memory;
pub mod status;
mod strings;

use std::sync::Arc;

use crate::service::Service;

pub use settings::LogControl;

use settings::Settings;
use shared_memory::Regions;

/// The name that the server gives itself in its metadata.
pub const SERVER_NAME: &str = "fermata";

/// The version that the server gives itself in its metadata.
pub const SERVER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The parts of the protocol beyond its core, by the names that Triton gives them.
const EXTENSIONS: [&str; 11] = [
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
];

/// What the connections of both protocols share.
pub struct Frontend {
    service: Arc<Service>,
    regions: Regions,
    settings: Settings,
    limits: Limits,
}

/// How much a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest request, in bytes, as it is received and also after it was decompressed.
    pub request_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request_bytes: 64 << 20 }
    }
}

impl Frontend {
    /// A frontend to this service. Clients may change the level of the log through `log`.
    pub fn new(service: Arc<Service>, limits: Limits, log: Box<dyn LogControl>) -> Self {
        Self { service, regions: Regions::default(), settings: Settings::new(log), limits }
    }
}
