//! One inference, without a protocol: what a frontend hands in and what it gets back.

use std::time::{Duration, Instant};

use fermata_engine::Tensor;

pub use crate::kinds::Application;

/// A checked request for a model: names are resolved, shapes and sizes fit the signature.
#[derive(Clone, Debug)]
pub struct Call {
    /// All inputs, in the order of the signature.
    pub inputs: Vec<Tensor>,
    /// How many rows the batch axis has; 1 for a model without one.
    pub rows: usize,
    /// When it reached the server.
    pub arrival: Instant,
    /// The deadline that the request asks for, counted from `arrival`. The model's SLO, if `None`.
    pub timeout: Option<Duration>,
    /// How long the client will wait, where it says so: the deadline is never later.
    pub patience: Option<Duration>,
    /// The application that it is for, where it says so: requests of one application run alike.
    pub application: Option<Application>,
}

/// What came back from the model.
#[derive(Clone, Debug)]
pub struct Answer {
    /// All outputs, in the order of the signature.
    pub outputs: Vec<Tensor>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// The client went away. Nobody reads this.
    #[error("cancelled by the client")]
    Cancelled,
    /// The engine failed.
    #[error("{0}")]
    Internal(String),
    /// The request does not fit the protocol or the model.
    #[error("{0}")]
    Invalid(String),
    /// It is longer than can be in time, and was not begun. The message says what can be.
    #[error("{0}")]
    TooLong(String),
    /// It was answered, or given up, too late.
    #[error("the deadline passed before the answer was ready")]
    Missed,
    /// It cannot be in time, and was not begun.
    #[error("{reason}")]
    Shed {
        /// Why not.
        reason: Shed,
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// The model is there, but is not served now.
    #[error("{0}")]
    Unavailable(String),
    /// There is no such model or version.
    #[error("{0}")]
    Unknown(String),
    /// Part of the protocol that Fermata does not have.
    #[error("{0}")]
    Unsupported(String),
}

/// Why a request was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shed {
    /// Its deadline was nearer than the model is fast.
    #[error("late: the deadline is shorter than one execution of the model takes")]
    Late,
    /// It waited for its turn until it could no longer be in time.
    #[error("overload: the request could not be answered within its deadline")]
    Overload,
}

impl Shed {
    /// The reason as one word, for metrics and machine-readable errors.
    pub fn word(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Overload => "overload",
        }
    }
}
