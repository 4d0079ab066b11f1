//! Experiments as values: which models, executors, loads and policies, and what is measured.
//!
//! Nothing is printed or written here. All but `scheduler` run in virtual time.

pub mod mixes;
pub mod orloj;
pub mod scheduler;
pub mod symphony;
