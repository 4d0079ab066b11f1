//! The pools of emulated executors: one of a fixed size, or several that come, grow, shrink and go
//! as a plan says.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use fermata_pool::Pool;

use crate::served::Served;

/// Starts a pool of this name, with so many executors at first.
pub(crate) type StartPool = dyn Fn(&str, usize) -> io::Result<Arc<Pool>> + Send + Sync;

/// What the pools of a plan may have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// GPUs: as many executors, over all pools.
    pub gpus: usize,
    /// Bytes of memory of each.
    pub memory: u64,
}

/// The pools of emulated executors.
pub struct Fleet {
    pools: Mutex<Pools>,
    /// `None` where there is one pool, which stays as it is.
    planned: Option<(Limits, Box<StartPool>)>,
}

#[derive(Debug, Default)]
struct Pools {
    /// Never empty.
    there: Vec<Arc<Pool>>,
    /// Those that go when their last request has left.
    leaving: Vec<Weak<Pool>>,
}

/// Why a model finds no room.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoomError {
    /// Not even alone.
    #[error("{} MB are more than the {} MB that a GPU has \
        (--gpu-memory-mb)", mb(*.memory), mb(*.most))]
    TooLarge { memory: u64, most: u64 },
    /// Not beside the others.
    #[error(
        "{} MB fit beside no other models, and all {gpus} GPUs are in use (--gpu-memory-mb, \
         --emulated-executors)",
        mb(*.memory)
    )]
    Full { memory: u64, gpus: usize },
    /// The machine.
    #[error("a pool cannot be started: {0}")]
    Start(#[from] io::Error),
}

impl Fleet {
    /// One pool that stays as it is.
    pub(crate) fn fixed(pool: Arc<Pool>) -> Self {
        let pools = Pools { there: vec![pool], leaving: Vec::new() };
        Self { pools: Mutex::new(pools), planned: None }
    }

    /// Pools that a plan may change. It begins with one, which has all the GPUs: until the load is
    /// known, none is too many.
    pub(crate) fn planned(limits: Limits, start: Box<StartPool>) -> io::Result<Self> {
        let first = start(&name(1), limits.gpus)?;
        let pools = Pools { there: vec![first], leaving: Vec::new() };
        Ok(Self { pools: Mutex::new(pools), planned: Some((limits, start)) })
    }

    /// What a plan may use; `None` where there is no plan.
    pub fn limits(&self) -> Option<Limits> {
        Some(self.planned.as_ref()?.0)
    }

    /// The pools that there are.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.lock().there.clone()
    }

    /// How many executors they have.
    pub fn executors(&self) -> usize {
        self.lock().there.iter().map(|pool| pool.executors()).sum()
    }

    /// How many more executors there may be.
    pub(crate) fn free(&self) -> usize {
        let Some(limits) = self.limits() else { return 0 };
        let mut pools = self.lock();
        pools.leaving.retain(|pool| pool.strong_count() > 0);
        let leaving = pools.leaving.iter().filter_map(Weak::upgrade);
        let used: usize = pools.there.iter().cloned().chain(leaving).map(|p| p.executors()).sum();
        limits.gpus.saturating_sub(used)
    }

    /// Whether a pool that was let go still has executors.
    pub(crate) fn is_any_leaving(&self) -> bool {
        self.lock().leaving.iter().any(|pool| pool.strong_count() > 0)
    }

    /// One more pool, with so many executors.
    pub(crate) fn open(&self, executors: usize) -> io::Result<Arc<Pool>> {
        let (_, start) = self.planned.as_ref().expect("only a plan opens pools");
        let mut pools = self.lock();
        let leaving: Vec<_> = pools.leaving.iter().filter_map(Weak::upgrade).collect();
        let taken = |wanted: &String| {
            pools.there.iter().chain(&leaving).any(|pool| pool.name() == wanted.as_str())
        };
        let free = (1..).map(name).find(|name| !taken(name)).expect("numbers do not end");
        let pool = start(&free, executors)?;
        pools.there.push(pool.clone());
        Ok(pool)
    }

    /// Lets a pool go, unless it is the last: it ends when the last who holds a place in it has
    /// gone.
    pub(crate) fn close(&self, pool: &Arc<Pool>) -> bool {
        let mut pools = self.lock();
        let at = pools.there.iter().position(|other| Arc::ptr_eq(other, pool));
        let Some(at) = at.filter(|_| pools.there.len() > 1) else { return false };
        let gone = pools.there.remove(at);
        pools.leaving.push(Arc::downgrade(&gone));
        true
    }

    /// Where a model that is loaded begins: where it was before, or else in the first pool whose
    /// GPUs have the memory; if there is none, in one of its own. The next plan may move it.
    pub(crate) fn room_for(
        &self,
        name: &str,
        memory: u64,
        served: &[Arc<Served>],
    ) -> Result<Arc<Pool>, RoomError> {
        let mut pools = self.pools();
        let Some(limits) = self.limits() else { return Ok(pools.remove(0)) };
        if memory > limits.memory {
            return Err(RoomError::TooLarge { memory, most: limits.memory });
        }
        let before = served.iter().find(|served| served.name == name);
        pools.sort_by_key(|pool| !before.is_some_and(|served| Arc::ptr_eq(served.pool(), pool)));
        let fits = |pool: &&Arc<Pool>| {
            let others = served.iter().filter(|other| other.name != name);
            let here = others.filter(|other| Arc::ptr_eq(other.pool(), pool));
            here.map(|other| other.memory).sum::<u64>().saturating_add(memory) <= limits.memory
        };
        if let Some(pool) = pools.iter().find(fits) {
            return Ok(pool.clone());
        }
        if self.free() == 0 {
            let largest = pools.iter().max_by_key(|pool| pool.executors());
            match largest.filter(|pool| pool.executors() > 1) {
                Some(pool) => _ = pool.shrink(pool.executors() - 1),
                None => return Err(RoomError::Full { memory, gpus: limits.gpus }),
            }
        }
        Ok(self.open(1)?)
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().expect("nothing panics with it")
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("pools", &self.pools).finish_non_exhaustive()
    }
}

/// The name of the `number`-th pool.
fn name(number: usize) -> String {
    if number == 1 { "emulated".to_owned() } else { format!("emulated-{number}") }
}

fn mb(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}
