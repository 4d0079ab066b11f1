//! The running server: pools, models and frontends, from start to drain.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fermata_core::{Span, Time};
use fermata_dispatch::{Network, Policy, Spare};
use fermata_engine::{Engine, EngineError};
use fermata_recording::Recording;
use tokio::net::TcpListener;

use crate::control::{self, Control};
use crate::fleet::{Fleet, Limits as FleetLimits};
use crate::frontend::{self, Frontend, Limits};
use crate::gpu::{GpuError, GpuSetup, Gpus, Sharing};
use crate::loader::Loader;
use crate::metrics::{Advice, Change, Outcome, classes, filled_load};
use crate::planning::{self, Board, Planning};
use crate::pool::{self, Clock, Pool, PoolConfig, span};
use crate::profiler::online::Online;
use crate::repository::{Repository, RepositoryError};
use crate::service::Service;
use crate::spare::policy_of;

/// Everything that can be said of a server.
pub struct Config {
    /// Folders of models.
    pub repositories: Vec<PathBuf>,
    /// The objective of models for which no file has one.
    pub slo: Option<Span>,
    /// Who decides which models are served.
    pub control: Control,
    /// Where HTTP is served, if anywhere.
    pub http: Option<SocketAddr>,
    /// Where gRPC is served, if anywhere.
    pub grpc: Option<SocketAddr>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// How batches are formed.
    pub policy: Policy,
    /// What spare executors are for, in all pools. Where it is not said, the repositories say it;
    /// else pools of fixed size use them, and pools that are planned release them.
    pub spare: Option<Spare>,
    /// The engine for model files, or why there is none.
    pub engine: Result<Box<dyn Engine>, EngineError>,
    /// Executors for model files.
    pub cpu_executors: usize,
    /// Threads of each of them.
    pub cpu_threads: usize,
    /// The GPUs for model files, where there are any.
    pub gpus: Option<GpuSetup>,
    /// Executors for emulated models; with planning, at most.
    pub emulated_executors: usize,
    /// Plans how many of them there are, and which models share them.
    pub planning: Option<planning::Settings>,
    /// What comes off every deadline, for the way back to the client.
    pub margin: Span,
    /// How many threads have the models of each pool, beside one that ranks them; with none, dispatch runs on the
    /// threads that bring events.
    pub scheduler_threads: usize,
    /// Where everything that happens to the dispatchers is written.
    pub record: Option<PathBuf>,
    /// How long requests may take to leave after the server was asked to stop.
    pub exit_timeout: Duration,
    /// What a request may be.
    pub limits: Limits,
    /// Changes what is logged, by the words of the logging extension.
    pub log: Box<dyn frontend::LogControl>,
}

