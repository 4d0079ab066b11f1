//! The standard library's primitives, or those of the model checker: `RUSTFLAGS="--cfg loom"`.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use std::thread::{Thread, current, park, park_timeout};
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use loom::thread::{Thread, current, park};

    /// Time does not pass in a model: it may end at once, or never.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        loom::thread::yield_now();
    }
}

pub(crate) use real::*;
