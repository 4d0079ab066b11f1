//! A request on its way: what dispatch does not see of it.

use std::sync::Arc;
use std::time::Instant;

use fermata_core::{KindId, RequestId, Span, Time};
use fermata_dispatch::DropReason;
use fermata_engine::{Inputs, Outputs};
use tokio::sync::oneshot;

use crate::served::Served;

/// So many executors may break under one request. It may be what breaks them, and must not break them all.
const LOSSES_MAX: u8 = 2;

/// A request, or one row of one, that waits or runs. It is answered once.
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
    /// To whoever waits for it; `None` when it was answered.
    reply: Option<Reply>,
    /// How many executors broke while they had it.
    losses: u8,
}

type Reply = oneshot::Sender<Result<Finished, Refused>>;

impl Job {
    /// A request that nobody had yet.
    pub(crate) fn new(
        id: RequestId,
        deadline: Time,
        kind: KindId,
        arrival: Instant,
        inputs: Inputs,
        served: Arc<Served>,
        reply: Reply,
    ) -> Self {
        let (reply, losses) = (Some(reply), 0);
        Self { id, deadline, kind, arrival, inputs, served, reply, losses }
    }

    /// Whether it is still to be answered. Dispatch may not yet know of one that is not.
    pub(super) fn is_open(&self) -> bool {
        self.reply.is_some()
    }

    /// Answers it, if that was not done.
    pub(super) fn answer(&mut self, answer: Result<Finished, Refused>) {
        if let Some(reply) = self.reply.take() {
            // A client that went away needs no answer.
            let _ = reply.send(answer);
        }
    }

    /// The executor that had it broke. Whether it is to run again: not for a client that went away, and not too often.
    pub(super) fn come_back(&mut self) -> bool {
        self.losses += 1;
        if self.reply.as_ref().is_some_and(oneshot::Sender::is_closed) {
            self.reply = None;
        } else if self.losses >= LOSSES_MAX {
            let reason = format!("{LOSSES_MAX} executors broke while they ran it");
            self.answer(Err(Refused::Failed(reason)));
        }
        self.is_open()
    }
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
