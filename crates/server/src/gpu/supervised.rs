//! A seat, and what is known of whether it can be used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire};

use fermata_engine::Seat;

/// A seat of a GPU. Its place among all of them is its origin in the pool.
pub(super) struct SupervisedSeat {
    pub(super) seat: Arc<dyn Seat>,
    /// Somebody is about to start it again.
    down: AtomicBool,
    /// How often it was started again: sessions of before are of no use.
    restarts: AtomicU64,
}

impl SupervisedSeat {
    pub(super) fn new(seat: Arc<dyn Seat>) -> Self {
        Self { seat, down: AtomicBool::new(false), restarts: AtomicU64::new(0) }
    }

    /// Whether it can be asked for something, as far as anybody knows.
    pub(super) fn is_up(&self) -> bool {
        !self.down.load(Acquire) && !self.seat.is_lost()
    }

    /// It broke. Whoever is told so first must start it again.
    pub(super) fn set_down(&self) -> bool {
        !self.down.swap(true, AcqRel)
    }

    pub(super) fn set_up(&self) {
        self.down.store(false, std::sync::atomic::Ordering::Release);
    }

    pub(super) fn restarted(&self) {
        self.restarts.fetch_add(1, AcqRel);
    }

    pub(super) fn restarts(&self) -> u64 {
        self.restarts.load(Acquire)
    }
}

impl fmt::Debug for SupervisedSeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisedSeat").field("restarts", &self.restarts).finish_non_exhaustive()
    }
}
