//! The batch that a model would send now.

use fermata_core::Time;

/// The batch that a model would send now, as the rank machine sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// How many requests it has.
    pub size: u32,
    /// It may be granted from then on.
    pub ready: Time,
    /// It may be granted until then.
    pub latest: Time,
    /// When the least urgent of them must be done.
    pub due_last: Time,
    /// Of several ready candidates the one with the least goes first.
    pub urgency: Time,
}

impl Candidate {
    /// Whether it is not ready yet, and will be before its latest moment: a timeout may be longer
    /// than that.
    #[inline]
    pub(crate) fn is_held(&self, now: Time) -> bool {
        now < self.ready && self.ready <= self.latest
    }
}
