//! How long batches take: measured once, kept beside the model, corrected while serving.

mod cache;
mod correct;
mod measure;
mod table;

pub use cache::{Cache, CacheKey, Home, content_hash};
pub use correct::Corrector;
pub use measure::{Options, Step, measure, ones, warm};
pub use table::{Latency, Measured, Stop};
