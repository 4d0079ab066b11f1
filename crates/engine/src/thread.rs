//! What threads ask of the kernel.

use std::io;
use std::num::NonZeroU64;

/// Asks for wakeups at the time given, in place of up to fifty microseconds later, which saves power. For the calling
/// thread and those that it starts. Where it cannot be set, wakeups are that much less precise.
pub fn be_punctual() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Lets the calling thread, and those that it starts, wait until a core is free when they are woken, in place of
/// driving away who runs there.
///
/// A thread that reads requests is woken by each of them. If it drives away the client that was about to send the
/// next, or the executor that would have answered another, everyone does one thing at a time: three times as many
/// switches and half as many requests, where cores are scarce. Where a core is free it makes no difference.
pub fn yield_to_others() -> io::Result<()> {
    set_scheduling(libc::SCHED_BATCH)
}

/// Undoes [`yield_to_others`], for the calling thread and those that it starts.
pub fn yield_to_nobody() -> io::Result<()> {
    set_scheduling(libc::SCHED_OTHER)
}

#[allow(unsafe_code)]
fn set_scheduling(policy: libc::c_int) -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads the one parameter, which outlives it; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
