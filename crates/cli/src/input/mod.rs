//! What the files of several commands say of models: how long batches take, when requests come, and
//! what spare executors are for.

mod load;
mod profile;
mod spare;

pub(crate) use load::{Latency, LatencyKeys, arrivals, copies_of, one, poisson};
pub(crate) use spare::{says_spare, spare};

/// Larger pools are a slip of the keyboard.
pub(crate) const GPUS_MAX: usize = 100_000;
