//! The ids of a pool's models: dense, so that they can be places in vectors.

use std::sync::{Mutex, MutexGuard};

use fermata_core::ModelId;

/// Which ids are taken. Models come and go seldom, and off the way of requests.
#[derive(Debug)]
pub(crate) struct Ids {
    most: usize,
    taken: Mutex<Vec<bool>>,
}

impl Ids {
    /// At most this many.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default() }
    }

    /// The lowest that is free, if there is one.
    pub(crate) fn take(&self) -> Option<ModelId> {
        let mut taken = self.lock();
        let at = taken.iter().position(|taken| !taken).unwrap_or(taken.len());
        if at >= self.most {
            return None;
        }
        if at == taken.len() {
            taken.push(false);
        }
        taken[at] = true;
        Some(ModelId(at as u32))
    }

    /// Dispatch has forgotten the model: another may get its id.
    pub(crate) fn free(&self, model: ModelId) {
        self.lock()[model.index()] = false;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<bool>> {
        self.taken.lock().expect("nothing panics with it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_id_is_taken_and_no_more_than_there_are() {
        let ids = Ids::new(3);
        let taken: Vec<_> = (0..4).map(|_| ids.take()).collect();
        assert_eq!(taken, [Some(ModelId(0)), Some(ModelId(1)), Some(ModelId(2)), None]);
        ids.free(ModelId(1));
        assert_eq!(ids.take(), Some(ModelId(1)));
        assert_eq!(ids.take(), None);
    }
}
