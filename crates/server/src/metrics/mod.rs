//! What is counted.

mod advice;
mod filled;
mod model;

pub use advice::{Advice, Advisor, Change, Sample};
pub(crate) use filled::{classes, filled_load};
pub use model::{BatchCount, Latencies, ModelMetrics, Outcome};
