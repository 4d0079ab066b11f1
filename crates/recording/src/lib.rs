//! What happened to each dispatcher, when, and what it decided: enough to run it again, to the same
//! actions.
//!
//! A text file, a line each: the pools first, with the network's delays if there are any, then the
//! events of all pools as they came. Events are `POOL TIME WORD ...`, in nanoseconds since the
//! start; the actions that an event led to follow it, behind a `>`.
//!
//! ```text
//! fermata recording 1
//! pool 0 cpu fermata
//! 0 1200 join x0 c0
//! 0 2400 add m0 25000000 6125000,7178000 resnet50
//! 0 5000 arrive m0 r0 25005000
//! > run x0 m0 5000 6125000 r0
//! ```

mod check;
mod reader;
mod replay;
mod spread;
#[cfg(test)]
mod tests;
mod text;
mod writer;

pub use reader::{Entry, Header, ReadError, Reader};
pub use replay::{Difference, Replay, replay};
pub use writer::{Recorder, Recording};