/// Why a server could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port that is taken, or not allowed.
    #[error("{what} cannot be served on {address}: {source}; choose another with --{what}-port")]
    Bind {
        /// Which protocol.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A repository that is not there.
    #[error("{}: is not a folder of models", .0.display())]
    Repository(PathBuf),
    /// A repository that says something wrong of all its models.
    #[error(transparent)]
    Settings(#[from] RepositoryError),
    /// The recording.
    #[error("{}: cannot be recorded to: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// GPUs that cannot be served on.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Planning that cannot do what is asked.
    #[error("{0}")]
    Planning(&'static str),
    /// Scheduler threads that cannot do what is asked.
    #[error("{0}")]
    Scheduler(&'static str),
    /// The machine.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
    /// Not all requests left in time.
    #[error("{0} requests had not left when the time for it was over")]
    Drain(u64),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    service: Arc<Service>,
    left: Mutex<Left>,
    planning: Option<Arc<Board>>,
    started: SystemTime,
}

/// What had become of all requests when it was looked at last.
#[derive(Debug, Default)]
struct Left {
    at: Option<Time>,
    /// By model.
    counts: BTreeMap<(String, String), Counts>,
}

/// The requests of a model so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    came: u64,
    /// Left in time, and dropped or late.
    good: u64,
    bad: u64,
}

impl Server {
    /// Its models.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Its pools, and what should become of them.
    pub fn pools(&self) -> impl Iterator<Item = (Arc<Pool>, Advice)> {
        self.service.pools().into_iter().map(|pool| {
            let advice = pool.advisor().advice(pool.executors());
            (pool, advice)
        })
    }

    /// What planning has done, where there is any.
    pub fn planning(&self) -> Option<&Board> {
        self.planning.as_deref()
    }

    /// When it started.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    fn sample(&self) {
        let models = self.service.models();
        let mut left = self.left.lock().expect("nothing panics with it");
        let before = std::mem::take(&mut left.counts);
        let pools = self.service.pools();
        let Some(now) = pools.first().map(|pool| pool.clock().now()) else { return };
        let since = left.at.map_or(0.0, |then| (now - then).as_secs());
        left.at = Some(now);
        let classes: Vec<_> = pools
            .iter()
            .map(|pool| classes(pool.executors_list().into_iter().map(|(.., class)| class)))
            .collect();
        let filled = |pool: &Arc<Pool>| (pool.spare() == Some(Spare::Latency)).then_some(0.0);
        let mut changes: Vec<Change> =
            pools.iter().map(|pool| Change { filled: filled(pool), ..Change::default() }).collect();
        for served in models {
            let metrics = served.metrics();
            let counts = Counts {
                came: metrics.arrivals(),
                good: metrics.outcome(Outcome::InTime),
                bad: Outcome::BAD.map(|outcome| metrics.outcome(outcome)).iter().sum(),
            };
            let key = (served.name.clone(), served.version.clone());
            let before = before.get(&key).copied().unwrap_or_default();
            if let Some(at) = pools.iter().position(|pool| Arc::ptr_eq(pool, served.pool())) {
                let change = &mut changes[at];
                change.good += counts.good.saturating_sub(before.good);
                change.bad += counts.bad.saturating_sub(before.bad);
                if let Some(filled) = change.filled.as_mut().filter(|_| since > 0.0) {
                    let came = counts.came.saturating_sub(before.came) as f64;
                    // The way back to the client comes off every deadline.
                    let slo = span(served.slo) - pools[at].margin();
                    let (spec, rate) = (served.place.spec(), came * metrics.rows_each() / since);
                    *filled += filled_load(&spec, slo, rate, &classes[at]);
                }
            }
            left.counts.insert(key, counts);
        }
        for (pool, change) in pools.iter().zip(changes) {
            let busy = pool.gauges().busy().fold(Span::ZERO, |sum, busy| sum + busy);
            let change = Change { executors: pool.executors(), busy, ..change };
            pool.advisor().sample(now, change);
        }
    }

    fn pending(&self) -> u64 {
        self.service.models().iter().map(|served| served.metrics().pending()).sum()
    }
}

/// Serves until `shutdown`, then finishes what has come.
pub async fn run(mut config: Config, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
    for folder in &config.repositories {
        if !folder.is_dir() {
            return Err(ServeError::Repository(folder.clone()));
        }
    }
    if config.spare.is_none() {
        config.spare = Repository::new(config.repositories.clone(), config.slo).spare()?;
    }
    if config.scheduler_threads > 0 {
        let (recorded, planned) = (config.record.is_some(), config.planning.is_some());
        pool::in_pieces(config.policy, recorded, planned).map_err(ServeError::Scheduler)?;
    }
    if config.planning.is_some() && config.record.is_some() {
        let reason = "a recording has the pools of the start: --record goes without a plan";
        return Err(ServeError::Planning(reason));
    }
    let listeners = Listeners {
        http: bind("http", config.http).await?,
        grpc: bind("grpc", config.grpc).await?,
        metrics: bind("metrics", config.metrics).await?,
    };
    serve(config, listeners, shutdown).await
}

/// Where a server is asked.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) http: Option<TcpListener>,
    pub(crate) grpc: Option<TcpListener>,
    pub(crate) metrics: Option<TcpListener>,
}

