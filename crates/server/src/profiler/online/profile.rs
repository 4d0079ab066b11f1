//! A model as the online profiler sees it: shared by whoever serves it, wherever it runs.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use crossbeam_channel::Sender;
use fermata_core::KindId;
use fermata_engine::{Inputs, Session, Tensor};
use fermata_pool::{MakeSession, Place};
use fermata_repository::RunTime;

use super::ledger::Ledger;
use crate::kinds::Kinds;
use crate::profiler::Watch;

/// A model, its kinds of requests, and what is learned of them.
pub(crate) struct OnlineProfile {
    model: String,
    kinds: Kinds,
    /// What the settings say; by what is seen, if they do not.
    run_time: Option<RunTime>,
    /// The next request is to be run again, alone.
    wanted: AtomicBool,
    /// None ever will be: they cannot be run.
    closed: AtomicBool,
    runs: AtomicU64,
    samples: Option<Sender<Sample>>,
    bench: Mutex<Bench>,
}

/// Where its requests are run alone. Only the profiler's thread takes it.
pub(super) struct Bench {
    pub(super) make: Arc<MakeSession>,
    /// Made when it is needed first, and by the profiler's thread: an engine's own threads are then
    /// as humble.
    pub(super) session: Option<Box<dyn Session>>,
    /// How a run is timed.
    pub(super) watch: Watch,
    pub(super) ledger: Ledger,
    /// When news were told last.
    pub(super) told: Option<Instant>,
    /// To whom. A model that moved must be told anew.
    pub(super) told_to: Weak<Place>,
}

/// What is needed to run a model's requests alone.
pub(crate) struct Alone {
    /// Makes a session for it.
    pub(crate) make: Arc<MakeSession>,
    /// How a run is timed.
    pub(crate) watch: Watch,
    /// What is known so far.
    pub(crate) ledger: Ledger,
}

impl OnlineProfile {
    /// A model that is watched, if somebody takes samples of it.
    pub(crate) fn new(
        model: &str,
        kinds: Kinds,
        run_time: Option<RunTime>,
        alone: Alone,
        samples: Option<Sender<Sample>>,
    ) -> Self {
        let Alone { make, watch, ledger } = alone;
        let (told, told_to) = (None, Weak::new());
        let bench = Bench { make, session: None, watch, ledger, told, told_to };
        Self {
            model: model.to_owned(),
            kinds,
            run_time,
            wanted: AtomicBool::new(samples.is_some() && run_time != Some(RunTime::Point)),
            closed: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            samples,
            bench: Mutex::new(bench),
        }
    }

    /// Its name.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// The kinds of its requests.
    pub(crate) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// How often a request was run again.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(Relaxed)
    }

    pub(super) fn count_run(&self) {
        self.runs.fetch_add(1, Relaxed);
    }

    /// Whether its requests are looked at: where the settings say nothing, those are that may
    /// differ.
    fn is_watched(&self) -> bool {
        match self.run_time {
            Some(RunTime::Point) => false,
            Some(RunTime::Spread) => true,
            None => self.kinds.lengths().is_some() || self.kinds.tags().is_used(),
        }
    }

    /// A copy of a request's first row, if it is one that is to be run again. Payloads are shared,
    /// not copied.
    pub(crate) fn sample(
        self: &Arc<Self>,
        place: &Arc<Place>,
        kind: KindId,
        inputs: &[Tensor],
        rows: usize,
    ) -> Option<Sample> {
        if !self.wanted.load(Relaxed) || !self.is_watched() || !self.wanted.swap(false, Relaxed) {
            return None;
        }
        let first = |input: &Tensor| match rows {
            1 => Some(input.clone()),
            _ => input.rows(rows).into_iter().next(),
        };
        let inputs = inputs.iter().map(first).collect::<Option<Inputs>>();
        let (online, place) = (self.clone(), Arc::downgrade(place));
        inputs.map(|inputs| Sample { online, place, kind, inputs })
    }

    /// Its requests cannot be run alone.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    pub(super) fn bench(&self) -> std::sync::MutexGuard<'_, Bench> {
        self.bench.lock().expect("nothing panics with it")
    }
}

/// A request that is to be run again. When it is gone, whatever became of it, the next is wanted.
pub(crate) struct Sample {
    pub(super) online: Arc<OnlineProfile>,
    /// Where dispatch is told what comes of it. It must not keep a model that is to go.
    pub(super) place: Weak<Place>,
    pub(super) kind: KindId,
    pub(super) inputs: Inputs,
}

impl Sample {
    /// Hands it to the profiler; to nobody, where it has enough to do.
    pub(crate) fn hand_in(self) {
        let samples = self.online.samples.clone();
        if let Some(samples) = samples {
            let _ = samples.try_send(self);
        }
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        self.online.wanted.store(!self.online.closed.load(Relaxed), Relaxed);
    }
}

impl fmt::Debug for OnlineProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnlineProfile").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}
