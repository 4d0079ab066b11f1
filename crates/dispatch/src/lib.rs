//! Which requests form a batch, when it starts and on which executor: a deterministic state
//! machine.
//!
//! There is no clock, thread, channel, lock, socket or random number here, and no iteration in hash
//! order: the same events give the same actions, byte for byte. The simulator and the server are
//! two loops around [`Dispatch::handle`] and [`Dispatch::next_wakeup`].

mod adaptive;
mod arrival_overlap;
mod arrival_stats;
mod baseline;
mod blocking;
mod candidate;
mod dispatcher;
mod event;
mod hub;
mod id_set;
mod in_flight;
mod lane;
mod min_tree;
mod model;
mod policy;
mod price;
mod queue;
mod rank;
mod rules;
mod shard;
mod spread;
mod tuning;
mod variant;

pub use adaptive::Adaptive;
pub use arrival_stats::ArrivalStats;
pub use baseline::orloj::{HullQueue, Point};
pub use blocking::Need;
pub use candidate::Candidate;
pub use dispatcher::Dispatcher;
pub use event::{Action, Actions, BATCHES_MAX, Dispatch, DropReason, Event, ModelSpec, Network};
pub use hub::Hub;
pub use id_set::IdSet;
pub use in_flight::InFlight;
pub use lane::Arrival;
pub use min_tree::MinTree;
pub use model::{ModelMachine, Start, staggered_batch};
pub use policy::Policy;
pub use price::{Market, Report, Signal};
pub use rank::{Grant, RankMachine};
pub use rules::{Gather, Rules, Spare, Timeout, Window};
pub use shard::{News, PostedCandidate, Promise, Shard, ToHub};
