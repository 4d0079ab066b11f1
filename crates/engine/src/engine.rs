//! The traits of an engine: it loads models, makes sessions of them, and runs batches.

use std::path::PathBuf;
use std::sync::Arc;

use fermata_core::Span;

use crate::{Signature, Tensor};

/// The inputs of one request, in the order of the signature. The batch axis, if there is one, is 1:
/// a request of several rows is several items.
pub type Inputs = Vec<Tensor>;

/// The outputs of one request, in the order of the signature. The batch axis, if there is one, is
/// 1.
pub type Outputs = Vec<Tensor>;

/// Loads models.
pub trait Engine: Send + Sync {
    /// Its name, as in `fermata.toml`.
    fn name(&self) -> &'static str;

    /// The device, in words that distinguish devices of different speed.
    fn device(&self) -> String;

    /// Whether its sessions begin a batch while an earlier one runs, so that the batch waits on the
    /// device.
    fn runs_ahead(&self) -> bool {
        false
    }

    /// Reads a model, far enough to know its signature.
    fn load(&self, source: &Source) -> Result<Arc<dyn Model>, EngineError>;
}

/// Where a model is, and how it may use the machine.
#[derive(Clone, Debug)]
pub struct Source {
    /// The model's file.
    pub file: PathBuf,
    /// Threads that one session may use at a time.
    pub threads: usize,
    /// Bytes of a GPU's memory that one session may use for its computations; `None` for no limit.
    pub memory: Option<u64>,
}

/// A model that was read. Its memory is freed when it and its sessions are dropped.
pub trait Model: Send + Sync {
    /// The inputs and outputs, as the file declares them.
    fn signature(&self) -> &Signature;

    /// Makes a session, one for each executor. The signature may be narrower than the file's: fewer
    /// outputs, another order, a smaller batch.
    fn session(&self, signature: &Signature) -> Result<Box<dyn Session>, EngineError>;
}

/// A model that is ready to run on one executor, one batch at a time.
pub trait Session: Send {
    /// Runs a batch. Returns one result for each item, in order.
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError>;

    /// Begins a batch and returns before it has run, if the engine takes batches ahead: the inputs
    /// are copied while the batch before it runs. The batches of an executor run in the order in
    /// which they began, whatever their model. `None` from an engine that does not take batches
    /// ahead; an engine always answers the same way.
    fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
        let _ = batch;
        None
    }

    /// The size at which a batch of `size` items runs, and whose time it takes. It is larger if the
    /// engine pads batches.
    fn runs_as(&self, size: usize) -> usize {
        size
    }

    /// Whether batches of `size` items are known to have run before, so that they need no warm-up.
    fn is_warm(&self, size: usize) -> bool {
        let _ = size;
        false
    }
}

/// A batch that has begun.
pub trait Running: Send {
    /// Waits until the batch has ended. Dropping the value instead does not stop the batch.
    fn wait(self: Box<Self>) -> Result<Ended, EngineError>;
}

/// A batch that has run.
#[derive(Debug)]
pub struct Ended {
    /// One result for each item, in order.
    pub outputs: Vec<Outputs>,
    /// How long it had the device to itself: from the end of the batch before it, or from the
    /// moment its inputs were there.
    pub took: Span,
}

/// Why an engine could not do what it was asked to do.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine's library is missing or does not load.
    #[error("{0}")]
    Library(String),
    /// The model cannot be read or is not supported.
    #[error("{}: {reason}", file.display())]
    Load {
        /// The model's file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A batch failed.
    #[error("{0}")]
    Run(String),
    /// The executor is gone, with all that ran there. The batch may run again, or on another
    /// executor.
    #[error("{0}")]
    Lost(String),
}
