//! A worker: the process that has a seat. It is asked over a socket, which it finds as its standard input, and ends with it.
//!
//! Five threads: this one reads what is asked and begins batches, which takes microseconds; the *loader* does what takes longer
//! (loading, capturing), the *runner* runs models that cannot be captured; the *finisher* waits for batches and answers; the *mover* makes models ready
//! on another share beside the one on which they run (`mover.rs`). While a batch runs, the next is copied in and the one before it out:
//! three streams, and a slot of memory for each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::BufReader;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::driver::{CudaError, Device, Event, Stream};
use super::green::Green;
use super::host::{Host, Hosted, Opening};
use super::mover::{Current, Move, move_on};
use super::net::{Net, Share};
use super::pressure::Press;
use super::wire::{self, Answer, Ask, Failure, Head, Question, Reply};
use crate::{EngineError, Gpu, Pressure};

/// What both the reader and the loader begin batches with.
pub(super) struct Lanes {
    /// Batches arrive,
    inward: Stream,
    /// run,
    pub(super) compute: Stream,
    /// and leave.
    outward: Stream,
}

/// When a batch arrived, began, ended and left.
pub(super) struct Marks {
    arrived: Event,
    began: Event,
    ended: Event,
    left: Event,
}

impl Marks {
    pub(super) fn new() -> Result<Self, CudaError> {
        let [arrived, began, ended, left] =
            [Event::new()?, Event::new()?, Event::new()?, Event::new()?];
        Ok(Self { arrived, began, ended, left })
    }
}

impl Lanes {
    fn new() -> Result<Self, CudaError> {
        let [inward, compute, outward] = [Stream::new()?, Stream::new()?, Stream::new()?];
        Ok(Self { inward, compute, outward })
    }

    /// Begins a batch of a captured model.
    pub(super) fn begin(
        &self,
        hosted: &Hosted,
        net: &mut Net,
        (slot, size): (usize, usize),
        share: &Arc<Share>,
    ) -> Result<(), CudaError> {
        let (form, slot, place) = hosted.slot(slot);
        let (inputs, outputs) = (&form.inputs, &form.outputs);
        for column in inputs {
            let at = column.at as u64;
            self.inward.copy(slot.stage.place + at, place + at, column.item * size)?;
        }
        self.inward.record(&slot.marks.arrived)?;
        self.compute.wait_for(&slot.marks.arrived)?;
        self.compute.record(&slot.marks.began)?;
        for (column, buffer) in inputs.iter().zip(&net.inputs) {
            self.compute.copy(
                buffer.place,
                slot.stage.place + column.at as u64,
                column.item * size,
            )?;
        }
        self.compute.launch(net.ready(size, share)?.exec())?;
        for (column, buffer) in outputs.iter().zip(&net.outputs) {
            self.compute.copy(
                slot.stage.place + column.at as u64,
                buffer.place,
                column.item * size,
            )?;
        }
        self.compute.record(&slot.marks.ended)?;
        self.outward.wait_for(&slot.marks.ended)?;
        for column in outputs {
            let at = column.at as u64;
            self.outward.copy(place + at, slot.stage.place + at, column.item * size)?;
        }
        self.outward.record(&slot.marks.left)
    }
}

/// Says answers, a line each, whoever has one.
pub(super) struct Voice(Mutex<UnixStream>);

impl Voice {
    pub(super) fn answer(&self, id: u64, what: Result<Reply, EngineError>) {
        let what = what.map_err(|error| Failure { reason: error.to_string() });
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Where nobody listens any more, the reader sees it too, and ends the process.
        let _ = wire::write(&mut *stream, &Answer { id, what });
    }
}

/// A batch that was begun.
struct Flight {
    id: u64,
    hosted: Arc<Hosted>,
    slot: usize,
}

/// What a worker is asked to run.
struct Batch {
    slot: usize,
    size: usize,
    /// Of its items, for a model that is not captured.
    heads: Option<Vec<Vec<Head>>>,
}

