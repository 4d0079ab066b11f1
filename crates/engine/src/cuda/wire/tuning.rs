//! The ways to run a model that are compared.

use serde::{Deserialize, Serialize};

/// A way to run a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tuning {
    /// Channels last, which tensor cores prefer.
    pub(crate) nhwc: bool,
    /// cuDNN searches longer for the fastest algorithm of each convolution, at every batch size.
    pub(crate) search: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { nhwc: true, search: false }
    }
}

impl Tuning {
    /// The candidates that are timed when a model is opened. Each comes with the fraction of the
    /// best time so far that it must stay below to be chosen: a search must pay for the time that
    /// it takes.
    pub(crate) const CANDIDATES: [(Self, f32); 3] = [
        (Self { nhwc: true, search: false }, 1.0),
        (Self { nhwc: false, search: false }, 1.0),
        (Self { nhwc: true, search: true }, 0.97),
    ];
}
