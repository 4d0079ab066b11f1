//! What each executor is running: needed to bring requests back when it fails or is preempted.

use fermata_core::{ExecutorId, ModelId, Request};

/// The batches on each executor, in the order in which they were given. The buffers are reused.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Slot {
    running: Batch,
    next: Batch,
}

/// A batch, or none if it has no requests.
#[derive(Clone, Debug, Default)]
struct Batch {
    model: ModelId,
    requests: Vec<Request>,
}

impl InFlight {
    /// A batch was given to an executor.
    #[inline]
    pub fn start(&mut self, executor: ExecutorId, model: ModelId, requests: &[Request]) {
        if executor.index() >= self.slots.len() {
            self.slots.resize_with(executor.index() + 1, Slot::default);
        }
        let slot = &mut self.slots[executor.index()];
        let is_idle = slot.running.requests.is_empty();
        let batch = if is_idle { &mut slot.running } else { &mut slot.next };
        assert!(batch.requests.is_empty(), "executor {executor} was given a third batch");
        batch.model = model;
        batch.requests.extend_from_slice(requests);
    }

    /// The model and the requests that the executor runs now.
    pub fn running(&self, executor: ExecutorId) -> Option<(ModelId, &[Request])> {
        let Batch { model, requests } = &self.slots.get(executor.index())?.running;
        (!requests.is_empty()).then_some((*model, requests))
    }

    /// The first batch of an executor is done.
    #[inline]
    pub fn done(&mut self, executor: ExecutorId) {
        let slot = &mut self.slots[executor.index()];
        assert!(!slot.running.requests.is_empty(), "an executor is done only with a batch");
        slot.running.requests.clear();
        if !slot.next.requests.is_empty() {
            std::mem::swap(&mut slot.running, &mut slot.next);
        }
    }

    /// Takes the first batch of an executor back.
    pub fn take(&mut self, executor: ExecutorId) -> Option<(ModelId, Vec<Request>)> {
        let slot = self.slots.get_mut(executor.index())?;
        let Batch { model, requests } =
            std::mem::replace(&mut slot.running, std::mem::take(&mut slot.next));
        (!requests.is_empty()).then_some((model, requests))
    }
}
