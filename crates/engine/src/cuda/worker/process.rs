//! The worker process. It reads questions from a socket, which is its standard input, and ends when
//! the socket does.
//!
//! It has five threads:
//!
//! - the main thread reads questions and begins batches, which takes microseconds (`reader.rs`);
//! - the *loader* does what takes longer: loading and capturing (`loader.rs`);
//! - the *runner* runs models that cannot be captured (`loader.rs` too);
//! - the *finisher* waits for batches and answers (`finisher.rs`);
//! - the *mover* makes graphs executable on another share while batches run (`mover.rs`).
//!
//! While a batch runs, the next is copied in and the one before it is copied out: there are three
//! streams, and a slot of memory for each batch.

use std::collections::HashMap;
use std::io::BufReader;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use super::fatal::exit_broken;
use super::finisher::run_finisher;
use super::host::Host;
use super::loader::Loader;
use super::mover::run_mover;
use super::reader::Reader;
use super::responder::Responder;
use super::share::{CurrentShare, Share};
use super::streams::BatchStreams;
use crate::cuda::driver::{self, Device};
use crate::cuda::wire::{self, Ask};
use crate::{EngineError, Gpu};

/// Works until the server closes the socket or ends.
pub fn work(gpu: usize, folders: &[PathBuf]) -> Result<(), EngineError> {
    driver::start().map_err(EngineError::Library)?;
    let device = Device::open(gpu)?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(socket.map_err(|error| EngineError::Library(error.to_string()))?);
    let answers = socket.try_clone().map_err(|error| EngineError::Library(error.to_string()))?;
    let responder = Arc::new(Responder::new(answers));
    let streams = Arc::new(BatchStreams::new()?);
    let host = Arc::new(Host::new(gpu, device, folders)?);
    let (started, to_finish) = channel();
    let (jobs, work) = channel();
    let (batches, plain) = channel();
    spawn("finisher", {
        let responder = responder.clone();
        move || run_finisher(&device, &to_finish, &responder)
    })?;
    let (multiprocessors, _) = device.multiprocessors()?;
    let current =
        Arc::new(CurrentShare::new(Share { number: 0, device, green: None, multiprocessors }));
    // Two threads, so that batches of one model do not wait while another is loaded.
    for (name, work) in [("loader", work), ("runner", plain)] {
        let loader = Loader {
            device,
            host: host.clone(),
            streams: streams.clone(),
            current: current.clone(),
            responder: responder.clone(),
            started: started.clone(),
        };
        spawn(name, move || loader.run(&work))?;
    }
    let (moves, orders) = channel();
    spawn("mover", {
        let (current, streams, responder) = (current.clone(), streams.clone(), responder.clone());
        move || {
            if let Err(error) = run_mover(&device, &orders, &current, &streams.compute, &responder)
            {
                exit_broken(&error);
            }
        }
    })?;
    let models = HashMap::new();
    let mut reader =
        Reader { device, host, streams, responder, started, jobs, batches, moves, current, models };
    let mut lines = BufReader::new(socket);
    let mut line = Vec::new();
    // The worker ends with its socket, after an error too.
    while let Ok(Some(Ask { id, what })) = wire::read(&mut lines, &mut line) {
        reader.handle(id, what);
    }
    Ok(())
}

/// The GPUs of this machine.
pub fn gpus() -> Result<Vec<Gpu>, EngineError> {
    driver::start().map_err(EngineError::Library)?;
    let gpu = |index| {
        let device = Device::open(index)?;
        let (multiprocessors, step) = device.multiprocessors()?;
        let (name, memory) = (device.name()?, device.memory()?.1);
        Ok(Gpu { index, name, memory, multiprocessors, step })
    };
    (0..driver::count()?).map(gpu).collect()
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), EngineError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread
        .map(drop)
        .map_err(|error| EngineError::Library(format!("a thread cannot be started: {error}")))
}
