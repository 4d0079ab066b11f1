//! Bindings to CUDA's driver: devices, streams, memory, captured graphs and shares of a GPU, as
//! values that give back what they hold. Only a worker process calls them; the server's process
//! never loads the driver.

mod graph;
mod green;
mod handles;

pub(super) use graph::{Exec, Graph};
pub(super) use green::Green;
pub(super) use handles::{
    Buffer, Context, CudaError, Device, Event, Kernel, Pinned, Stream, count, start,
};
