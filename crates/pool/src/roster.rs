//! The executors of a pool: the origin and the class of each.
//!
//! Threads that spawn or stop an executor write it, and so does an executor that ends. The lock is
//! held only for a look.

use std::sync::{Mutex, MutexGuard};

use fermata_core::{ClassId, ExecutorId};

/// The executors of a pool, by id.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<Vec<ExecutorEntry>>);

#[derive(Clone, Copy, Debug)]
struct ExecutorEntry {
    origin: usize,
    class: ClassId,
    standing: Standing,
}

/// How an executor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It takes batches.
    Active,
    /// It finishes what it has.
    Leaving,
    /// It has told all that it will ever tell: its id may be another's.
    Gone,
}

impl Roster {
    /// An executor came. Its id is vacant, and all lower ids are or were taken.
    pub(crate) fn enter(&self, executor: ExecutorId, origin: usize, class: ClassId) {
        let mut entries = self.lock();
        let entry = ExecutorEntry { origin, class, standing: Standing::Active };
        match entries.get_mut(executor.index()) {
            Some(vacant) => *vacant = entry,
            None => entries.push(entry),
        }
    }

    /// An executor takes no more batches. False, if it did not anyway.
    pub(crate) fn leave(&self, executor: ExecutorId) -> bool {
        let mut entries = self.lock();
        let entry = entries.get_mut(executor.index());
        let active = entry.filter(|entry| entry.standing == Standing::Active);
        active.map(|entry| entry.standing = Standing::Leaving).is_some()
    }

    /// An executor has told all it had to tell, and ends.
    pub(crate) fn end(&self, executor: ExecutorId) {
        self.lock()[executor.index()].standing = Standing::Gone;
    }

    /// How many take batches.
    pub(crate) fn count(&self) -> usize {
        self.lock().iter().filter(|entry| entry.standing == Standing::Active).count()
    }

    /// The executors that take batches, each with its origin and its class.
    pub(crate) fn active(&self) -> Vec<(ExecutorId, usize, ClassId)> {
        let entries = self.lock();
        let active = |(_, entry): &(u32, &ExecutorEntry)| entry.standing == Standing::Active;
        let named =
            |(at, entry): (u32, &ExecutorEntry)| (ExecutorId(at), entry.origin, entry.class);
        (0..).zip(entries.iter()).filter(active).map(named).collect()
    }

    /// The lowest vacant id below `most`. An executor that leaves keeps its id until its last batch
    /// is done, because dispatch knows it by that id.
    pub(crate) fn vacant(&self, most: usize) -> Option<ExecutorId> {
        let entries = self.lock();
        let gone = entries.iter().position(|entry| entry.standing == Standing::Gone);
        let at = gone.unwrap_or(entries.len());
        (at < most).then_some(ExecutorId(at as u32))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ExecutorEntry>> {
        self.0.lock().expect("nothing panics with it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_vacant_when_its_executor_has_ended_and_not_when_it_leaves() {
        let (roster, class) = (Roster::default(), ClassId(3));
        for at in 0..2 {
            assert_eq!(roster.vacant(2), Some(ExecutorId(at)));
            roster.enter(ExecutorId(at), 7, class);
        }
        assert_eq!(roster.vacant(2), None);
        assert!(roster.leave(ExecutorId(0)));
        assert!(!roster.leave(ExecutorId(0)), "it leaves once");
        assert_eq!(roster.active(), [(ExecutorId(1), 7, class)]);
        assert_eq!(roster.vacant(2), None);
        roster.end(ExecutorId(0));
        assert!(!roster.leave(ExecutorId(0)), "it has left");
        assert!(!roster.leave(ExecutorId(9)), "it was never there");
        assert_eq!(roster.vacant(2), Some(ExecutorId(0)));
        assert_eq!(roster.count(), 1);
    }
}
