//! Models on GPUs: each GPU has seats, each seat may have a share of it, and is then an executor of
//! the pool `gpu`.
//!
//! A share is a class of executors to dispatch, with a profile of its own for each model. Shares
//! are cut anew while serving (`recut.rs`): the new executor joins, then the old one leaves. A seat
//! that breaks is started again (`repair.rs`), and the others go on. Nothing here is on the way of
//! requests.

mod choice;
mod classes;
#[cfg(test)]
mod emulated;
mod estimate;
mod load;
mod model;
mod recut;
mod repair;
mod report;
mod site;
mod supervised;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use crossbeam_channel::Sender;
use fermata_core::{ClassId, Span};
use fermata_dispatch::Network;
use fermata_engine::{Cut, CutError, EngineError, Gpu, Memory, Seat};
use fermata_pool::{GrowError, OnLost, Pool};

pub use choice::{Candidate, Question, SharePlan, Weigh};
pub(crate) use choice::{choose, cuts};
pub(crate) use classes::{Classes, Share};
pub(crate) use load::{LoadError, OnGpu};
pub(crate) use model::OnGpus;
pub use recut::{Recut, RecutError};
pub use report::{By, GpuReport, ShareReport};
pub(crate) use site::Site;
use supervised::SupervisedSeat;

/// From the decision to the seat, a message to another process, and the way of the news that a
/// batch has ended: both are waited for by threads that must be woken. Batches are granted so much
/// before the one ahead of them ends, and what their inputs take on the way, so that they are there
/// when it does. On an H200, 0.2 and 0.3 ms served about as much as this.
const CTRL: Span = Span(400_000);
/// What any request takes on the way, however small.
const DATA: Span = Span(500);

/// How far away the seats are.
pub const NETWORK: Network = Network { ctrl: CTRL, data: DATA, resp: Span::ZERO };

/// Executors for each seat: the one that it is, the one that it was until its last batch is done,
/// and as many again for re-cuts that follow each other faster than batches.
const EXECUTORS_OF_SEAT: usize = 8;

/// The GPUs that a server has.
pub struct GpuSetup {
    /// By GPU: its seats, as many as it can have shares. Never empty, and no GPU is without a seat.
    pub seats: Vec<Vec<Arc<dyn Seat>>>,
    /// How each of them is cut at first, in percent.
    pub shares: Vec<u32>,
    /// How the server cuts them while it serves, where that is not left to others.
    pub plan: Option<SharePlan>,
}

/// The GPUs of a server, cut into shares.
pub struct Gpus {
    pool: Arc<Pool>,
    /// The seats of all GPUs, those of one together.
    seats: Arc<[SupervisedSeat]>,
    /// Who cuts a GPU anew or brings a seat back has this, so that two cannot mix.
    changes: Mutex<()>,
    cuts: Mutex<CutTable>,
    /// Those that every seat must be able to run.
    models: Mutex<Vec<Weak<OnGpus>>>,
    stopping: AtomicBool,
    recuts: AtomicU64,
}

/// Who has which share. Held for moments only.
#[derive(Debug, Default)]
struct CutTable {
    classes: Classes,
    gpus: Vec<Card>,
}

/// One GPU.
#[derive(Debug)]
struct Card {
    gpu: Gpu,
    /// Which seats are its.
    seats: Range<usize>,
    cut: Cut,
    /// Who has cut it so.
    by: By,
    /// By seat of its own: which share it has, or will have when it is back.
    parts: Vec<Option<Part>>,
    memory: Memory,
    /// How long the last re-cut took until all its shares served.
    last_recut: Option<Duration>,
}

/// A share of a cut.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    cut: Cut,
    number: usize,
    class: ClassId,
}

impl Part {
    fn percent(&self) -> u32 {
        self.cut.percents()[self.number]
    }

    fn multiprocessors(&self) -> u32 {
        self.cut.multiprocessors()[self.number]
    }
}

