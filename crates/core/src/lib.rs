//! The shared words of Fermata: time, ids, requests and latency profiles.
//!
//! Arithmetic only: there is no clock, no IO and no dependency here.

mod id;
mod profile;
mod request;
mod time;

pub use id::{ClassId, ExecutorId, ModelId, RequestId};
pub use profile::{Profile, ProfileError};
pub use request::Request;
pub use time::{Span, Time};
