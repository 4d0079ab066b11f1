//! A GPU is cut into other shares while it serves, in milliseconds, and no request fails.
//!
//! Dispatch learns how fast everything is on the new shares first, and all seats make ready for
//! theirs at once, beside what they run. Then the seats that have no share yet take theirs, then
//! those that have one take another: the new executor joins, and then the old one leaves, which
//! finishes what it was given. Those that are not needed leave last.

use std::thread;
use std::time::{Duration, Instant};

use super::{By, GpuError, Gpus, Part, check};
use crate::profiler::shortest_of;

/// A GPU that was cut anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recut {
    /// Which GPU.
    pub gpu: usize,
    /// What its shares are, in percent.
    pub percents: Vec<u32>,
    /// And in multiprocessors.
    pub multiprocessors: Vec<u32>,
    /// How long it took until all of them served.
    pub took: Duration,
}

/// Why a GPU was not cut anew. What was served is served as before, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RecutError {
    /// There is no such GPU.
    #[error("there is no GPU {gpu}: there are {there}")]
    Unknown {
        /// Which was asked for.
        gpu: usize,
        /// Those that there are, in words.
        there: String,
    },
    /// It cannot be cut so.
    #[error(transparent)]
    Refused(#[from] GpuError),
    /// A model could not be in time on any share.
    #[error(
        "model '{model}' takes {needed_ms:.3} ms on the fastest share that there would be, longer \
         than its slo_ms = {slo_ms}"
    )]
    Slow {
        /// Which model.
        model: String,
        /// What one request takes.
        needed_ms: f64,
        /// What it may take.
        slo_ms: f64,
    },
    /// A seat did not do what it should.
    #[error("{reason}; the shares are now {now}")]
    Failed {
        /// Why.
        reason: String,
        /// What the cut is now, in words.
        now: String,
    },
}

impl Gpus {
    /// Cuts a GPU into shares of so many percent. Blocks until all of them serve.
    pub(crate) fn recut(&self, gpu: usize, percents: &[u32], by: By) -> Result<Recut, RecutError> {
        let _lock = self.lock_changes();
        let began = Instant::now();
        let (at, before, cut, after) = {
            let mut cuts = self.cuts();
            let at = cuts.gpus.iter().position(|card| card.gpu.index == gpu);
            let at = at.ok_or_else(|| {
                let there: Vec<String> =
                    cuts.gpus.iter().map(|card| card.gpu.index.to_string()).collect();
                RecutError::Unknown { gpu, there: there.join(", ") }
            })?;
            let card = &cuts.gpus[at];
            let (described, seats, before) =
                (card.gpu.clone(), card.seats.len(), card.parts.clone());
            let cut = check(&described, seats, percents)?;
            let after = cuts.parts(&described, seats, &cut);
            (at, before, cut, after)
        };
        self.check_speed(at, &after)?;
        self.tell(at, &[&before, &after]);
        if let Err(reason) = self.apply(at, &after) {
            // What was is better than a mixture, where it can be had back.
            let back = self.apply(at, &before);
            let parts = self.cuts().gpus[at].parts.clone();
            self.tell(at, &[&parts]);
            let reason = match back {
                Ok(()) => reason,
                Err(error) => format!("{reason}, and what was cannot be had back: {error}"),
            };
            let now = shown(&parts);
            tracing::error!(gpu, reason, now, "could not be cut anew");
            return Err(RecutError::Failed { reason, now });
        }
        let took = began.elapsed();
        self.tell(at, &[&after]);
        let mut cuts = self.cuts();
        let card = &mut cuts.gpus[at];
        (card.cut, card.by, card.last_recut) = (cut.clone(), by, Some(took));
        drop(cuts);
        self.recuts.fetch_add(1, super::Relaxed);
        let took_ms = took.as_secs_f64() * 1e3;
        tracing::info!(gpu, shares = %cut, took_ms, "was cut anew");
        let (percents, multiprocessors) = (cut.percents().to_vec(), cut.multiprocessors().to_vec());
        Ok(Recut { gpu, percents, multiprocessors, took })
    }