/// Serves what has been checked.
pub(crate) async fn serve(
    config: Config,
    listeners: Listeners,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let Listeners { http, grpc, metrics } = listeners;
    let mut recording = match &config.record {
        None => None,
        Some(path) => Some(
            Recording::create(path)
                .map_err(|source| ServeError::Record { path: path.clone(), source })?,
        ),
    };
    let clock = Clock::start();
    let (margin, scheduler_threads) = (config.margin, config.scheduler_threads);
    let fixed = policy_of(config.policy, config.spare, false);
    let planned = policy_of(config.policy, config.spare, true);
    let start = move |name: &str, policy, executors, executors_max, recorder| {
        let name = name.to_owned();
        let config = PoolConfig {
            name,
            executors,
            executors_max,
            policy,
            margin,
            network: Network::default(),
            on_lost: None,
            recorder,
            scheduler_threads,
        };
        Pool::start(config, clock)
    };
    let mut recorder = |name: &str, network| {
        recording.as_mut().map(|recording| recording.pool(name, fixed, network))
    };
    let pool = |name: &str, executors, recorder| {
        start(name, fixed, executors, executors, recorder).map_err(ServeError::Thread)
    };
    let near = Network::default();
    let cpu = pool("cpu", config.cpu_executors, recorder("cpu", near))?;
    let share_plan = config.gpus.as_ref().and_then(|setup| setup.plan);
    let gpus = match config.gpus {
        None => None,
        Some(setup) => {
            let start = |executors_max, network, on_lost| {
                let config = PoolConfig {
                    name: "gpu".to_owned(),
                    executors: 0,
                    executors_max,
                    policy: fixed,
                    margin,
                    network,
                    on_lost: Some(on_lost),
                    recorder: recorder("gpu", network),
                    // Shares come and go, which needs the dispatcher in one piece.
                    scheduler_threads: 0,
                };
                Pool::start(config, clock)
            };
            Some(Gpus::start(setup, start)?)
        }
    };
    let gpus_max = config.emulated_executors;
    let emulated = match config.planning {
        None => Fleet::fixed(pool("emulated", gpus_max, recorder("emulated", near))?),
        Some(settings) => {
            let limits = FleetLimits { gpus: gpus_max, memory: settings.gpu_memory };
            let start =
                move |name: &str, executors| start(name, planned, executors, gpus_max, None);
            Fleet::planned(limits, Box::new(start)).map_err(ServeError::Thread)?
        }
    };
    let limits = emulated.limits();
    let online = Online::start().map_err(ServeError::Thread)?;
    let (engine, threads) = (config.engine, config.cpu_threads);
    let loader = Loader { engine, cpu, emulated, gpus, threads, online: Some(online) };
    let service = Arc::new(Service::new(Repository::new(config.repositories, config.slo), loader));
    for pool in service.pools() {
        if let Some(spare) = pool.spare() {
            tracing::info!(pool = pool.name(), spare = spare.name(), "use of spare executors");
        }
    }
    let planning = config
        .planning
        .zip(limits)
        .map(|(settings, limits)| Planning::new(service.clone(), settings, limits, clock));
    let server = Arc::new(Server {
        service: service.clone(),
        left: Mutex::default(),
        planning: planning.as_ref().map(Planning::board),
        started: SystemTime::now(),
    });

    let state = Arc::new(Frontend::new(service.clone(), config.limits, config.log));
    let (stop, stopped) = tokio::sync::watch::channel(());
    let mut frontends = tokio::task::JoinSet::new();
    let until_stopped = || {
        let mut stopped = stopped.clone();
        async move { while stopped.changed().await.is_ok() {} }
    };
    if let Some(listener) = http {
        let status = frontend::status::router(server.clone());
        frontends.spawn(frontend::http::serve(listener, state.clone(), status, until_stopped()));
    }
    if let Some(listener) = grpc {
        frontends.spawn(frontend::grpc::serve(listener, state.clone(), until_stopped()));
    }
    if let Some(listener) = metrics {
        let router = frontend::status::metrics_router(server.clone());
        let stop = until_stopped();
        frontends.spawn(async move {
            let _ = axum::serve(listener, router).with_graceful_shutdown(stop).await;
        });
    }
    let background = tokio::spawn(keep_up(server.clone(), config.control));
    let plans = planning.map(|planning| tokio::spawn(planning.keep_up()));
    let sharing = share_plan
        .zip(service.gpus().cloned())
        .map(|(plan, gpus)| Sharing::new(service.clone(), gpus, plan, clock))
        .map(|sharing| tokio::spawn(sharing.keep_up()));
    shutdown.await;

    tracing::info!(pending = server.pending(), "stopping: what has come is finished");
    service.drain();
    background.abort();
    for task in plans.into_iter().chain(sharing) {
        task.abort();
    }
    drop(stop);
    let all_left = async { while frontends.join_next().await.is_some() {} };
    let drained = tokio::time::timeout(config.exit_timeout, all_left).await;
    let left = server.pending();
    if drained.is_err() && left > 0 {
        return Err(ServeError::Drain(left));
    }
    service.stop_learning();
    if let Some(gpus) = service.gpus() {
        gpus.stop();
    }
    for pool in service.pools() {
        pool.stop();
    }
    if let Some(gpus) = service.gpus() {
        gpus.close();
    }
    if let (Some(recording), Some(path)) = (recording, config.record) {
        recording.finish().map_err(|source| ServeError::Record { path, source })?;
    }
    Ok(())
}

/// Loads and follows the models, and watches the pools.
async fn keep_up(server: Arc<Server>, control: Control) {
    let service = server.service.clone();
    let models = async {
        let loaded = control::load_first(&service, &control).await;
        tracing::info!(models = service.models().len(), "started");
        if let Control::Poll(period) = control {
            control::follow(service, period, loaded).await;
        }
        std::future::pending().await
    };
    let pools = async {
        loop {
            server.sample();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::join!(models, pools).0
}

async fn bind(
    what: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, ServeError> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| ServeError::Bind { what, address, source })?;
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(%address, "{what} listens");
    Ok(Some(listener))
}
