//! A GPU and the seats on it, whoever provides them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{Cut, Engine, EngineError};

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its number.
    pub index: usize,
    /// Its name: `NVIDIA H200`.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// So many of them at a time can be cut off as a share.
    pub step: u32,
}

impl Gpu {
    /// What a share with so many multiprocessors is called: what is measured on it is kept by this name, and counts for equal shares of
    /// equal GPUs.
    pub fn share_name(&self, multiprocessors: u32) -> String {
        format!("{}, {multiprocessors} of {} multiprocessors", self.name, self.multiprocessors)
    }
}

/// What is used of a GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use, by anybody.
    pub used: u64,
    /// Bytes that there are.
    pub total: u64,
}

/// What the shares of a GPU have in common, and can be kept busy by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pressure {
    /// The L2 cache.
    L2,
    /// The memory.
    Dram,
}

/// A place on a GPU where batches run one after the other, on one share of it, apart from what runs on other seats: if it breaks,
/// they go on. Models are loaded on each seat by itself. Its [`Engine::device`] is [`Gpu::share_name`] of the share that it has.
pub trait Seat: Engine {
    /// On which GPU.
    fn gpu(&self) -> &Gpu;

    /// Makes ready to take the `part`-th share of a cut, beside what runs: [`Seat::set_share`] is quick then. Nothing changes by it but
    /// the memory that it takes, until that share is taken or another one asked for.
    fn prepare_share(&self, _cut: &Cut, _part: usize) -> Result<(), EngineError> {
        Ok(())
    }

    /// Takes the `part`-th share of a cut from the next batch on. What was begun before ends on the share that there was.
    /// Seats with different parts of one cut have no multiprocessor in common.
    fn set_share(&self, cut: &Cut, part: usize) -> Result<(), EngineError>;

    /// Whether it broke. Its sessions are of no use then, nor will be.
    fn is_lost(&self) -> bool;

    /// Begins again, without models, on the share that it had. Sessions of before stay lost.
    fn restart(&self) -> Result<(), EngineError>;

    /// Ends it, for good. What it runs is lost.
    fn close(&self) {}

    /// The memory of its GPU.
    fn memory(&self) -> Result<Memory, EngineError>;

    /// Keeps what the shares have in common busy for so long, as much as its share can. Gives the bytes a second that it got.
    fn press(&self, what: Pressure, time: Duration) -> Result<f64, EngineError>;
}
