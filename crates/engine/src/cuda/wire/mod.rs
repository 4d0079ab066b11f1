//! What the server's process and a worker process share: messages over a socket, and memory through
//! which batches come and go. Both processes run it, since they are the same program.

mod form;
mod grain;
mod message;
mod region;
mod tuning;

pub(super) use form::{Column, Form};
pub(super) use grain::Grain;
pub(super) use message::{Answer, Ask, Failure, Head, Place, Question, Reply, read, write};
pub(super) use region::Region;
pub(super) use tuning::Tuning;
