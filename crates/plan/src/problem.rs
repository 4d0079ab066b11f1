//! What is to be planned: demands on kinds of GPUs, by their places in two lists.

use fermata_core::{Profile, Span};

/// What is asked of one model under one objective. Nexus calls it a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// How long batches take on a whole GPU, by kind; `None` where the model does not run.
    pub profiles: Vec<Option<Profile>>,
    /// From arrival to answer.
    pub slo: Span,
    /// Requests a second.
    pub rate: f64,
    /// Bytes that the model's weights take on every GPU that holds it.
    pub memory: u64,
    /// Bytes that it needs while it runs: of the models on a GPU, only the largest such need
    /// counts.
    pub workspace: u64,
}

/// A kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Bytes of memory.
    pub memory: u64,
    /// What one costs an hour.
    pub price: f64,
    /// How many there are at most.
    pub limit: Option<usize>,
}

/// Demands, and the GPUs that there are for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// What is asked for.
    pub demands: Vec<Demand>,
    /// What there is. A demand has as many profiles.
    pub kinds: Vec<Kind>,
    /// How many GPUs there may be of all kinds together.
    pub limit: Option<usize>,
}

impl Demand {
    /// A demand on GPUs of one kind, which takes no memory worth counting.
    pub fn new(profile: Profile, slo: Span, rate: f64) -> Self {
        Self { profiles: vec![Some(profile)], slo, rate, memory: 0, workspace: 0 }
    }
}

impl Kind {
    /// As much memory as anybody wants, as many as anybody wants, one unit of money each.
    pub const UNLIMITED: Self = Self { memory: u64::MAX, price: 1.0, limit: None };
}

impl Problem {
    /// Demands on as many GPUs of one kind as it takes.
    pub fn new(demands: Vec<Demand>) -> Self {
        Self { demands, kinds: vec![Kind::UNLIMITED], limit: None }
    }
}
