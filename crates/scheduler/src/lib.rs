//! A pool's machines on threads: shards of models, one hub, and what passes between them.
//!
//! `dispatch` has the machines and no threads; here are threads' ends and no decisions.
//! `docs/scheduler.md` has the protocol. There is no lock: what only matters in its newest form
//! (candidates, the market's signal) is in places that are written over ([`Latest`], [`Mailbox`]);
//! what must not be lost (promises, and how they were used) goes through rings with one writer and
//! one reader.

mod bell;
mod latest;
mod link;
mod mailbox;
mod rank_side;
mod runtime;
mod sync;

pub use bell::Bell;
pub use latest::Latest;
pub use link::{HubEnd, Room, ShardEnd, link};
pub use mailbox::Mailbox;
pub use rank_side::{Executors, RankSide};
pub use runtime::{Alarm, RealTime, Runtime, Started, span};
