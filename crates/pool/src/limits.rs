//! Which models keep the batches of which others short: counted for metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use fermata_core::ModelId;

/// How many batches of a model were shorter, or waited, so that another model need not wait.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// By model, and the one it was for. The driver writes it at the rate of such batches; the
    /// metrics and the status page read it.
    counts: Mutex<BTreeMap<(ModelId, ModelId), u64>>,
}

impl Limits {
    pub(crate) fn note(&self, model: ModelId, by: ModelId) {
        *self.counts().entry((model, by)).or_default() += 1;
    }

    /// The model is gone, and its id may be another's.
    pub(crate) fn forget(&self, model: ModelId) {
        self.counts().retain(|&(limited, by), _| limited != model && by != model);
    }

    /// The models that limited this one, and how many of its batches.
    pub(crate) fn of(&self, model: ModelId) -> Vec<(ModelId, u64)> {
        let all = (model, ModelId(0))..=(model, ModelId(u32::MAX));
        self.counts().range(all).map(|(&(_, by), &count)| (by, count)).collect()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<(ModelId, ModelId), u64>> {
        self.counts.lock().expect("nothing panics with it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted_by_the_model_they_were_short_for_until_it_is_gone() {
        let limits = Limits::default();
        let [long, tight, other] = [0, 1, 2].map(ModelId);
        limits.note(long, tight);
        limits.note(long, tight);
        limits.note(long, other);
        limits.note(other, tight);
        assert_eq!(limits.of(long), [(tight, 2), (other, 1)]);
        limits.forget(tight);
        assert_eq!(limits.of(long), [(other, 1)]);
        assert!(limits.of(other).is_empty());
    }
}
