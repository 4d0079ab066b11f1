//! A model on a seat, with requests to run.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fermata_engine::{EngineError, Inputs, Seat, Session, Signature, Source, Tensor, TensorSpec};
use fermata_load::fill;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::looping::{Enough, Looped, Side, alone};

/// A model that was made ready on a seat.
pub(super) struct Subject {
    session: Box<dyn Session>,
    /// As many requests as the largest batch has, none like another.
    requests: Vec<Inputs>,
}

impl Subject {
    /// Loads a model for batches of up to `batch_max`. Requests are drawn by a seed; axes of any
    /// length are 1.
    pub(super) fn load(
        seat: &dyn Seat,
        file: &Path,
        batch_max: usize,
        seed: u64,
    ) -> Result<Self, EngineError> {
        let model = seat.load(&Source { file: file.to_owned(), threads: 1, memory: None })?;
        let known = model.signature();
        // Whatever the file allows, but no more than is wanted here.
        let max_batch = known.max_batch.min(batch_max);
        let signature = Signature { max_batch, ..known.clone() };
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let draw = |_| signature.inputs.iter().map(|spec| tensor(spec, &mut random)).collect();
        let requests = (0..max_batch.max(1)).map(draw).collect();
        Ok(Self { session: model.session(&signature)?, requests })
    }

    /// The batch sizes that the engine runs: the next one for those between.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let all = 1..=self.requests.len();
        all.filter(|&size| self.session.runs_as(size) == size).collect()
    }

    /// To run batches of so many, or of the largest there are.
    pub(super) fn side(&mut self, batch: usize) -> Side<'_> {
        let batch = &self.requests[..batch.min(self.requests.len())];
        Side { session: &mut *self.session, batch }
    }
}

/// An input of one request.
fn tensor(spec: &TensorSpec, random: &mut Pcg64Mcg) -> Tensor {
    let mut shape = vec![1];
    shape.extend(spec.shape.iter().map(|&axis| axis.max(1)));
    let elements = Tensor::elements(&shape).expect("a model that was loaded has inputs that fit");
    let data: Bytes = fill(spec.datatype, elements, Some(random));
    Tensor { datatype: spec.datatype, shape, data }
}

/// How long batches of these sizes take, back to back.
pub(super) fn sweep(
    subject: &mut Subject,
    sizes: &[usize],
    enough: Enough,
) -> anyhow::Result<Vec<Looped>> {
    warm(subject, sizes)?;
    sizes.iter().map(|&size| Ok(alone(subject.side(size), enough)?)).collect()
}

/// Runs each of these sizes twice: the first batches are slow.
pub(super) fn warm(subject: &mut Subject, sizes: &[usize]) -> anyhow::Result<()> {
    let twice = Enough { batches: 2, time: Duration::ZERO, at_most: Duration::MAX };
    sizes.iter().try_for_each(|&size| alone(subject.side(size), twice).map(drop))?;
    Ok(())
}
