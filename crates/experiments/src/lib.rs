//! Published experiments and our own.

pub mod trials;
