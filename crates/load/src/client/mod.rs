//! A client of the Open Inference Protocol, over HTTP and gRPC, without encryption.
//!
//! `Target` is where, `response` reads what comes back over HTTP without doing any IO, `http` and
//! `grpc` make single calls. What must be fast, many requests over many connections, is in this
//! crate's other modules.

pub(crate) mod grpc;
pub mod http;
pub(crate) mod response;
mod target;

pub use target::{Protocol, Target};

/// Why a call to a server gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It answered, and refused.
    #[error("{message} ({code})")]
    Refused {
        /// How it says so.
        code: Code,
        /// Why.
        message: String,
    },
    /// It could not be reached, or broke off.
    #[error("{0}")]
    Unreachable(String),
}

/// How a server says that it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A status of gRPC.
    Grpc(u32),
    /// A status of HTTP.
    Http(u16),
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Grpc(status) => write!(f, "gRPC status {status}"),
            Self::Http(status) => write!(f, "HTTP status {status}"),
        }
    }
}

impl CallError {
    /// Both kinds, as one line about this server.
    pub fn at(&self, target: &Target) -> String {
        match self {
            Self::Refused { .. } => format!("{target} refused: {self}"),
            Self::Unreachable(reason) => {
                let other = target.other_hint();
                format!(
                    "{target} cannot be reached: {reason}; is the server running, and is this its \
                     {other}?"
                )
            }
        }
    }
}