/// Why GPUs cannot be served on.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// There is none, or one without seats.
    #[error("there is no GPU to serve on")]
    Empty,
    /// A GPU cannot be cut so.
    #[error("GPU {gpu} cannot be cut into {}: {reason}", listed(percents))]
    Cut {
        /// Which.
        gpu: usize,
        /// How.
        percents: Vec<u32>,
        /// Why not.
        reason: CutError,
    },
    /// More shares than seats.
    #[error(
        "GPU {gpu} has {seats} seats, which is fewer than {shares} shares: --seats says how many \
         shares it can have"
    )]
    Seats {
        /// Which.
        gpu: usize,
        /// How many it has.
        seats: usize,
        /// How many are asked for.
        shares: usize,
    },
    /// A seat does not take its share.
    #[error("GPU {gpu}, seat {seat}: {reason}")]
    Seat {
        /// Which GPU.
        gpu: usize,
        /// Which of its seats.
        seat: usize,
        /// Why.
        reason: String,
    },
    /// The machine.
    #[error("a thread cannot be started: {0}")]
    Thread(#[from] io::Error),
}

impl Gpus {
    /// Cuts the GPUs, and makes an executor of each share. `start` makes their pool: so many
    /// executors at most, this far away, and this is to be called when one breaks.
    pub(crate) fn start(
        setup: GpuSetup,
        start: impl FnOnce(usize, Network, Arc<OnLost>) -> io::Result<Arc<Pool>>,
    ) -> Result<Arc<Self>, GpuError> {
        let by = if setup.plan.is_some() { By::Plan } else { By::Hand };
        let mut cuts = CutTable::default();
        let mut supervised = Vec::new();
        for seats in setup.seats {
            let gpu = seats.first().ok_or(GpuError::Empty)?.gpu().clone();
            let cut = check(&gpu, seats.len(), &setup.shares)?;
            let parts = cuts.parts(&gpu, seats.len(), &cut);
            let first = supervised.len();
            supervised.extend(seats.into_iter().map(SupervisedSeat::new));
            let memory = Memory { used: 0, total: gpu.memory };
            let seats = first..supervised.len();
            cuts.gpus.push(Card { gpu, seats, cut, by, parts, memory, last_recut: None });
        }
        if supervised.is_empty() {
            return Err(GpuError::Empty);
        }
        let (lost, told) = crossbeam_channel::unbounded();
        let pool = start(EXECUTORS_OF_SEAT * supervised.len(), NETWORK, on_lost(lost))?;
        let gpus = Arc::new(Self {
            pool,
            seats: supervised.into(),
            changes: Mutex::default(),
            cuts: Mutex::new(cuts),
            models: Mutex::default(),
            stopping: AtomicBool::new(false),
            recuts: AtomicU64::new(0),
        });
        for seat in 0..gpus.seats.len() {
            let Some(part) = gpus.part(seat) else { continue };
            gpus.take_part(seat, &part).map_err(|reason| {
                let (gpu, seat) = gpus.named(seat);
                GpuError::Seat { gpu, seat, reason: reason.to_string() }
            })?;
        }
        repair::start(&gpus, told)?;
        for card in &gpus.cuts().gpus {
            let (gpu, seats) = (card.gpu.index, card.seats.len());
            tracing::info!(gpu, name = card.gpu.name, seats, shares = %card.cut, "is served on");
        }
        Ok(gpus)
    }

    /// The pool of their executors.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// How often a GPU was cut anew.
    pub fn recuts(&self) -> u64 {
        self.recuts.load(Relaxed)
    }

    /// Nothing is started again any more.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Ends all seats, once nothing runs there any more.
    pub(crate) fn close(&self) {
        let _lock = self.lock_changes();
        self.seats.iter().for_each(|supervised| supervised.seat.close());
    }

    /// Sets a seat's share and makes an executor of it; the executors that it was leave. The seat's
    /// part must be known to dispatch already.
    ///
    /// A seat whose share becomes smaller is dispatched by the smaller one before it has it: what
    /// was planned for a larger share would be late on a smaller one, and not the other way round.
    fn take_part(&self, seat: usize, part: &Part) -> Result<(), PartError> {
        let there = self.executors_of(seat);
        let set = || self.seats[seat].seat.set_share(&part.cut, part.number);
        if there.iter().any(|&(_, class)| class == part.class) {
            return Ok(set()?);
        }
        let has = self.part(seat).filter(|_| !there.is_empty());
        let larger = has.filter(|has| part.multiprocessors() < has.multiprocessors());
        if larger.is_none() {
            set()?;
        }
        let came = self.pool.join(seat, part.class)?;
        for (executor, _) in there {
            self.pool.leave(executor);
        }
        let Some(larger) = larger else { return Ok(()) };
        let Err(error) = set() else { return Ok(()) };
        if !matches!(error, EngineError::Lost(_)) {
            // It keeps the share that it had, and is dispatched by that again.
            self.pool.join(seat, larger.class)?;
            self.pool.leave(came);
        }
        Err(error.into())
    }

