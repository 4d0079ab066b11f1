//! The ways to run a model that are tried.

use serde::{Deserialize, Serialize};

/// A way to run a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tuning {
    /// Channels last, as tensor cores want them.
    pub(crate) nhwc: bool,
    /// cuDNN looks longer for the best way to run each convolution, for every batch size.
    pub(crate) search: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { nhwc: true, search: false }
    }
}

impl Tuning {
    /// Those that are measured when a model is made ready, and what part of the best time so far one must stay below to be chosen: to search
    /// must pay for the time that it takes.
    pub(crate) const CANDIDATES: [(Self, f32); 3] = [
        (Self { nhwc: true, search: false }, 1.0),
        (Self { nhwc: false, search: false }, 1.0),
        (Self { nhwc: true, search: true }, 0.97),
    ];
}
