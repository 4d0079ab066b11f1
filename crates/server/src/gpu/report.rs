//! What there is to say of the GPUs, for the API, the status page and the metrics.

use serde::Serialize;

use super::Gpus;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuReport {
    /// Its number.
    pub gpu: usize,
    /// Its name.
    pub name: String,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// Bytes of its memory in use, by anybody.
    pub memory_used_bytes: u64,
    /// Bytes that there are.
    pub memory_total_bytes: u64,
    /// How many shares it can have.
    pub seats: usize,
    /// The shares that it has.
    pub shares: Vec<ShareReport>,
    /// Who has cut it so.
    pub shares_by: By,
    /// How often its seats were started again.
    pub restarts: u64,
    /// How long the last re-cut took until all its shares served.
    pub last_recut_ms: Option<f64>,
}

/// Who has cut a GPU as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// A person, at the start or since.
    Hand,
    /// The server, for what comes in.
    Plan,
}

/// A share of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShareReport {
    /// Which seat has it.
    pub seat: usize,
    /// How much of the GPU was asked for.
    pub percent: u32,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// Which executor of the pool it is; none while its seat is started again.
    pub executor: Option<u32>,
    /// How often its seat was started again.
    pub restarts: u64,
}

impl Gpus {
    /// All GPUs, by number.
    pub fn report(&self) -> Vec<GpuReport> {
        let executors = self.pool.executors_list();
        let cuts = self.cuts();
        let cards = cuts.gpus.iter().map(|card| {
            let restarts = |seat: usize| self.seats[card.seats.start + seat].restarts();
            let shares = card.parts.iter().enumerate().filter_map(|(seat, part)| {
                let part = part.as_ref()?;
                let origin = card.seats.start + seat;
                let executor = executors
                    .iter()
                    .find(|&&(_, from, class)| from == origin && class == part.class);
                Some(ShareReport {
                    seat,
                    percent: part.percent(),
                    multiprocessors: part.multiprocessors(),
                    executor: executor.map(|(id, ..)| id.0),
                    restarts: restarts(seat),
                })
            });
            GpuReport {
                gpu: card.gpu.index,
                name: card.gpu.name.clone(),
                multiprocessors: card.gpu.multiprocessors,
                memory_used_bytes: card.memory.used,
                memory_total_bytes: card.memory.total,
                seats: card.seats.len(),
                shares: shares.collect(),
                shares_by: card.by,
                restarts: (0..card.seats.len()).map(restarts).sum(),
                last_recut_ms: card.last_recut.map(|took| took.as_secs_f64() * 1e3),
            }
        });
        cards.collect()
    }
}
