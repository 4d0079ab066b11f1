//! The tunings that were found fastest, by model and GPU.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::cuda::wire::{Granularity, Tuning};

/// A model's file, when it was written, and the GPU.
pub(super) type TuningKey = (PathBuf, Option<SystemTime>, String);

/// The fastest tunings, with the captured sizes. A second seat, or one that restarts, does not
/// measure again and runs a model the same way.
#[derive(Debug, Default)]
pub(super) struct Tunings(Mutex<HashMap<TuningKey, (Tuning, Granularity)>>);

impl Tunings {
    pub(super) fn get(&self, key: &TuningKey) -> Option<(Tuning, Granularity)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    pub(super) fn keep(&self, key: TuningKey, captured: (Tuning, Granularity)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, captured);
    }
}
