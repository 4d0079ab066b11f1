//! What a part of a query can do: how long it takes, with how many GPUs.

use fermata_core::{Profile, Span};

use super::Budget;

/// What a part of a query can do: take so long, with so many GPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) time: Span,
    pub(super) gpus: f64,
    /// The batch of a call; else the points of the two parts that this one is made of.
    pub(super) from: (u32, u32),
}

impl Point {
    /// The batch of a call.
    pub(super) fn batch(&self) -> usize {
        self.from.0 as usize
    }
}

/// The batches of a stage within `limit`, without those for which another takes no longer and needs
/// no more GPUs. From the fastest to the cheapest.
pub(super) fn front(profile: &Profile, rate: f64, budget: Budget, limit: Span) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::with_capacity(profile.max_batch().min(128));
    let per_nanosecond = rate * 1e-9;
    for batch in 1..=profile.max_batch() {
        let time = budget.time(profile.latency(batch));
        if time > limit {
            break;
        }
        let gpus = per_nanosecond * profile.cost(batch);
        match points.last_mut() {
            Some(last) if gpus >= last.gpus => {}
            Some(last) if time == last.time => (last.gpus, last.from.0) = (gpus, batch as u32),
            _ => points.push(Point { time, gpus, from: (batch as u32, 0) }),
        }
    }
    points
}
