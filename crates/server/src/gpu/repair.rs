//! Seats that broke are started again, each by a thread of its own, and come back with all models
//! and the share that they had.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::Gpus;
use super::Relaxed;

/// A seat that breaks while nothing runs there is seen when somebody looks, so often.
const LOOK: Duration = Duration::from_millis(100);
/// Between two tries to start a seat again, at first and at most; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Memory is looked at so often.
const MEMORY: Duration = Duration::from_secs(1);

/// Looks after the seats until the server stops. `lost` says which broke.
pub(super) fn start(gpus: &Arc<Gpus>, lost: Receiver<usize>) -> io::Result<()> {
    let watched = Arc::downgrade(gpus);
    thread::Builder::new().name("gpu-watch".to_owned()).spawn(move || watch(&watched, &lost))?;
    // A seat may take its time to answer: who watches must not wait for it.
    let asked = Arc::downgrade(gpus);
    thread::Builder::new().name("gpu-memory".to_owned()).spawn(move || note_memory(&asked))?;
    Ok(())
}

fn watch(gpus: &Weak<Gpus>, lost: &Receiver<usize>) {
    loop {
        let told = match lost.recv_timeout(LOOK) {
            Ok(seat) => Some(seat),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(gpus) = gpus.upgrade().filter(|gpus| !gpus.stopping.load(Relaxed)) else { return };
        for (seat, supervised) in gpus.seats.iter().enumerate() {
            // What an executor tells may be of before the seat was started again: then it is
            // another by now.
            let is_gone = told == Some(seat)
                && gpus.part(seat).is_some()
                && gpus.executors_of(seat).is_empty();
            if (is_gone || supervised.seat.is_lost()) && supervised.set_down() {
                begin(&gpus, seat);
            }
        }
    }
}

fn begin(gpus: &Arc<Gpus>, seat: usize) {
    let (gpu, number) = gpus.named(seat);
    tracing::warn!(gpu, seat = number, "a seat broke: it is started again");
    let repairer = gpus.clone();
    let name = format!("gpu-{gpu}-seat-{number}");
    let started = thread::Builder::new().name(name).spawn(move || repairer.repair(seat));
    if let Err(error) = started {
        tracing::error!(gpu, seat = number, %error, "no thread can start it again");
        // The next who looks tries again.
        gpus.seats[seat].set_up();
    }
}

impl Gpus {
    /// Starts a seat again until that works.
    fn repair(&self, seat: usize) {
        let (gpu, number) = self.named(seat);
        let began = Instant::now();
        let mut pause = PAUSE_MIN;
        while !self.stopping.load(Relaxed) {
            match self.try_repair(seat) {
                Ok(()) => {
                    let after_s = began.elapsed().as_secs_f64();
                    tracing::info!(gpu, seat = number, after_s, "a seat is back");
                    return;
                }
                Err(reason) => {
                    let again_s = pause.as_secs_f64();
                    tracing::error!(gpu, seat = number, reason, again_s, "a seat stays away");
                }
            }
            thread::sleep(pause);
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    fn try_repair(&self, seat: usize) -> Result<(), String> {
        let supervised = &self.seats[seat];
        {
            // Nobody is to send batches there meanwhile. Mostly it is the pool that found out, and
            // then it has gone already.
            let _lock = self.lock_changes();
            self.stop_executors(seat);
        }
        supervised.seat.restart().map_err(|error| error.to_string())?;
        supervised.restarted();
        for model in self.models() {
            let name = model.name();
            let session = model.session(seat);
            session.map_err(|error| format!("model '{name}' cannot be loaded there: {error}"))?;
        }
        let _lock = self.lock_changes();
        self.stop_executors(seat);
        if let Some(part) = self.part(seat) {
            self.take_part(seat, &part).map_err(|error| error.to_string())?;
        }
        // In turn: who cuts its GPU anew gives it the next share, or leaves that to this.
        supervised.set_up();
        Ok(())
    }

    /// The executors of a seat get no more batches.
    fn stop_executors(&self, seat: usize) {
        for (executor, _) in self.executors_of(seat) {
            self.pool.leave(executor);
        }
    }
}

fn note_memory(gpus: &Weak<Gpus>) {
    loop {
        let Some(gpus) = gpus.upgrade().filter(|gpus| !gpus.stopping.load(Relaxed)) else { return };
        let seats: Vec<_> = gpus.cuts().gpus.iter().map(|card| card.seats.clone()).collect();
        for (at, mut seats) in seats.into_iter().enumerate() {
            // Who cannot say leaves it as it was.
            let memory = seats
                .find(|&seat| gpus.seats[seat].is_up())
                .and_then(|seat| gpus.seats[seat].seat.memory().ok());
            if let Some(memory) = memory {
                gpus.cuts().gpus[at].memory = memory;
            }
        }
        drop(gpus);
        thread::sleep(MEMORY);
    }
}
