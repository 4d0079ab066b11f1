//! The standard library's primitives, or those of the model checker: `RUSTFLAGS="--cfg loom"`.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
}

pub(crate) use real::*;
