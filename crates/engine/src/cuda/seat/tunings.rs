//! The ways to run models that were found best.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::cuda::wire::{Granularity, Tuning};

/// A model's file, when it was written, and the GPU.
pub(super) type TuningKey = (PathBuf, Option<SystemTime>, String);

/// The ways that were chosen, and the sizes: the next seat, or one that comes back, need not measure again, and has the same.
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
