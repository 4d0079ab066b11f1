//! Orloj's experiments (Yu and others), as values: run times that depend on the input, on one
//! worker.
//!
//! The paper leaves open how loaded its worker was, how batches grow and which sizes there are.
//! Here they are two [`Setting`]s, said in every table, and a load that is swept. Nothing is
//! printed or written here.

mod clairvoyant;
mod trial;

pub use clairvoyant::Clairvoyant;
pub use trial::{Known, Setting, Trial};
