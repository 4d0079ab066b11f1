//! Opens an ONNX file, and makes a signature of its specs.

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};

use super::one_line;
use super::specs::Specs;
use crate::{Signature, Source, TensorSpec};

/// The largest batch of a file that has a batch axis, since a file does not declare it.
const MAX_BATCH: usize = 128;

/// Opens a file to run it.
pub(super) fn open(environment: &Environment, source: &Source) -> Result<Session, String> {
    commit(options(environment, source.threads).map_err(|error| one_line(&error))?, source)
}

/// Opens a file only to read its inputs and outputs.
#[cfg(feature = "cuda")]
pub(crate) fn read(environment: &Environment, source: &Source) -> Result<Session, String> {
    let builder = options(environment, source.threads)
        .and_then(|builder| Ok(builder.with_optimization_level(GraphOptimizationLevel::Disable)?))
        .map_err(|error| one_line(&error))?;
    commit(builder, source)
}

/// Opens a file with the options of a builder.
pub(crate) fn commit(mut builder: SessionBuilder, source: &Source) -> Result<Session, String> {
    std::fs::File::open(&source.file).map_err(|error| one_line(&error))?;
    builder.commit_from_file(&source.file).map_err(|error| {
        let reason = one_line(&error);
        // The error is printed with the name of the file.
        let again = format!("Load model from {} failed:", source.file.display());
        reason.strip_prefix(&again).unwrap_or(&reason).to_owned()
    })
}

/// The options of all sessions, on any device.
pub(crate) fn options(environment: &Environment, threads: usize) -> ort::Result<SessionBuilder> {
    let builder = Session::builder(environment)?
        .with_intra_threads(threads.max(1))?
        .with_parallel_execution(false)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        // Helper threads spin while a batch runs, but not after it: the next batch belongs to
        // another session, which needs the cores.
        .with_config_entry("session.force_spinning_stop", "1")?;
    Ok(builder)
}

/// Takes the first axis as the batch if it is free on every tensor, and finds the length.
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
