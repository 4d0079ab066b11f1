//! Settings of threads that the kernel provides.

use std::io;
use std::num::NonZeroU64;

/// Makes wake-ups of the calling thread, and of the threads that it starts, punctual. By default
/// the kernel delays them by up to 50 microseconds to save power. If the setting fails, wake-ups
/// stay less precise.
pub fn be_punctual() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Makes the calling thread, and the threads that it starts, wait for a free core when they are
/// woken, instead of preempting the thread that runs there.
///
/// Every request wakes the thread that reads it. If that thread preempts the client that is about
/// to send the next request, or the executor that is about to answer another, all of them handle
/// one request at a time: three times as many switches and half as many requests, where cores are
/// scarce. Where a core is free it makes no difference.
pub fn yield_to_others() -> io::Result<()> {
    set_scheduling(libc::SCHED_BATCH)
}

/// Undoes [`yield_to_others`] for the calling thread and the threads that it starts.
pub fn yield_to_nobody() -> io::Result<()> {
    set_scheduling(libc::SCHED_OTHER)
}

#[expect(unsafe_code, reason = "the call has no safe form in rustix")]
fn set_scheduling(policy: libc::c_int) -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads the one parameter, which outlives it; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
