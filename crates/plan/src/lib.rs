//! How many GPUs, which models where, which share of a GPU, and how a query's objective is split:
//! pure functions from a problem to a plan.
//!
//! There is no IO, no clock, no thread and no random number here, and nothing fails: what cannot be
//! had is a part of the plan. Whether a plan holds is not asked here either: the caller tries it in
//! the simulator.

pub mod advice;
mod packing;
mod plan;
mod pools;
mod problem;
pub mod query;
mod round;
pub mod shares;
mod solve;
pub mod subclusters;

pub use packing::{
    Exact, Packer, Repacked, Saturated, Session, Set, best_fit, configuration_bound, exact,
    fluid_bound, oblivious, occupancy, repack, saturate, squishy,
};
pub use plan::{Infeasible, Member, Plan, Pool, Reason};
pub use pools::{executors_for, least_load, staggered_batch, staggered_load};
pub use problem::{Demand, Kind, Problem};
pub use round::{Turn, shortest_round};
pub use solve::{Method, solve, solve_with_shares};
