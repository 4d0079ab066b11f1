//! A model on the seats of all GPUs: a session on each, whether the seat has a share or not, and a
//! profile for each share.
//!
//! That it is on seats without a share costs their memory, and is what makes a re-cut quick:
//! nothing is loaded then. A session stays with its seat, whatever share that has: the executors
//! that a seat is for, one after the other, use the same.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use fermata_core::{Profile, Span};
use fermata_dispatch::ModelSpec;
use fermata_engine::{
    EngineError, Gpu, Inputs, Outputs, Running, Session, Signature, Source, TensorSpec,
};
use fermata_repository::{ModelEntry, Resolved};

use super::classes::Share;
use super::estimate::estimate;
use super::supervised::SupervisedSeat;
use crate::profiler::{self, Cache, CacheKey, Options, Planned};
use crate::served::Served;

/// A version of a model on GPUs. When the last who runs it is gone, so are its sessions.
pub(crate) struct OnGpus {
    /// What it was read from. Files that came with a request stay for as long as a seat may have to
    /// read them again.
    entry: ModelEntry,
    source: Source,
    signature: Signature,
    shapes: BTreeMap<String, Vec<i64>>,
    slo: Span,
    seats: Arc<[SupervisedSeat]>,
    /// By seat.
    sessions: Vec<Mutex<Option<OfSeat>>>,
    known: Mutex<Knowledge>,
    /// Who serves it, for whoever has to tell dispatch something of it.
    served: OnceLock<Weak<Served>>,
}

/// A session on a seat that was started again so often.
struct OfSeat {
    restarts: u64,
    session: SeatSession,
    /// Batches up to this size have run on it.
    warmed: usize,
}

/// How fast it is.
#[derive(Default)]
struct Knowledge {
    /// Where its measurements are kept, but for the name of the share.
    key: Option<CacheKey>,
    /// By the name of the GPU and the multiprocessors of the share.
    measured: BTreeMap<String, BTreeMap<u32, Profile>>,
}

impl OnGpus {
    /// A model that was read and is on no seat yet.
    pub(super) fn new(
        entry: &ModelEntry,
        source: Source,
        resolved: &Resolved,
        seats: Arc<[SupervisedSeat]>,
    ) -> Self {
        let sessions = seats.iter().map(|_| Mutex::default()).collect();
        Self {
            entry: entry.clone(),
            source,
            signature: resolved.signature.clone(),
            shapes: resolved.shapes.clone(),
            slo: resolved.slo,
            seats,
            sessions,
            known: Mutex::default(),
            served: OnceLock::new(),
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.entry.name
    }

    /// Its latency objective.
    pub(super) fn slo(&self) -> Span {
        self.slo
    }

    /// Who serves it.
    pub(crate) fn served(&self) -> Option<Arc<Served>> {
        self.served.get()?.upgrade()
    }

    /// Somebody serves it from now on.
    pub(crate) fn serve(&self, served: &Arc<Served>) {
        let served = self.served.set(Arc::downgrade(served));
        served.expect("one version of a model is served once");
    }

    /// Its session on a seat, in which every size has run; made, if the seat has none or was
    /// started again since.
    pub(super) fn session(&self, seat: usize) -> Result<SeatSession, EngineError> {
        let mut slot = self.slot(seat);
        let restarts = self.seats[seat].restarts();
        if slot.as_ref().is_none_or(|there| there.restarts != restarts) {
            // The memory of what is of no use goes first.
            *slot = None;
            let model = self.seats[seat].seat.load(&self.source)?;
            let session = SeatSession::new(model.session(&self.signature)?);
            *slot = Some(OfSeat { restarts, session, warmed: 0 });
        }
        let there = slot.as_mut().expect("it was made");
        let sizes = self.known().max_batch().unwrap_or(0);
        if there.warmed < sizes {
            profiler::warm(&mut there.session, &self.signature, sizes, &self.shapes)?;
            there.warmed = sizes;
        }
        Ok(there.session.clone())
    }

    /// Takes a session that somebody has made on a seat already.
    pub(super) fn adopt(&self, seat: usize, session: Box<dyn Session>) {
        let (restarts, session) = (self.seats[seat].restarts(), SeatSession::new(session));
        *self.slot(seat) = Some(OfSeat { restarts, session, warmed: 0 });
    }

    /// Measures it on the share that a seat has, or remembers what was measured there.
    pub(super) fn measure(
        &self,
        seat: usize,
        share: &Share,
    ) -> Result<profiler::Known, EngineError> {
        let mut session = self.session(seat)?;
        let engine = self.seats[seat].seat.as_ref();
        let known = profiler::cached_or_measured(
            engine,
            &self.source,
            &mut session,
            &self.signature,
            self.slo,
            &self.shapes,
            self.entry.settings.run_time,
            profiler::Watch::Wall,
        )?;
        if let Some(there) = self.slot(seat).as_mut() {
            there.warmed = there.warmed.max(known.profile.max_batch());
        }
        let mut all = self.known();
        let of_gpu = all.measured.entry(share.gpu.clone()).or_default();
        of_gpu.insert(share.multiprocessors, known.profile.clone());
        drop(all);
        Ok(known)
    }

    /// Notes where its measurements are kept, which takes a while for a large file.
    pub(super) fn find_kept(&self, seat: usize) -> Result<(), EngineError> {
        let engine = self.seats[seat].seat.as_ref();
        let options = Options { shapes: self.shapes.clone(), ..Options::default() };
        let key = CacheKey::of(engine, &self.source, &self.signature, &options)?;
        self.known().key = Some(key);
        Ok(())
    }

    /// How fast it is on a share: measured now or before, or estimated from other shares. `None`
    /// where nothing is known of that GPU.
    pub(super) fn profile(&self, gpu: &Gpu, share: &Share) -> Option<Profile> {
        let mut known = self.known();
        let measured = known.measured.get(&share.gpu);
        if let Some(profile) = measured.and_then(|of| of.get(&share.multiprocessors)) {
            return Some(profile.clone());
        }
        let kept = known.key.as_ref().and_then(|key| {
            let key = key.on(gpu.share_name(share.multiprocessors));
            Cache::of(&self.source.file).load(&key, self.slo, self.signature.max_batch)
        });
        if let Some(kept) = kept {
            let profile = up_to(&kept.profile(Planned::Median), known.max_batch());
            let of_gpu = known.measured.entry(share.gpu.clone()).or_default();
            of_gpu.insert(share.multiprocessors, profile.clone());
            return Some(profile);
        }
        estimate(known.measured.get(&share.gpu)?, share.multiprocessors)
    }

    /// What dispatch must know of it: its profile on each class that is in use.
    pub(crate) fn spec(&self, classes: &[Option<(Gpu, Share)>]) -> ModelSpec {
        let profile = |class: &Option<(Gpu, Share)>| {
            let (gpu, share) = class.as_ref()?;
            self.profile(gpu, share).map(Arc::new)
        };
        let profiles = classes.iter().map(profile).collect();
        ModelSpec { slo: self.slo, profiles, data: on_the_way(&self.signature) }
    }

    fn slot(&self, seat: usize) -> MutexGuard<'_, Option<OfSeat>> {
        self.sessions[seat].lock().expect("nothing panics with it")
    }

