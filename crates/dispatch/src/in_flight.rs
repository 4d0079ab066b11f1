//! What each executor is running: needed to bring requests back when it fails or is preempted.

use fermata_core::{ExecutorId, ModelId, Request};

use crate::event::BATCHES_MAX;

/// The batches on each executor, in the order in which they were given. The buffers are reused.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Slot {
    count: usize,
    /// So many of them; the buffers of the others are kept.
    batches: [Batch; BATCHES_MAX],
}

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
        assert!(slot.count < BATCHES_MAX, "executor {executor} was given too many batches");
        let batch = &mut slot.batches[slot.count];
        slot.count += 1;
        batch.model = model;
        batch.requests.extend_from_slice(requests);
    }

    /// The model and the requests that the executor runs now.
    pub fn running(&self, executor: ExecutorId) -> Option<(ModelId, &[Request])> {
        let Slot { count, batches } = self.slots.get(executor.index())?;
        let Batch { model, requests } = &batches[0];
        (*count > 0).then_some((*model, requests))
    }

    /// The first batch of an executor is done.
    #[inline]
    pub fn done(&mut self, executor: ExecutorId) {
        let slot = &mut self.slots[executor.index()];
        assert!(slot.count > 0, "an executor is done only with a batch");
        slot.batches[0].requests.clear();
        slot.move_up();
    }

    /// Takes the first batch of an executor back.
    pub fn take(&mut self, executor: ExecutorId) -> Option<(ModelId, Vec<Request>)> {
        let slot = self.slots.get_mut(executor.index()).filter(|slot| slot.count > 0)?;
        let Batch { model, requests } = std::mem::take(&mut slot.batches[0]);
        slot.move_up();
        Some((model, requests))
    }
}

impl Slot {
    /// The second batch is the first now, and so on.
    #[inline]
    fn move_up(&mut self) {
        self.batches[..self.count].rotate_left(1);
        self.count -= 1;
    }
}
