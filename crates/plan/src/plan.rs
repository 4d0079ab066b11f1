//! What a planner answers: pools of executors, what each holds, and what cannot be had.

use fermata_core::Span;

/// An answer to a problem.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Executors that hold the same models.
    pub pools: Vec<Pool>,
    /// No plan of this kind has fewer GPUs. Zero, if nothing is known.
    pub lower_bound: usize,
    /// Demands that are not served, or not wholly.
    pub infeasible: Vec<Infeasible>,
}

/// Executors that hold the same models: dispatch may send any of these models to any of these
/// executors.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The kind of its GPUs.
    pub kind: usize,
    /// The GPUs on which it has an executor each, numbered over the whole plan. A GPU of which it
    /// has a share may be in other pools too.
    pub gpus: Vec<usize>,
    /// How much of a GPU each executor has, in percent.
    pub share: u32,
    /// How long one round through its models takes, if each executor is to run them in turns;
    /// `None`, if dispatch decides.
    pub round: Option<Span>,
    /// What it serves.
    pub members: Vec<Member>,
}

/// A demand, or a part of one, in a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// Its place in the list of demands.
    pub demand: usize,
    /// The part of its rate that is served here, in requests a second, by all executors together.
    pub rate: f64,
    /// The batch that is expected.
    pub batch: usize,
    /// The share of the time of all the pool's executors that it takes.
    pub occupancy: f64,
    /// How long a request takes at most, if all goes as planned.
    pub latency: Span,
}

/// A demand that cannot be met.
#[derive(Clone, Debug, PartialEq)]
pub struct Infeasible {
    /// Its place in the list of demands.
    pub demand: usize,
    /// Why, with what would make it feasible.
    pub reason: Reason,
}

/// Why a demand cannot be met.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The model runs on none of the kinds.
    NoProfile,
    /// Not even a request alone is answered in time: the objective would have to be this long.
    TooTight {
        /// The shortest objective that could be met.
        slo_min: Span,
    },
    /// No GPU has so much memory.
    TooLarge {
        /// What it needs.
        memory: u64,
        /// What the largest GPU has.
        most: u64,
    },
    /// The GPUs that there may be are used up.
    NoGpu {
        /// The part of its rate that is served.
        served: f64,
        /// How many GPUs all demands would need; zero if it is not known.
        gpus: usize,
    },
}

impl Plan {
    /// How many GPUs are used.
    pub fn gpus(&self) -> usize {
        self.pools.iter().flat_map(|pool| &pool.gpus).max().map_or(0, |&last| last + 1)
    }

    /// The part of a demand's rate that is served.
    pub fn served(&self, demand: usize) -> f64 {
        let members = self.pools.iter().flat_map(|pool| &pool.members);
        members.filter(|member| member.demand == demand).map(|member| member.rate).sum()
    }
}
