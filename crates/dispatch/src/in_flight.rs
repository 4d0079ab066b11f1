//! What each executor is running: needed to bring requests back when it fails or is preempted.

use fermata_core::{ExecutorId, ModelId, Request};

/// The batches on each executor, in the order in which they were given. The buffers are reused.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    slots: Vec<Slot>,
    spare: Vec<Vec<Request>>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    running: Option<(ModelId, Vec<Request>)>,
    next: Option<(ModelId, Vec<Request>)>,
}

impl InFlight {
    /// A batch was given to an executor.
    pub fn start(&mut self, executor: ExecutorId, model: ModelId, requests: &[Request]) {
        if executor.index() >= self.slots.len() {
            self.slots.resize_with(executor.index() + 1, Slot::default);
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(requests);
        let slot = &mut self.slots[executor.index()];
        let place = if slot.running.is_none() { &mut slot.running } else { &mut slot.next };
        assert!(place.is_none(), "executor {executor} was given a third batch");
        *place = Some((model, buffer));
    }

    /// The model and the requests that the executor runs now.
    pub fn running(&self, executor: ExecutorId) -> Option<(ModelId, &[Request])> {
        let (model, requests) = self.slots.get(executor.index())?.running.as_ref()?;
        Some((*model, requests))
    }

    /// The first batch of an executor is done.
    pub fn done(&mut self, executor: ExecutorId) {
        let slot = &mut self.slots[executor.index()];
        let (_, mut buffer) = slot.running.take().expect("an executor is done only with a batch");
        slot.running = slot.next.take();
        buffer.clear();
        self.spare.push(buffer);
    }

    /// Takes the first batch of an executor back. Hand the buffer to `recycle` afterwards.
    pub fn take(&mut self, executor: ExecutorId) -> Option<(ModelId, Vec<Request>)> {
        let slot = self.slots.get_mut(executor.index())?;
        let taken = slot.running.take();
        slot.running = slot.next.take();
        taken
    }

    /// Keeps a buffer for later batches.
    pub fn recycle(&mut self, mut buffer: Vec<Request>) {
        buffer.clear();
        self.spare.push(buffer);
    }
}
