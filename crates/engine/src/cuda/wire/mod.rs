//! What the server's process and a worker process share: messages over a socket, and memory through
//! which batches come and go. Both processes run this code, because they run the same program.

mod form;
mod granularity;
mod message;
mod region;
mod tuning;

pub(super) use form::{Column, Form};
pub(super) use granularity::Granularity;
pub(super) use message::{Answer, Ask, Failure, Head, Question, Reply, SharePlace, read, write};
pub(super) use region::Region;
pub(super) use tuning::Tuning;
