//! How many GPUs, which models where, which share of a GPU, and how a query's objective is split: pure functions
//! from a problem to a plan.
//!
//! There is no IO, no clock, no thread and no random number here, and nothing fails: what cannot be had is a part of
//! the plan. Whether a plan holds is not asked here either: the caller tries it in the simulator.

mod plan;
mod problem;
mod round;

pub use plan::{Infeasible, Member, Plan, Pool, Reason};
pub use problem::{Demand, Kind, Problem};
pub use round::{Turn, shortest_round};
