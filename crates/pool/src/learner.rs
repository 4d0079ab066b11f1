//! How the pool follows what batches take: what is learned belongs to its user.

use std::sync::Arc;

use fermata_core::{Profile, Span, Spread, Time};

/// Follows what batches of one model take on one class of executors. Told the time, never asking.
pub trait ProfileLearner: Send {
    /// Takes note that a batch of `size`, planned to take `planned`, ended at `now` after running
    /// for `took`. Gives the profile with which to go on, where it should change.
    fn observe(&mut self, now: Time, size: usize, planned: Span, took: Span) -> Option<Profile>;

    /// The requests themselves run otherwise than was thought. Gives the profile with which to go
    /// on.
    fn rebase(&mut self, spread: Arc<Spread>, slo: Span) -> Profile;
}

/// What a model's profiles are worth.
#[derive(Clone, Copy, Debug)]
pub enum Profiles {
    /// They are true, as those of what is emulated are.
    True,
    /// They were measured, and follow what batches take, each on its class. The function begins
    /// with a profile of a model with this objective.
    Measured(fn(Profile, Span) -> Box<dyn ProfileLearner>),
}