/// What takes long.
enum Job {
    Load { id: u64, model: u32, file: PathBuf, threads: usize, memory: Option<u64> },
    Open { id: u64, hosted: Arc<Hosted>, what: Opening },
    Run { id: u64, hosted: Arc<Hosted>, batch: Batch },
    Forget { id: u64, hosted: Arc<Hosted> },
    Press { id: u64, what: Pressure, time: Duration },
}

/// Works until the server is gone.
pub fn work(gpu: usize, folders: &[PathBuf]) -> Result<(), EngineError> {
    super::driver::start().map_err(EngineError::Library)?;
    let device = Device::open(gpu)?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(socket.map_err(|error| EngineError::Library(error.to_string()))?);
    let voice = socket.try_clone().map_err(|error| EngineError::Library(error.to_string()))?;
    let voice = Arc::new(Voice(Mutex::new(voice)));
    let lanes = Arc::new(Lanes::new()?);
    let host = Arc::new(Host::new(gpu, device, folders)?);
    let (flights, landing) = channel();
    let (jobs, work) = channel();
    let (batches, plain) = channel();
    spawn("finisher", {
        let voice = voice.clone();
        move || finish(&device, &landing, &voice)
    })?;
    let (multiprocessors, _) = device.multiprocessors()?;
    let current = Arc::new(Current::new(Share { number: 0, device, green: None, multiprocessors }));
    // What is loaded does not keep waiting what is served.
    for (name, work) in [("loader", work), ("runner", plain)] {
        let loader = Loader {
            device,
            host: host.clone(),
            lanes: lanes.clone(),
            current: current.clone(),
            voice: voice.clone(),
            flights: flights.clone(),
        };
        spawn(name, move || loader.load(&work))?;
    }
    let (moves, orders) = channel();
    spawn("mover", {
        let (current, lanes, voice) = (current.clone(), lanes.clone(), voice.clone());
        move || {
            if let Err(error) = move_on(&device, &orders, &current, &lanes.compute, &voice) {
                broken(&error);
            }
        }
    })?;
    let models = HashMap::new();
    let mut reader =
        Reader { device, host, lanes, voice, flights, jobs, batches, moves, current, models };
    let mut lines = BufReader::new(socket);
    let mut line = Vec::new();
    // Whatever ends the socket ends the worker.
    while let Ok(Some(Ask { id, what })) = wire::read(&mut lines, &mut line) {
        reader.take(id, what);
    }
    Ok(())
}

/// The GPUs of this machine.
pub fn gpus() -> Result<Vec<Gpu>, EngineError> {
    super::driver::start().map_err(EngineError::Library)?;
    let gpu = |index| {
        let device = Device::open(index)?;
        let (multiprocessors, step) = device.multiprocessors()?;
        let (name, memory) = (device.name()?, device.memory()?.1);
        Ok(Gpu { index, name, memory, multiprocessors, step })
    };
    (0..super::driver::count()?).map(gpu).collect()
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), EngineError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread
        .map(drop)
        .map_err(|error| EngineError::Library(format!("a thread cannot be started: {error}")))
}

/// The thread that reads.
struct Reader {
    device: Device,
    host: Arc<Host>,
    lanes: Arc<Lanes>,
    voice: Arc<Voice>,
    flights: Sender<Flight>,
    /// To the loader,
    jobs: Sender<Job>,
    /// and to the runner.
    batches: Sender<Job>,
    moves: Sender<Move>,
    current: Arc<Current>,
    models: HashMap<u32, Arc<Hosted>>,
}

