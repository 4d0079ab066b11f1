//! A GPU and the seats on it. The traits here are independent of the engine that provides them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{Cut, Engine, EngineError};

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its index on this machine.
    pub index: usize,
    /// Its name: `NVIDIA H200`.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// The step in which multiprocessors can be split off.
    pub step: u32,
}

impl Gpu {
    /// The name of a share with this many multiprocessors. Measurements are kept under this name,
    /// and hold for equal shares of equal GPUs.
    pub fn share_name(&self, multiprocessors: u32) -> String {
        format!("{}, {multiprocessors} of {} multiprocessors", self.name, self.multiprocessors)
    }
}

/// What is used of a GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use, by all processes together.
    pub used: u64,
    /// Bytes in all.
    pub total: u64,
}

/// What the shares of a GPU have in common, and `Seat::press` can keep busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pressure {
    /// The L2 cache.
    L2,
    /// The GPU's memory.
    Dram,
}

/// A place on a GPU where batches run one after the other, on one share of it. Other seats go on if
/// it breaks. Each seat loads its own models. Its [`Engine::device`] is the [`Gpu::share_name`] of
/// the share that it has.
pub trait Seat: Engine {
    /// The GPU that the seat is on.
    fn gpu(&self) -> &Gpu;

    /// Prepares the `part`-th share of a cut while batches run, so that [`Seat::set_share`] is
    /// quick. The preparation only takes memory, until that share is taken or another one is asked
    /// for.
    fn prepare_share(&self, _cut: &Cut, _part: usize) -> Result<(), EngineError> {
        Ok(())
    }

    /// Takes the `part`-th share of a cut, from the next batch on. Earlier batches end on the share
    /// before. Seats with different parts of one cut have no multiprocessor in common.
    fn set_share(&self, cut: &Cut, part: usize) -> Result<(), EngineError>;

    /// Whether the seat broke. Its sessions then stay unusable.
    fn is_lost(&self) -> bool;

    /// Starts the seat again, without models, on the share that it had. Earlier sessions stay
    /// unusable.
    fn restart(&self) -> Result<(), EngineError>;

    /// Ends the seat for good. Its running batches are lost.
    fn close(&self) {}

    /// The memory of its GPU.
    fn memory(&self) -> Result<Memory, EngineError>;

    /// Keeps what the shares have in common busy for `time`, as much as its share can. Returns the
    /// bytes per second that it achieved.
    fn press(&self, what: Pressure, time: Duration) -> Result<f64, EngineError>;
}
