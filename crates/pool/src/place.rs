//! A model's place in a pool, and the way of its requests in.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use fermata_core::{KindId, ModelId, RequestId, Spread, Time};
use fermata_dispatch::ModelSpec;
use fermata_engine::EngineError;

use crate::Pool;
use crate::executors::MakeSession;
use crate::learner::Profiles;
use crate::message::Message;
use crate::threads;
use crate::ticket::{Owner, Ticket};

/// A model's place in a pool. Giving it up ends its service there.
pub struct Place {
    pool: Arc<Pool>,
    model: ModelId,
    /// How fast it is, as it was measured.
    spec: ArcSwap<ModelSpec>,
    make: Arc<MakeSession>,
}

impl Place {
    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Whether this is the place that dispatch knows by this id in this pool.
    pub fn is_at(&self, pool: &Arc<Pool>, model: ModelId) -> bool {
        self.model == model && Arc::ptr_eq(&self.pool, pool)
    }

    /// The models of the same pool that its batches were kept short for, and how many batches.
    pub fn limits(&self) -> Vec<(ModelId, u64)> {
        self.pool.limits.of(self.model)
    }

    /// How fast it is said to be.
    pub fn spec(&self) -> Arc<ModelSpec> {
        self.spec.load_full()
    }

    /// A place for the same model in another pool.
    pub fn another_in(&self, pool: &Arc<Pool>, name: &str) -> Result<Self, PlaceError> {
        pool.add(name, self.spec(), self.make.clone(), Profiles::True)
    }

    /// Tells dispatch of other profiles: of one class more, for example, or of one less. What was
    /// learned of a profile that stays is kept.
    pub fn respec(&self, spec: Arc<ModelSpec>) -> Result<(), PlaceError> {
        self.pool.check_classes(&spec)?;
        self.spec.store(spec.clone());
        self.pool.send(Message::Respec { model: self.model, spec });
        Ok(())
    }

    /// Tells dispatch that requests take something else than before.
    pub fn respread(&self, spread: Arc<Spread>) {
        self.pool.send(Message::Respread { model: self.model, spread });
    }

    /// Hands a request to the pool. The guard cancels it when dropped.
    pub fn submit(&self, deadline: Time, kind: KindId, owner: Arc<dyn Owner>) -> Guard<'_> {
        let id = RequestId(self.pool.next_request.fetch_add(1, Ordering::Relaxed));
        let ticket = Ticket::new(id, deadline, kind, owner);
        self.pool.send(Message::Arrive { model: self.model, ticket });
        Guard { place: self, id, deadline, left: false }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.send(Message::Remove { model: self.model });
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("pool", &self.pool.name())
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// A request that is on its way. Dropping this tells dispatch that the client went away.
#[derive(Debug)]
pub struct Guard<'a> {
    place: &'a Place,
    id: RequestId,
    deadline: Time,
    left: bool,
}

impl Guard<'_> {
    /// It has left by itself.
    pub fn left(&mut self) {
        self.left = true;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.left {
            let (model, request, deadline) = (self.place.model, self.id, self.deadline);
            self.place.pool.send(Message::Cancel { model, request, deadline });
        }
    }
}

/// Why a pool does not take a model.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A model that cannot be made ready.
    #[error(transparent)]
    Session(#[from] EngineError),
    /// It takes no more.
    #[error("the server is stopping")]
    Stopping,
    /// It has too many.
    #[error(
        "too many models for the scheduler threads of pool '{pool}', which have room for {most}"
    )]
    Full {
        /// The pool.
        pool: String,
        /// How many it has room for.
        most: usize,
    },
    /// It has one class of executors.
    #[error("the scheduler threads of pool '{pool}' have room for one class of executors only")]
    Classes {
        /// The pool.
        pool: String,
    },
}

impl Pool {
    /// Serves a model from now on, with one session for each executor that there is or will be.
    pub fn add(
        self: &Arc<Self>,
        name: &str,
        spec: Arc<ModelSpec>,
        make: Arc<MakeSession>,
        profiles: Profiles,
    ) -> Result<Place, PlaceError> {
        self.check_classes(&spec)?;
        let mut makers = self.session_makers();
        let active = self.executors_list().into_iter();
        let sessions = active.map(|(executor, origin, _)| Ok((executor, make(origin)?)));
        let sessions = sessions.collect::<Result<Vec<_>, EngineError>>()?;
        let full = || {
            let pool = self.name().to_owned();
            PlaceError::Full { pool, most: threads::MODELS_MAX }
        };
        let model = self.ids.take().ok_or_else(full)?;
        let (reply, added) = crossbeam_channel::bounded(1);
        let name = name.to_owned();
        self.send(Message::Add { model, name, spec: spec.clone(), sessions, profiles, reply });
        // A load may take so long that the pool is stopped meanwhile.
        added.recv().map_err(|_| PlaceError::Stopping)?;
        makers.learn(model, &make);
        Ok(Place { pool: self.clone(), model, spec: ArcSwap::new(spec), make })
    }

    /// On threads there is room for one class.
    fn check_classes(&self, spec: &ModelSpec) -> Result<(), PlaceError> {
        match self.context.inbox.takes_back() || spec.profiles.len() <= 1 {
            true => Ok(()),
            false => Err(PlaceError::Classes { pool: self.name().to_owned() }),
        }
    }
}
