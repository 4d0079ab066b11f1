//! A request as dispatch sees it: who, since when, until when. Payloads live elsewhere.

use crate::{KindId, RequestId, Time};

/// One request that waits for, or is part of, a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When the answer must have reached the client.
    pub deadline: Time,
    /// Who it is; also breaks ties between equal deadlines.
    pub id: RequestId,
    /// When it entered.
    pub arrival: Time,
    /// What it runs like.
    pub kind: KindId,
}

impl Request {
    /// Queues are sorted by this: deadline first, then id.
    #[inline]
    pub fn key(&self) -> (Time, RequestId) {
        (self.deadline, self.id)
    }
}
