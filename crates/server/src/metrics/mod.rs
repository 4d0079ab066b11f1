//! What is counted, and how it is told: Prometheus' text format, and one snapshot for the status page.

mod advice;
mod filled;
mod model;
mod names;
mod prometheus;

pub use advice::{Advice, Advisor, Change, Sample};
pub(crate) use filled::{classes, filled_load};
pub use model::{BatchCount, Latencies, ModelMetrics, Outcome};
pub use prometheus::render;
