//! Symphony's experiments (Chen and others), as values: which pools, loads and policies, and what
//! is measured.
//!
//! Nothing is printed or written here, and no clock is read: whoever renders the results says how
//! long they took. Every experiment can be made as small as a test needs.

mod cases;
mod changing;
mod grid;
mod lab;
mod model;
mod pool;
mod sweep;

pub use cases::{
    Case, Paper, figure6a, figure6b, figure9, figure10, figure11, figure13, figure14, table2,
};
pub use changing::{Changing, Interval, OFFERED_PEAK, changing_load};
pub use grid::{GRID_POLICIES, GRID_REQUESTS, Workload, grid, measure, sample};
pub use lab::{Contender, Effort, Lab, Meter};
pub use model::{Model, find, zoo_1080ti, zoo_a100};
pub use pool::{Pool, Reach, uncoordinated};
pub use sweep::{LoadPoint, figure2_pool, lone_wait, sweep};
