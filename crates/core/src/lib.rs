//! The shared words of Fermata: time, ids, requests, latency profiles and distributions.
//!
//! Arithmetic only: there is no clock, no IO and no dependency here.

mod distribution;
mod growth;
mod history;
mod id;
mod profile;
mod request;
mod spread;
mod time;

pub use distribution::{BINS, Distribution, Grid};
pub use growth::Growth;
pub use history::History;
pub use id::{ClassId, ExecutorId, KindId, ModelId, RequestId};
pub use profile::{Profile, ProfileError, Table};
pub use request::Request;
pub use spread::{KINDS_MAX, Measured, Spread, SpreadError};
pub use time::{Span, Time};
