//! How punctual the kernel wakes a thread.

/// Asks for wakeups within a microsecond of the time given, in place of the usual fifty. For the calling
/// thread and those that it starts.
pub(crate) fn shorten() {
    let slack = std::num::NonZeroU64::new(1_000);
    if let Err(error) = rustix::thread::set_current_timer_slack(slack) {
        tracing::debug!(%error, "wakeups may be late by fifty microseconds");
    }
}
