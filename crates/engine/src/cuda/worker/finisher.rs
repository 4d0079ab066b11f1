//! The thread that waits for batches and answers the server.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::fatal::exit_broken;
use super::host::HostedModel;
use super::responder::Responder;
use crate::cuda::driver::Device;
use crate::cuda::wire::Reply;

/// A batch that has begun.
pub(super) struct StartedBatch {
    pub(super) id: u64,
    pub(super) hosted: Arc<HostedModel>,
    pub(super) slot: usize,
}

/// Runs the thread.
pub(super) fn run_finisher(
    device: &Device,
    started: &Receiver<StartedBatch>,
    responder: &Responder,
) {
    if let Err(error) = device.set_current() {
        return exit_broken(&error);
    }
    for StartedBatch { id, hosted, slot } in started {
        match hosted.slot(slot).slot.events.wait() {
            Ok(ms) => {
                let ns = (f64::from(ms) * 1e6) as u64;
                responder.answer(id, Ok(Reply::Ran { ns, heads: None }));
            }
            // An error at the end of work belongs to the whole context: nothing runs in this
            // process any more. The server sees the process end, runs the batch again, and starts
            // another worker.
            Err(error) => exit_broken(&error),
        }
    }
}
