//! How long batches take: measured once, kept beside the model, corrected while serving.

mod cache;
mod correct;
mod measure;
mod table;

use std::collections::BTreeMap;

use fermata_core::{Profile, Span};
use fermata_engine::{Engine, EngineError, Session, Signature, Source};

pub use cache::{Cache, CacheKey, Home, content_hash};
pub use correct::Corrector;
pub use measure::{Options, Step, measure, ones, warm};
pub use table::{Latency, Measured, Stop};

/// The profile of a model, as it is kept or else as it is measured now, and a session in which every size of it has
/// run. `shapes` are those of inputs that may have any.
pub fn cached_or_measured(
    engine: &dyn Engine,
    source: &Source,
    session: &mut dyn Session,
    signature: &Signature,
    slo: Span,
    shapes: &BTreeMap<String, Vec<i64>>,
) -> Result<Profile, EngineError> {
    let options = Options { shapes: shapes.clone(), ..Options::default() };
    let cache = Cache::of(&source.file);
    let key = CacheKey::of(engine, source, signature, &options)?;
    if let Some(measured) = cache.load(&key, slo, signature.max_batch) {
        warm(session, signature, measured.max_batch(), shapes)?;
        return Ok(measured.profile());
    }
    let file = source.file.display();
    tracing::info!(%file, "measuring latency by batch size");
    let measured = measure(session, signature, slo, &options, &mut |_| {})?;
    if let Stop::Failed(reason) = &measured.stop {
        let largest = measured.max_batch();
        tracing::warn!(%file, largest, reason, "larger batches fail");
    }
    if let Err(error) = cache.store(&key, &measured) {
        tracing::warn!(%file, %error, "the profile cannot be kept");
    }
    Ok(measured.profile())
}
