//! The threads that do what takes long.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use super::fatal::{broken, end_if_broken};
use super::finisher::Flight;
use super::host::{Host, Hosted, Opening};
use super::lanes::Lanes;
use super::pressure::Press;
use super::responder::Voice;
use super::share::{Current, Share};
use crate::Pressure;
use crate::cuda::driver::{CudaError, Device, Green, Stream};
use crate::cuda::wire::{Head, Reply};

/// What a worker is asked to run.
pub(super) struct Batch {
    pub(super) slot: usize,
    pub(super) size: usize,
    /// Of its items, for a model that is not captured.
    pub(super) heads: Option<Vec<Vec<Head>>>,
}

/// What takes long.
pub(super) enum Job {
    Load { id: u64, model: u32, file: PathBuf, threads: usize, memory: Option<u64> },
    Open { id: u64, hosted: Arc<Hosted>, what: Opening },
    Run { id: u64, hosted: Arc<Hosted>, batch: Batch },
    Forget { id: u64, hosted: Arc<Hosted> },
    Press { id: u64, what: Pressure, time: Duration },
}

/// The thread that does what takes long.
pub(super) struct Loader {
    pub(super) device: Device,
    pub(super) host: Arc<Host>,
    pub(super) lanes: Arc<Lanes>,
    pub(super) current: Arc<Current>,
    pub(super) voice: Arc<Voice>,
    pub(super) flights: Sender<Flight>,
}

impl Loader {
    pub(super) fn load(&self, work: &Receiver<Job>) {
        let Self { device, host, lanes, current, voice, flights } = self;
        let mut presses = HashMap::new();
        if let Err(error) = device.set_current() {
            return broken(&error);
        }
        for job in work {
            match job {
                Job::Load { id, model, file, threads, memory } => {
                    let loaded = host.load(model, file, threads, memory);
                    voice.answer(id, loaded.map(|signature| Reply::Loaded { signature }));
                }
                Job::Open { id, hosted, what } => {
                    let opened = host.open(&hosted, what);
                    if opened.is_err() {
                        end_if_broken(lanes);
                    }
                    voice.answer(id, opened.map(|captured| Reply::Opened { captured }));
                }
                Job::Run { id, hosted, batch: Batch { slot, size, heads } } => {
                    match hosted.run_slowly(lanes, (slot, size), heads, current) {
                        Ok(None) => _ = flights.send(Flight { id, hosted, slot }),
                        Ok(Some(reply)) => voice.answer(id, Ok(reply)),
                        Err(error) => {
                            end_if_broken(lanes);
                            voice.answer(id, Err(error));
                        }
                    }
                }
                Job::Forget { id, hosted } => {
                    // Batches of it may still run.
                    let _ = lanes.outward.wait();
                    hosted.give_back();
                    voice.answer(id, Ok(Reply::Done));
                }
                Job::Press { id, what, time } => {
                    let rate = press_for(&mut presses, &current.get(), what, time);
                    voice.answer(id, rate.map(|rate| Reply::Pressed { rate }).map_err(Into::into));
                }
            }
        }
    }
}

/// Presses on a share; what is needed for it is kept for the next time.
fn press_for(
    presses: &mut HashMap<Pressure, Press>,
    share: &Share,
    what: Pressure,
    time: Duration,
) -> Result<f64, CudaError> {
    let press = match presses.entry(what) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(Press::new(what)?),
    };
    let stream = share.green.as_ref().map_or_else(Stream::new, Green::stream)?;
    press.run(&stream, share.multiprocessors, time)
}
