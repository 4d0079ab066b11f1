//! Virtual time around the production dispatcher: emulated executors and network, noise, faults,
//! statistics, checkers of its invariants, searches for goodput and for the fewest executors, and
//! trials of plans ([`confirm`]) and of cuts of a GPU ([`weigh`]).
//!
//! Time is an integer that jumps from event to event; a second of traffic costs what its requests
//! cost. There is no clock here. Runs are independent values, so a search spreads them over the
//! cores.

mod alone;
mod check;
mod closed;
pub mod confirm;
mod control;
mod delayed;
mod feed;
mod histogram;
mod latencies;
mod scenario;
mod search;
mod stats;
pub mod weigh;
mod world;

pub use alone::{Alone, Peak};
pub use check::{Checker, Log, Promises};
pub use closed::{Answers, LoadPhase, Source, run_phases};
pub use control::{Control, Seen};
pub use delayed::Delayed;
pub use feed::Drawn;
pub use histogram::Histogram;
pub use latencies::Latencies;
pub use scenario::{Arrivals, End, Fault, FaultKind, Load, Scenario, Sizes};
pub use search::{
    BAD_MAX, NEAR, Search, fewest_near, goodput, highest_near, is_good, min_executors, passes,
    passes_drawn, run, run_drawn, spread,
};
pub use stats::{ModelStats, Stats};
pub use world::{Observer, Run, simulate, simulate_controlled, simulate_drawn};
