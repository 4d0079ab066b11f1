//! The share of a GPU that a worker has.

use std::sync::{Arc, Mutex, PoisonError};

use crate::cuda::driver::{Context, Device, Green};

/// A share of a GPU. Every share that a worker takes has another number.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) number: u64,
    pub(super) device: Device,
    /// `None` for the whole GPU.
    pub(super) green: Option<Green>,
    pub(super) multiprocessors: u32,
}

impl Share {
    pub(super) fn context(&self) -> Context {
        self.green.as_ref().map_or_else(|| self.device.context(), Green::context)
    }
}

/// The share on which batches begin.
pub(super) struct CurrentShare(Mutex<Arc<Share>>);

impl CurrentShare {
    pub(super) fn new(share: Share) -> Self {
        Self(Mutex::new(Arc::new(share)))
    }

    pub(super) fn get(&self) -> Arc<Share> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, share: Arc<Share>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = share;
    }
}
