//! Wakes a thread that sleeps because it has nothing to do, and costs hardly anything while it does
//! not.

use std::sync::OnceLock;
use std::time::Duration;

use crate::sync::{AtomicBool, Ordering, Thread, current, fence, park, park_timeout};

/// One thread's bell. Others ring it after they left something for it.
#[derive(Debug, Default)]
pub struct Bell {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Bell {
    /// Wakes the thread, if it sleeps.
    #[inline]
    pub fn ring(&self) {
        // Either this sees it asleep, or it sees what was left for it before it falls asleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Lets the calling thread sleep until it is rung for, or for so long (`None`: for ever); not
    /// at all, if there is work for it. Only one thread may.
    pub fn sleep(&self, longest: Option<Duration>, has_work: impl FnOnce() -> bool) {
        self.thread.get_or_init(current);
        // Whoever sees it asleep must see which thread it is.
        self.asleep.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if !has_work() {
            match longest {
                Some(longest) => park_timeout(longest),
                None => park(),
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}
