//! The threads that do what takes long: one loads, opens and captures, the other runs models that
//! are not captured.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use super::fatal::{exit_broken, exit_if_broken};
use super::finisher::StartedBatch;
use super::host::{Host, HostedModel, Opening};
use super::pressure::PressureKernel;
use super::responder::Responder;
use super::share::{CurrentShare, Share};
use super::streams::BatchStreams;
use crate::Pressure;
use crate::cuda::driver::{CudaError, Device, Green, Stream};
use crate::cuda::wire::{Head, Reply};

/// A batch to run.
pub(super) struct Batch {
    pub(super) slot: usize,
    pub(super) size: usize,
    /// Describes the inputs of each item, for a model that is not captured.
    pub(super) heads: Option<Vec<Vec<Head>>>,
}

/// Work that takes long.
pub(super) enum Job {
    Load { id: u64, model: u32, file: PathBuf, threads: usize, memory: Option<u64> },
    Open { id: u64, hosted: Arc<HostedModel>, what: Opening },
    Run { id: u64, hosted: Arc<HostedModel>, batch: Batch },
    Forget { id: u64, hosted: Arc<HostedModel> },
    Press { id: u64, what: Pressure, time: Duration },
}

/// What both threads need.
pub(super) struct Loader {
    pub(super) device: Device,
    pub(super) host: Arc<Host>,
    pub(super) streams: Arc<BatchStreams>,
    pub(super) current: Arc<CurrentShare>,
    pub(super) responder: Arc<Responder>,
    pub(super) started: Sender<StartedBatch>,
}

impl Loader {
    /// Runs a thread until the process ends.
    pub(super) fn run(&self, work: &Receiver<Job>) {
        let Self { device, host, streams, current, responder, started } = self;
        let mut presses = HashMap::new();
        if let Err(error) = device.set_current() {
            return exit_broken(&error);
        }
        for job in work {
            match job {
                Job::Load { id, model, file, threads, memory } => {
                    let loaded = host.load(model, file, threads, memory);
                    responder.answer(id, loaded.map(|signature| Reply::Loaded { signature }));
                }
                Job::Open { id, hosted, what } => {
                    let opened = host.open(&hosted, what);
                    if opened.is_err() {
                        exit_if_broken(streams);
                    }
                    responder.answer(id, opened.map(|captured| Reply::Opened { captured }));
                }
                Job::Run { id, hosted, batch: Batch { slot, size, heads } } => {
                    match hosted.run_slowly(streams, (slot, size), heads, current) {
                        Ok(None) => _ = started.send(StartedBatch { id, hosted, slot }),
                        Ok(Some(reply)) => responder.answer(id, Ok(reply)),
                        Err(error) => {
                            exit_if_broken(streams);
                            responder.answer(id, Err(error));
                        }
                    }
                }
                Job::Forget { id, hosted } => {
                    // Batches of it may still run.
                    let _ = streams.outward.wait();
                    hosted.free();
                    responder.answer(id, Ok(Reply::Done));
                }
                Job::Press { id, what, time } => {
                    let rate = press_for(&mut presses, &current.get(), what, time);
                    responder
                        .answer(id, rate.map(|rate| Reply::Pressed { rate }).map_err(Into::into));
                }
            }
        }
    }
}

/// Runs a pressure kernel on a share. The kernel and its memory are kept for the next call.
fn press_for(
    presses: &mut HashMap<Pressure, PressureKernel>,
    share: &Share,
    what: Pressure,
    time: Duration,
) -> Result<f64, CudaError> {
    let press = match presses.entry(what) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(PressureKernel::new(what)?),
    };
    let stream = share.green.as_ref().map_or_else(Stream::new, Green::stream)?;
    press.run(&stream, share.multiprocessors, time)
}
