//! The server's side: starts worker processes, asks them to load and run models, and starts them
//! again when they end. It runs in the server's process, which loads nothing of CUDA.

mod link;
mod model;
mod mps;
mod opened;
mod tunings;
mod worker_seat;
mod workers;

pub use worker_seat::NAME;
pub use workers::{SUBCOMMAND, Workers};
