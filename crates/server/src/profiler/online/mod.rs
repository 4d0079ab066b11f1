//! The online profiler: some requests are run again, alone, to learn what requests of their kind
//! take.
//!
//! On a thread of its own, with a session of its own, and not on an executor that happens to be
//! idle: whoever came while an executor ran a request for the second time would have to wait for
//! it, and dispatch would know nothing of it. The thread is as humble as the kernel has it (nice
//! 19) and times itself by the time that it was given, so that a busy machine makes it late and not
//! wrong. What that costs is the memory of one more session of each model that is looked at, made
//! when its first sample comes.
//!
//! At most five requests a second are run, and at most a hundredth of the time that the executors
//! have. A sample is drawn when a request comes, and run when it has left, answered or not: were
//! only those looked at that finish in time, nobody would find out that a kind that is thought
//! hopeless is not.

mod ledger;
mod profile;

use std::io;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select};
use fermata_core::Span;
use fermata_engine::EngineError;

pub(crate) use ledger::Ledger;
pub(crate) use profile::{Alone, OnlineProfile, Sample};

use profile::Bench;

/// Requests that wait to be run again: one of each model, and there is time.
const WAITING_MAX: usize = 64;
/// Between two runs, at least.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// A run of a millisecond is followed by a pause of so many, on a single executor.
const PAUSE_OF_RUN: u32 = 100;
/// News of one model are told no more often.
const NEWS_INTERVAL: Duration = Duration::from_secs(1);

/// The profiler's thread.
#[derive(Debug)]
pub(crate) struct Online {
    samples: Sender<Sample>,
    /// Dropping the first end ends the thread after the run that it is at.
    thread: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Online {
    /// Starts it.
    pub(crate) fn start() -> io::Result<Self> {
        Self::start_limited(RateLimit { between_runs: PAUSE_MIN, between_news: NEWS_INTERVAL })
    }

    fn start_limited(limit: RateLimit) -> io::Result<Self> {
        let (samples, received) = crossbeam_channel::bounded(WAITING_MAX);
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let thread = thread::Builder::new().name("profiler".to_owned()).spawn(move || {
            be_humble();
            limit.keep_up(&received, &stopped);
        })?;
        Ok(Self { samples, thread: Mutex::new(Some((stop, thread))) })
    }

    /// Where samples go.
    pub(crate) fn samples(&self) -> Sender<Sample> {
        self.samples.clone()
    }

    /// Ends it, after the run that it is at.
    pub(crate) fn stop(&self) {
        let thread = self.thread.lock().expect("nothing panics with it").take();
        if let Some((stop, thread)) = thread {
            drop(stop);
            // A panic of it ended the process already.
            let _ = thread.join();
        }
    }
}

impl Drop for Online {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Lets others go first. Where that cannot be set, it is one thread among others.
fn be_humble() {
    let _ = rustix::process::nice(19);
}

/// How often something is done, at most.
#[derive(Clone, Copy, Debug)]
struct RateLimit {
    between_runs: Duration,
    /// Of one model.
    between_news: Duration,
}

impl RateLimit {
    fn keep_up(self, samples: &Receiver<Sample>, stopped: &Receiver<()>) {
        loop {
            let sample = select! {
                recv(stopped) -> _ => return,
                recv(samples) -> sample => match sample {
                    Ok(sample) => sample,
                    Err(_) => return,
                },
            };
            let pause = self.run(&sample);
            drop(sample);
            if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Runs a request, learns from it, tells what is news. Returns how long to wait until the next.
    fn run(self, sample: &Sample) -> Duration {
        let online = &sample.online;
        let mut bench = online.bench();
        let began = Instant::now();
        let took = match bench.run(sample) {
            Ok(took) => took,
            Err(error) => {
                if matches!(error, EngineError::Lost(_)) {
                    // Where it ran is gone, and may come back: the next is run with another
                    // session.
                    bench.session = None;
                } else if bench.session.is_none() {
                    // One that fails later may be a bad request.
                    let model = online.model();
                    tracing::warn!(model, reason = %error, "requests cannot be run alone");
                    online.close();
                }
                return self.pause(began.elapsed(), 1);
            }
        };
        online.count_run();
        bench.ledger.note(online.model(), sample.kind, took);
        let Some(place) = sample.place.upgrade() else { return self.between_runs };
        if bench.told.is_some() && !bench.told_to.ptr_eq(&sample.place) {
            bench.ledger.tell_again();
        }
        if bench.told.is_none_or(|told| told.elapsed() >= self.between_news)
            && let Some(spread) = bench.ledger.news(&online.kinds().came())
        {
            tracing::debug!(model = online.model(), ?spread, "run times have changed");
            (bench.told, bench.told_to) = (Some(Instant::now()), sample.place.clone());
            place.respread(spread);
        }
        self.pause(Duration::from_nanos(took.0), place.pool().executors())
    }

    fn pause(self, run: Duration, executors: usize) -> Duration {
        (run * PAUSE_OF_RUN / executors.max(1) as u32).max(self.between_runs)
    }
}

impl Bench {
    /// What a request takes alone; why it cannot be told, if it cannot.
    fn run(&mut self, sample: &Sample) -> Result<Span, EngineError> {
        let batch = std::slice::from_ref(&sample.inputs);
        let session = match &mut self.session {
            Some(session) => session,
            None => {
                let session = self.session.insert((self.make)(0)?);
                // Engines are slow the first time.
                session.run(batch)?;
                session
            }
        };
        let watch = self.watch;
        super::time(session.as_mut(), batch, || watch.now())
    }
}

#[cfg(test)]
mod tests;