    /// Refuses shares on which a model could never be in time, nor on those of other GPUs.
    fn check_speed(&self, at: usize, parts: &[Option<Part>]) -> Result<(), RecutError> {
        let classes = self.classes_with(at, &[parts]);
        for model in self.models() {
            let shortest = shortest_of(&model.spec(&classes));
            if let Some(needed) = shortest.filter(|&needed| needed > model.slo()) {
                let (model, slo_ms) = (model.name().to_owned(), model.slo().as_ms());
                return Err(RecutError::Slow { model, needed_ms: needed.as_ms(), slo_ms });
            }
        }
        Ok(())
    }

    /// Tells dispatch how fast every model is on the shares of all GPUs, if those of one are these.
    fn tell(&self, at: usize, parts: &[&[Option<Part>]]) {
        let classes = self.classes_with(at, parts);
        for model in self.models() {
            if let Some(served) = model.served() {
                let told = served.place.respec(model.spec(&classes).into());
                told.expect("shares are dispatched in one piece");
            }
        }
    }

    /// The classes in use, if the shares of one GPU were these.
    fn classes_with(
        &self,
        at: usize,
        parts: &[&[Option<Part>]],
    ) -> Vec<Option<(fermata_engine::Gpu, super::Share)>> {
        let cuts = self.cuts();
        let mut classes = cuts.classes_in_use(Some(at));
        let gpu = &cuts.gpus[at].gpu;
        for part in parts.iter().flat_map(|parts| parts.iter()).flatten() {
            let share = super::Share::of(gpu, part.multiprocessors());
            classes[part.class.index()] = Some((gpu.clone(), share));
        }
        classes
    }

    /// Gives each seat of a GPU its part. A seat that is broken takes it when it is back.
    fn apply(&self, at: usize, parts: &[Option<Part>]) -> Result<(), String> {
        let (seats, before) = {
            let card = &self.cuts().gpus[at];
            (card.seats.clone(), card.parts.clone())
        };
        let changes = parts.iter().enumerate().filter(|&(seat, part)| before[seat] != *part);
        let mut changes: Vec<(usize, &Part)> =
            changes.filter_map(|(seat, part)| Some((seat, part.as_ref()?))).collect();
        changes.sort_by_key(|&(seat, _)| before[seat].is_some());
        self.make_ready(seats.start, &changes);
        for (seat, part) in changes {
            let number = seats.start + seat;
            if self.seats[number].is_up() {
                match self.take_part(number, part) {
                    Ok(()) => {}
                    Err(error) if error.is_lost() => {
                        tracing::warn!(seat, %error, "broke while it was given a share");
                    }
                    Err(error) => return Err(format!("seat {seat}: {error}")),
                }
            }
            self.cuts().gpus[at].parts[seat] = Some(part.clone());
        }
        for seat in (0..parts.len()).filter(|&seat| parts[seat].is_none()) {
            self.cuts().gpus[at].parts[seat] = None;
            for (executor, _) in self.executors_of(seats.start + seat) {
                self.pool.leave(executor);
            }
        }
        Ok(())
    }

    /// Has all seats make ready for their parts. One that cannot says so when it is to take it.
    fn make_ready(&self, first: usize, changes: &[(usize, &Part)]) {
        thread::scope(|scope| {
            for &(seat, part) in changes {
                let supervised = &self.seats[first + seat];
                if supervised.is_up() {
                    let thread = thread::Builder::new().name(format!("ready-{seat}"));
                    let prepare = || supervised.seat.prepare_share(&part.cut, part.number);
                    // Without it, taking the part takes longer.
                    let _ = thread.spawn_scoped(scope, prepare);
                }
            }
        });
    }
}

/// `40 % on seat 0, 60 % on seat 1`.
fn shown(parts: &[Option<Part>]) -> String {
    let each = parts
        .iter()
        .enumerate()
        .filter_map(|(seat, part)| Some(format!("{} % on seat {seat}", part.as_ref()?.percent())));
    each.collect::<Vec<_>>().join(", ")
}
