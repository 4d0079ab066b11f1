//! The thread that waits for batches.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::fatal::broken;
use super::host::Hosted;
use super::responder::Voice;
use crate::cuda::driver::Device;
use crate::cuda::wire::Reply;

/// A batch that was begun.
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) hosted: Arc<Hosted>,
    pub(super) slot: usize,
}

/// The thread that waits for batches.
pub(super) fn finish(device: &Device, landing: &Receiver<Flight>, voice: &Voice) {
    if let Err(error) = device.set_current() {
        return broken(&error);
    }
    for Flight { id, hosted, slot } in landing {
        match hosted.slot(slot).slot.marks.wait() {
            Ok(ms) => {
                let ns = (f64::from(ms) * 1e6) as u64;
                voice.answer(id, Ok(Reply::Ran { ns, heads: None }));
            }
            // An error that shows when work ends is of the whole context: nothing will run here any more. The server sees the end,
            // runs the batch again, and starts another worker.
            Err(error) => broken(&error),
        }
    }
}