    fn known(&self) -> MutexGuard<'_, Knowledge> {
        self.known.lock().expect("nothing panics with it")
    }
}

impl Knowledge {
    /// The largest batch that any share runs; `None` until something is measured.
    fn max_batch(&self) -> Option<usize> {
        self.measured.values().flat_map(BTreeMap::values).map(|profile| profile.max_batch()).max()
    }
}

impl fmt::Debug for OnGpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnGpus").field("model", &self.entry.name).finish_non_exhaustive()
    }
}

/// Bytes a nanosecond, at which inputs are gathered into the memory of a seat, by one thread, and
/// copied to the GPU, which takes less. That it is hidden behind the batch before matters, and not
/// how long it takes.
const GATHER: u64 = 6;

/// To bring the input of one request to a seat. What may have any length is taken to be short: most
/// of it is.
fn on_the_way(signature: &Signature) -> Span {
    let bytes = |spec: &TensorSpec| {
        let elements = spec.shape.iter().map(|&axis| axis.max(1) as u64);
        elements.fold(spec.datatype.size().unwrap_or(1) as u64, u64::saturating_mul)
    };
    Span(signature.inputs.iter().map(bytes).fold(0, u64::saturating_add) / GATHER)
}

/// Batches larger than what every session has run already would be slow the first time.
fn up_to(profile: &Profile, sizes: Option<usize>) -> Profile {
    let sizes = sizes.unwrap_or(usize::MAX).min(profile.max_batch());
    Profile::from_table((1..=sizes).map(|size| profile.latency(size)))
        .expect("a part of a profile is one")
}

/// A session that stays with its seat, for whichever executor the seat is. While a seat passes from
/// one executor to the next, both may begin batches: the seat runs them in that order.
#[derive(Clone)]
pub(super) struct SeatSession(Arc<Mutex<Box<dyn Session>>>);

impl SeatSession {
    fn new(session: Box<dyn Session>) -> Self {
        Self(Arc::new(Mutex::new(session)))
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Session>> {
        self.0.lock().expect("nothing panics with it")
    }
}

impl Session for SeatSession {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        // Nobody has to wait until it has run.
        match self.begin(batch) {
            Some(running) => running?.wait().map(|ended| ended.outputs),
            None => self.lock().run(batch),
        }
    }

    fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
        self.lock().begin(batch)
    }

    fn runs_as(&self, size: usize) -> usize {
        self.lock().runs_as(size)
    }

    fn is_warm(&self, size: usize) -> bool {
        self.lock().is_warm(size)
    }
}
