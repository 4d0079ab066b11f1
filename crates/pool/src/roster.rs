//! Who is there: the executors of a pool, where they came from, and how fast each is.
//!
//! Read by whoever asks, changed by whoever hires them, and by the executors themselves when they end. Nobody keeps it for longer
//! than a look takes.

use std::sync::{Mutex, MutexGuard};

use fermata_core::{ClassId, ExecutorId};

/// The executors of a pool, by id.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<Vec<Seat>>);

#[derive(Clone, Copy, Debug)]
struct Seat {
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
    /// An executor came. Nobody else has its id, and those below it are or were taken.
    pub(crate) fn enter(&self, executor: ExecutorId, origin: usize, class: ClassId) {
        let mut seats = self.lock();
        let seat = Seat { origin, class, standing: Standing::Active };
        match seats.get_mut(executor.index()) {
            Some(vacant) => *vacant = seat,
            None => seats.push(seat),
        }
    }

    /// An executor takes no more batches. False, if it did not anyway.
    pub(crate) fn leave(&self, executor: ExecutorId) -> bool {
        let mut seats = self.lock();
        let seat = seats.get_mut(executor.index());
        let active = seat.filter(|seat| seat.standing == Standing::Active);
        active.map(|seat| seat.standing = Standing::Leaving).is_some()
    }

    /// An executor has told all it had to tell, and ends.
    pub(crate) fn end(&self, executor: ExecutorId) {
        self.lock()[executor.index()].standing = Standing::Gone;
    }

    /// How many take batches.
    pub(crate) fn count(&self) -> usize {
        self.lock().iter().filter(|seat| seat.standing == Standing::Active).count()
    }

    /// Those who take batches: who, from where, of which class.
    pub(crate) fn active(&self) -> Vec<(ExecutorId, usize, ClassId)> {
        let seats = self.lock();
        let active = |(_, seat): &(u32, &Seat)| seat.standing == Standing::Active;
        let entry = |(at, seat): (u32, &Seat)| (ExecutorId(at), seat.origin, seat.class);
        (0..).zip(seats.iter()).filter(active).map(entry).collect()
    }

    /// The lowest id that nobody has, below `most`. Who leaves keeps its own until its last batch is done: dispatch knows it
    /// by that.
    pub(crate) fn vacant(&self, most: usize) -> Option<ExecutorId> {
        let seats = self.lock();
        let gone = seats.iter().position(|seat| seat.standing == Standing::Gone);
        let at = gone.unwrap_or(seats.len());
        (at < most).then_some(ExecutorId(at as u32))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seat>> {
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
