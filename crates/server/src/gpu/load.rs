//! Brings a model's file onto the seats of all GPUs: read on one, measured on each share, made
//! ready on every seat.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fermata_dispatch::ModelSpec;
use fermata_engine::{EngineError, Signature, Source};
use fermata_pool::{MakeSession, Place, PlaceError};
use fermata_repository::{ModelEntry, RepositoryError, Resolved};

use super::classes::Share;
use super::model::OnGpus;
use super::{By, Gpus};
use crate::kinds::KindRule;
use crate::profiler::{Known, Planned, followed, shortest_of};

/// Seats that are started again are waited for so long before a model is loaded without them.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// A model that is ready on GPUs.
pub(crate) struct OnGpu {
    /// All that was said of it.
    pub(crate) resolved: Resolved,
    /// What is known of it, on one share.
    pub(crate) known: Known,
    /// How fast it is on every share.
    pub(crate) spec: Arc<ModelSpec>,
    /// What it is there.
    pub(crate) model: Arc<OnGpus>,
}

/// Why a model is not on the GPUs.
pub(crate) enum LoadError {
    /// Its files do not agree.
    Repository(RepositoryError),
    /// A seat cannot run it.
    Engine(EngineError),
}

impl From<EngineError> for LoadError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl Gpus {
    /// Makes a version ready on every seat. `resolve` brings what its file says together with what
    /// else was said of it. Nobody may cut a GPU anew meanwhile.
    pub(crate) fn load(
        self: &Arc<Self>,
        entry: &ModelEntry,
        source: Source,
        resolve: impl FnOnce(&Signature) -> Result<Resolved, RepositoryError>,
    ) -> Result<OnGpu, LoadError> {
        let first = self.first_seat()?;
        let read = self.seats[first].seat.load(&source)?;
        let resolved = resolve(read.signature()).map_err(LoadError::Repository)?;
        let model = OnGpus::new(entry, source, &resolved, self.seats.clone());
        model.adopt(first, read.session(&resolved.signature)?);
        drop(read);
        let known = self.measure(&model)?;
        let known = self.make_room(&model, known)?;
        let model = Arc::new(model);
        // A seat that comes back while this goes on makes it ready by itself.
        self.models.lock().expect("nothing panics with it").push(Arc::downgrade(&model));
        self.prepare(&model)?;
        let spec = Arc::new(model.spec(&self.cuts().classes_in_use(None)));
        Ok(OnGpu { resolved, known, spec, model })
    }

    /// Gives a model that is ready its place in the pool.
    pub(crate) fn place(
        &self,
        model: &Arc<OnGpus>,
        spec: Arc<ModelSpec>,
    ) -> Result<Place, PlaceError> {
        let ready = model.clone();
        let make: Arc<MakeSession> =
            Arc::new(move |seat| ready.session(seat).map(|session| Box::new(session) as _));
        self.pool.add(model.name(), spec, make, followed(Planned::Median))
    }

    /// Makes sessions for whoever runs a model's requests alone: on some seat, beside what it
    /// serves.
    pub(crate) fn alone(self: &Arc<Self>, model: &Arc<OnGpus>) -> Arc<MakeSession> {
        let (gpus, model) = (Arc::downgrade(self), model.clone());
        Arc::new(move |_| {
            let gone = || EngineError::Lost("the server stops".to_owned());
            let gpus = gpus.upgrade().ok_or_else(gone)?;
            model.session(gpus.first_seat()?).map(|session| Box::new(session) as _)
        })
    }

    /// A seat that is up and has a share; waits a while for one.
    fn first_seat(&self) -> Result<usize, EngineError> {
        let began = Instant::now();
        loop {
            let all_up = self.seats.iter().all(super::SupervisedSeat::is_up);
            if all_up || began.elapsed() > PATIENCE {
                let usable = |&seat: &usize| self.seats[seat].is_up() && self.part(seat).is_some();
                let none = || EngineError::Lost("no seat of any GPU is up".to_owned());
                return (0..self.seats.len()).find(usable).ok_or_else(none);
            }
            thread::sleep(LOOK);
        }
    }

    /// Measures a model once on each share that there is. What is known on the first is what is
    /// learned from.
    fn measure(&self, model: &OnGpus) -> Result<Known, EngineError> {
        let classes = self.cuts().classes_in_use(None);
        let mut first = None;
        for (class, share) in classes.iter().enumerate() {
            let Some((_, share)) = share else { continue };
            let has_it = |seat: &usize| {
                self.seats[*seat].is_up()
                    && self.part(*seat).is_some_and(|part| part.class.index() == class)
            };
            let Some(seat) = (0..self.seats.len()).find(has_it) else { continue };
            let known = model.measure(seat, share)?;
            let by_length = matches!(known.rule, KindRule::ByLength(_));
            if !by_length && first.is_none() {
                model.find_kept(seat)?;
            }
            first.get_or_insert(known);
            if by_length {
                // Ranges of lengths are those of one measurement: the other shares are estimated
                // from it.
                break;
            }
        }
        first.ok_or_else(|| EngineError::Lost("no seat of any GPU is up".to_owned()))
    }

    /// A model that is too slow for shares which the server has cut itself gets a whole GPU, if it
    /// is fast enough there. Returns what is known of it then.
    fn make_room(&self, model: &OnGpus, mut known: Known) -> Result<Known, EngineError> {
        let is_slow = |classes: &[_]| {
            shortest_of(&model.spec(classes)).is_none_or(|shortest| shortest > model.slo())
        };
        let by_plan: Vec<_> = {
            let cuts = self.cuts();
            let cards = cuts.gpus.iter();
            let cards = cards.filter(|card| card.by == By::Plan && !card.cut.is_whole());
            cards.map(|card| card.gpu.clone()).collect()
        };
        for gpu in by_plan {
            let whole = Share::of(&gpu, gpu.multiprocessors);
            if !is_slow(&self.cuts().classes_in_use(None)) || is_slow(&[Some((gpu.clone(), whole))])
            {
                continue;
            }
            let (name, gpu) = (model.name(), gpu.index);
            tracing::info!(model = name, gpu, "is too slow on the shares: a GPU is made whole");
            match self.recut(gpu, &[100], By::Plan) {
                Ok(_) => known = self.measure(model)?,
                Err(error) => tracing::warn!(gpu, %error, "the shares stay as they are"),
            }
        }
        Ok(known)
    }

    /// A session on every seat, in which every size has run; on all at once, since each computes by
    /// itself.
    fn prepare(&self, model: &OnGpus) -> Result<(), EngineError> {
        let seats = (0..self.seats.len()).filter(|&seat| self.seats[seat].is_up());
        let made: Vec<Result<_, EngineError>> = thread::scope(|scope| {
            let threads: Vec<_> =
                seats.map(|seat| scope.spawn(move || model.session(seat))).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|made| made.expect("a panic ends the process")).collect()
        });
        for made in made {
            match made {
                // Who brings the seat back makes it ready there.
                Ok(_) | Err(EngineError::Lost(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
