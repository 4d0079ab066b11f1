//! A request on its way: what dispatch does not see of it.

use std::sync::Arc;
use std::time::Instant;

use fermata_core::{KindId, RequestId, Span, Time};
use fermata_dispatch::DropReason;
use fermata_engine::{Inputs, Outputs};
use tokio::sync::oneshot;

use crate::served::Served;

/// A request, or one row of one, that waits or runs. It leaves through `reply`, once.
#[derive(Debug)]
pub(crate) struct Job {
    /// Who it is to dispatch.
    pub(crate) id: RequestId,
    /// When its answer must have reached the client.
    pub(crate) deadline: Time,
    /// What it runs like.
    pub(crate) kind: KindId,
    /// When it reached the server.
    pub(crate) arrival: Instant,
    /// What goes in.
    pub(crate) inputs: Inputs,
    /// The model. Holding it keeps the model's sessions until the request has left.
    pub(crate) served: Arc<Served>,
    /// To whoever waits for it.
    pub(crate) reply: oneshot::Sender<Result<Finished, Refused>>,
}

/// A request that ran.
#[derive(Debug)]
pub(crate) struct Finished {
    /// What came out.
    pub(crate) outputs: Outputs,
    /// From its arrival until its batch began.
    pub(crate) queued: Span,
}

/// Why a request did not run, or gave nothing.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Dispatch dropped it.
    Dropped(DropReason),
    /// The engine failed.
    Failed(String),
}
