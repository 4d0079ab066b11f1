//! The streams on which batches arrive, run and leave.

use std::sync::Arc;

use super::captured_model::CapturedModel;
use super::share::Share;
use crate::cuda::driver::{Buffer, CudaError, Event, Stream};
use crate::cuda::wire::Form;

/// The three streams. The reader and the loader begin batches on them.
pub(super) struct BatchStreams {
    /// Copies inputs from shared memory.
    inward: Stream,
    /// Runs batches.
    pub(super) compute: Stream,
    /// Copies outputs to shared memory.
    pub(super) outward: Stream,
}

/// The moments at which a batch arrived, began, ended and left.
pub(super) struct BatchEvents {
    arrived: Event,
    began: Event,
    ended: Event,
    left: Event,
}

/// Where a batch lies on the GPU on its way in and out.
pub(super) struct Slot {
    pub(super) stage: Buffer,
    pub(super) events: BatchEvents,
}

/// A slot, with the layout and the address of its batch in shared memory.
pub(super) struct PlacedSlot<'a> {
    pub(super) form: &'a Form,
    pub(super) slot: &'a Slot,
    /// The address of the slot in shared memory.
    pub(super) start: u64,
}

impl BatchEvents {
    pub(super) fn new() -> Result<Self, CudaError> {
        let [arrived, began, ended, left] =
            [Event::new()?, Event::new()?, Event::new()?, Event::new()?];
        Ok(Self { arrived, began, ended, left })
    }

    /// Waits until the batch has left. Returns the milliseconds that it ran.
    pub(super) fn wait(&self) -> Result<f32, CudaError> {
        self.left.wait().and_then(|()| self.ended.since(&self.began))
    }
}

impl BatchStreams {
    pub(super) fn new() -> Result<Self, CudaError> {
        let [inward, compute, outward] = [Stream::new()?, Stream::new()?, Stream::new()?];
        Ok(Self { inward, compute, outward })
    }

    /// Begins a batch of a captured model.
    pub(super) fn begin(
        &self,
        model: &mut CapturedModel,
        place: PlacedSlot<'_>,
        size: usize,
        share: &Arc<Share>,
    ) -> Result<(), CudaError> {
        let PlacedSlot { form, slot, start } = place;
        let (inputs, outputs) = (&form.inputs, &form.outputs);
        for column in inputs {
            let at = column.at as u64;
            self.inward.copy(slot.stage.address + at, start + at, column.item * size)?;
        }
        self.inward.record(&slot.events.arrived)?;
        self.compute.wait_for(&slot.events.arrived)?;
        self.compute.record(&slot.events.began)?;
        for (column, buffer) in inputs.iter().zip(&model.inputs) {
            self.compute.copy(
                buffer.address,
                slot.stage.address + column.at as u64,
                column.item * size,
            )?;
        }
        model.ready(size, share)?.exec().launch(&self.compute)?;
        for (column, buffer) in outputs.iter().zip(&model.outputs) {
            self.compute.copy(
                slot.stage.address + column.at as u64,
                buffer.address,
                column.item * size,
            )?;
        }
        self.compute.record(&slot.events.ended)?;
        self.outward.wait_for(&slot.events.ended)?;
        for column in outputs {
            let at = column.at as u64;
            self.outward.copy(start + at, slot.stage.address + at, column.item * size)?;
        }
        self.outward.record(&slot.events.left)
    }
}