    /// The executors that a seat is.
    fn executors_of(&self, seat: usize) -> Vec<(fermata_core::ExecutorId, ClassId)> {
        let all = self.pool.executors_list().into_iter();
        all.filter(|&(_, origin, _)| origin == seat).map(|(id, _, class)| (id, class)).collect()
    }

    /// The share that a seat has, or should have.
    fn part(&self, seat: usize) -> Option<Part> {
        let cuts = self.cuts();
        let card = cuts.gpus.iter().find(|card| card.seats.contains(&seat))?;
        card.parts[seat - card.seats.start].clone()
    }

    /// The GPU of a seat, and which of its seats it is.
    fn named(&self, seat: usize) -> (usize, usize) {
        let cuts = self.cuts();
        let card = cuts.gpus.iter().find(|card| card.seats.contains(&seat));
        card.map_or((0, seat), |card| (card.gpu.index, seat - card.seats.start))
    }

    /// The models that there are.
    pub(crate) fn models(&self) -> Vec<Arc<OnGpus>> {
        let mut models = self.models.lock().expect("nothing panics with it");
        models.retain(|model| model.strong_count() > 0);
        models.iter().filter_map(Weak::upgrade).collect()
    }

    fn cuts(&self) -> MutexGuard<'_, CutTable> {
        self.cuts.lock().expect("nothing panics with it")
    }

    fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().expect("nothing panics with it")
    }
}

impl CutTable {
    /// A part for each seat, for as many as there are.
    fn parts(&mut self, gpu: &Gpu, seats: usize, cut: &Cut) -> Vec<Option<Part>> {
        let part = |number: usize| {
            let &multiprocessors = cut.multiprocessors().get(number)?;
            let class = self.classes.class(&Share::of(gpu, multiprocessors));
            Some(Part { cut: cut.clone(), number, class })
        };
        (0..seats).map(part).collect()
    }

    /// The share of each class that a seat has, and a GPU to which it may belong; `None` for those
    /// that nobody has. One GPU may be left out.
    fn classes_in_use(&self, but: Option<usize>) -> Vec<Option<(Gpu, Share)>> {
        let mut classes = vec![None; self.classes.shares().len()];
        for (_, card) in self.gpus.iter().enumerate().filter(|(at, _)| Some(*at) != but) {
            for part in card.parts.iter().flatten() {
                let share = Share::of(&card.gpu, part.multiprocessors());
                classes[part.class.index()] = Some((card.gpu.clone(), share));
            }
        }
        classes
    }
}

/// Why a seat does not become an executor.
#[derive(Debug, thiserror::Error)]
enum PartError {
    #[error(transparent)]
    Seat(#[from] EngineError),
    #[error(transparent)]
    Join(#[from] GrowError),
}

impl PartError {
    /// Whether the seat broke: it will come back by itself.
    fn is_lost(&self) -> bool {
        match self {
            Self::Seat(error) | Self::Join(GrowError::Session(error)) => {
                matches!(error, EngineError::Lost(_))
            }
            Self::Join(_) => false,
        }
    }
}

/// Whether a GPU with so many seats can be cut so.
fn check(gpu: &Gpu, seats: usize, percents: &[u32]) -> Result<Cut, GpuError> {
    let index = gpu.index;
    let cut = Cut::new(percents, gpu.multiprocessors, gpu.step)
        .map_err(|reason| GpuError::Cut { gpu: index, percents: percents.to_vec(), reason })?;
    if cut.len() > seats {
        return Err(GpuError::Seats { gpu: index, seats, shares: cut.len() });
    }
    Ok(cut)
}

/// As many as a person would read.
fn listed(percents: &[u32]) -> String {
    const MOST: usize = 20;
    let some: Vec<String> = percents.iter().take(MOST).map(u32::to_string).collect();
    let rest = if percents.len() > MOST { ", ..." } else { "" };
    format!("{}{rest}", some.join(","))
}

fn on_lost(lost: Sender<usize>) -> Arc<OnLost> {
    // Who would listen is gone when the server stops.
    Arc::new(move |seat| _ = lost.send(seat))
}

impl fmt::Debug for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpus").field("cuts", &self.cuts).finish_non_exhaustive()
    }
}

impl fmt::Debug for GpuSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuSetup").field("shares", &self.shares).finish_non_exhaustive()
    }
}
