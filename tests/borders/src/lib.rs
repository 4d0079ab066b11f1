//! Reads the sources of a crate and finds what Cargo cannot see: modules that use each other in a
//! circle, and names that a crate must not use.
//!
//! Sources are read as tokens, so paths inside macros count too. Code under `#[cfg(test)]` does
//! not: tests may use what they like.

mod crates;
mod cycle;
mod module;
mod scan;

pub use crates::{CrateRules, Mention, read_crate};
pub use cycle::{Cycle, cycles};
pub use module::{CrateModules, ModuleId};