impl Reader {
    fn take(&mut self, id: u64, what: Question) {
        match what {
            Question::Load { model, file, threads, memory } => {
                self.hand_over(Job::Load { id, model, file, threads, memory });
            }
            Question::Open { model, signature, region, form, known } => {
                let Some(hosted) = self.find(id, model) else { return };
                let what = Opening { signature, region, form, known };
                self.hand_over(Job::Open { id, hosted, what });
            }
            Question::Run { model, slot, size, heads } => {
                self.run(id, model, Batch { slot, size, heads });
            }
            Question::Unload { model } => {
                let Some(hosted) = self.find(id, model) else { return };
                self.models.remove(&model);
                self.host.forget(model);
                self.hand_over(Job::Forget { id, hosted });
            }
            Question::Share { place, takes } => {
                let models = self.models.values().cloned().collect();
                // The mover ends with the process only.
                let _ = self.moves.send(Move { id, place, takes, models });
            }
            Question::Memory => {
                let memory = self.device.memory().inspect_err(end_if_fatal);
                let memory = memory.map_err(EngineError::from);
                self.voice.answer(id, memory.map(|(free, total)| Reply::Memory { free, total }));
            }
            Question::Press { what, seconds } => {
                let time = Duration::from_secs_f64(seconds.clamp(0.0, 60.0));
                self.hand_over(Job::Press { id, what, time });
            }
        }
    }

    fn hand_over(&self, job: Job) {
        // The loader ends with the process only.
        let _ = self.jobs.send(job);
    }

    fn find(&mut self, id: u64, model: u32) -> Option<Arc<Hosted>> {
        // Most questions are about models that were asked about before.
        if let Some(hosted) = self.models.get(&model) {
            return Some(hosted.clone());
        }
        let hosted = self.host.find(model);
        match &hosted {
            Some(hosted) => _ = self.models.insert(model, hosted.clone()),
            None => {
                self.voice.answer(id, Err(EngineError::Run(format!("there is no model {model}"))))
            }
        }
        hosted
    }

    fn run(&mut self, id: u64, model: u32, batch: Batch) {
        let Some(hosted) = self.find(id, model) else { return };
        let Batch { slot, size, .. } = batch;
        let begun = hosted.with_net_soon(|net| {
            let captured = net.has(size);
            captured.then(|| self.lanes.begin(&hosted, net, (slot, size), &self.current.get()))
        });
        match begun.flatten() {
            Some(Ok(())) => _ = self.flights.send(Flight { id, hosted, slot }),
            Some(Err(error)) => {
                end_if_fatal(&error);
                self.voice.answer(id, Err(error.into()));
            }
            None if batch.heads.is_some() => {
                // The runner ends with the process only.
                let _ = self.batches.send(Job::Run { id, hosted, batch });
            }
            None => self.hand_over(Job::Run { id, hosted, batch }),
        }
    }
}

/// The thread that does what takes long.
struct Loader {
    device: Device,
    host: Arc<Host>,
    lanes: Arc<Lanes>,
    current: Arc<Current>,
    voice: Arc<Voice>,
    flights: Sender<Flight>,
}

impl Loader {
    fn load(&self, work: &Receiver<Job>) {
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

/// The thread that waits for batches.
fn finish(device: &Device, landing: &Receiver<Flight>, voice: &Voice) {
    if let Err(error) = device.set_current() {
        return broken(&error);
    }
    for Flight { id, hosted, slot } in landing {
        let (_, slot, _) = hosted.slot(slot);
        let landed =
            slot.marks.left.wait().and_then(|()| slot.marks.ended.since(&slot.marks.began));
        match landed {
            Ok(ms) => {
                let ns = (f64::from(ms) * 1e6) as u64;
                voice.answer(id, Ok(Reply::Ran { ns, heads: None }));
            }
            // An error that shows when work ends is of the whole context: nothing will run here any more. The server sees the end,
            // runs the batch again, and starts another worker.
            Err(error) => broken(&error),
        }
    }
}

/// What ONNX Runtime says of an error does not tell whether anything can run after it; the GPU does.
fn end_if_broken(lanes: &Lanes) {
    if let Err(error) = lanes.compute.wait() {
        end_if_fatal(&error);
    }
}

/// A worker in which nothing can run ends, so that another takes its place.
fn end_if_fatal(error: &CudaError) {
    if error.is_fatal() {
        broken(error);
    }
}

fn broken(error: &CudaError) {
    eprintln!("fermata gpu-worker: {error}");
    std::process::exit(70);
}
