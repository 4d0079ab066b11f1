//! Opens an ONNX file, and makes a signature of what it says of itself.

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};

use super::one_line;
use super::specs::Specs;
use crate::{Signature, Source, TensorSpec};

/// The largest batch of a file that has a batch axis, since files do not say.
const MAX_BATCH: usize = 128;

/// Makes a file ready to run.
pub(super) fn open(environment: &Environment, source: &Source) -> Result<Session, String> {
    commit(options(environment, source.threads).map_err(|error| one_line(&error))?, source)
}

/// Reads a file for what goes in and what comes out only.
#[cfg(feature = "cuda")]
pub(crate) fn read(environment: &Environment, source: &Source) -> Result<Session, String> {
    let builder = options(environment, source.threads)
        .and_then(|builder| Ok(builder.with_optimization_level(GraphOptimizationLevel::Disable)?))
        .map_err(|error| one_line(&error))?;
    commit(builder, source)
}

/// Makes a file ready to run, in the way that was chosen.
pub(crate) fn commit(mut builder: SessionBuilder, source: &Source) -> Result<Session, String> {
    std::fs::File::open(&source.file).map_err(|error| one_line(&error))?;
    builder.commit_from_file(&source.file).map_err(|error| {
        let reason = one_line(&error);
        // Whoever prints the error names the file.
        let again = format!("Load model from {} failed:", source.file.display());
        reason.strip_prefix(&again).unwrap_or(&reason).to_owned()
    })
}

/// How sessions are made, wherever they run.
pub(crate) fn options(environment: &Environment, threads: usize) -> ort::Result<SessionBuilder> {
    let builder = Session::builder(environment)?
        .with_intra_threads(threads.max(1))?
        .with_parallel_execution(false)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        // Helper threads spin while a batch runs, and not after it: the next batch is another session's,
        // which needs the cores.
        .with_config_entry("session.force_spinning_stop", "1")?;
    Ok(builder)
}

/// Reads a first axis of any length on every tensor as the batch, and finds the length.
pub(crate) fn signature(specs: Specs) -> Signature {
    let length = super::length::find(&specs);
    let whole = Signature { max_batch: 0, inputs: specs.inputs, outputs: specs.outputs, length };
    let mut all = whole.inputs.iter().chain(&whole.outputs);
    if whole.inputs.is_empty() || !all.all(|spec| spec.shape.first() == Some(&-1)) {
        return whole;
    }
    let rest = |spec: &TensorSpec| TensorSpec { shape: spec.shape[1..].to_vec(), ..spec.clone() };
    let narrow = Signature {
        max_batch: MAX_BATCH,
        inputs: whole.inputs.iter().map(rest).collect(),
        outputs: whole.outputs.iter().map(rest).collect(),
        length: None,
    };
    narrow.with_length_of(&whole)
}
