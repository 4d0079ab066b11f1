//! What an engine is.

use std::path::PathBuf;
use std::sync::Arc;

use fermata_core::Span;

use crate::{Signature, Tensor};

/// The inputs of one request, in the order of the signature. Where a model has a batch axis, it is 1 here:
/// a request of several rows is several items.
pub type Inputs = Vec<Tensor>;

/// The outputs of one request, in the order of the signature; the batch axis, if any, is 1.
pub type Outputs = Vec<Tensor>;

/// Loads models.
pub trait Engine: Send + Sync {
    /// Its name, as in `fermata.toml`.
    fn name(&self) -> &'static str;

    /// What it runs on, in words that tell two devices of different speed apart.
    fn device(&self) -> String;

    /// Whether its sessions begin a batch while the one before it runs: it waits on the device then.
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
    /// Bytes of a GPU's memory that one session may use for what it computes; as many as it wants, if `None`.
    pub memory: Option<u64>,
}

/// A model that was read. Dropping it and its sessions gives its memory back.
pub trait Model: Send + Sync {
    /// What goes in and what comes out, as the file says.
    fn signature(&self) -> &Signature;

    /// Makes ready to run with a signature that may be narrower than the file's: fewer outputs, another
    /// order, a smaller batch. One session for each executor.
    fn session(&self, signature: &Signature) -> Result<Box<dyn Session>, EngineError>;
}

/// A model made ready on one executor, which runs one batch at a time.
pub trait Session: Send {
    /// Runs a batch, and gives one result for each item, in order.
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError>;

    /// Begins a batch and returns before it has run, where the engine takes batches ahead: its inputs are on their way in
    /// while the one before it runs. Batches of an executor run in the order in which they were begun, whatever their
    /// model. `None` from an engine that does not; one always answers the same way.
    fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
        let _ = batch;
        None
    }

    /// The size at which a batch of so many is run: it takes as long. Larger, where an engine pads batches.
    fn runs_as(&self, size: usize) -> usize {
        size
    }

    /// Whether batches of so many are known to be nothing new to the engine: it need not be warmed for them.
    fn is_warm(&self, size: usize) -> bool {
        let _ = size;
        false
    }
}

/// A batch that was begun.
pub trait Running: Send {
    /// Waits until it has ended. Whoever drops it instead does not stop it.
    fn wait(self: Box<Self>) -> Result<Ended, EngineError>;
}

/// A batch that has run.
#[derive(Debug)]
pub struct Ended {
    /// One result for each item, in order.
    pub outputs: Vec<Outputs>,
    /// How long it had the device to itself: from the end of the one before it, or from when its inputs were there.
    pub took: Span,
}

/// Why an engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine's library is not there.
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
    /// The executor is gone, and what ran there with it: it may be run elsewhere, or again.
    #[error("{0}")]
    Lost(String),
}
