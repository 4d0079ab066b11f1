//! Who asks for what and when: seeded arrival processes, popularity, changing rates, recorded
//! traces.
//!
//! Every stream has its own generator, seeded from the run's seed and the stream's number, so that
//! adding one stream, or a fault, does not shift another. There is no clock here; streams yield
//! moments.

mod gaps;
mod popularity;
mod rate;
mod stream;
mod trace;

pub use gaps::{GapTable, Gaps, Process, ProcessError};
pub use popularity::Popularity;
pub use rate::Rate;
pub use stream::Stream;
pub use trace::{Counts, FunctionCounts, LineError, Recording, TraceError};
