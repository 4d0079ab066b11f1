//! The running server: pools, models and frontends, from start to drain.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fermata_core::Span;
use fermata_dispatch::Policy;
use fermata_engine::{Engine, EngineError};
use tokio::net::TcpListener;

use crate::control::{self, Control};
use crate::frontend::{self, Frontend, Limits};
use crate::loader::Loader;
use crate::metrics::{Advice, Advisor, Outcome, Sample};
use crate::pool::{self, Clock, Pool, PoolConfig};
use crate::recording::Recording;
use crate::repository::Repository;
use crate::service::Service;

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
    /// The engine for model files, or why there is none.
    pub engine: Result<Box<dyn Engine>, EngineError>,
    /// Executors for model files.
    pub cpu_executors: usize,
    /// Threads of each of them.
    pub cpu_threads: usize,
    /// Executors for emulated models.
    pub emulated_executors: usize,
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
    /// The recording.
    #[error("{}: cannot be recorded to: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
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
    advisors: Vec<Advisor>,
    started: SystemTime,
}

impl Server {
    /// Its models.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Its pools, and what should become of them.
    pub fn pools(&self) -> impl Iterator<Item = (&Arc<Pool>, Advice)> {
        let pools = self.service.pools().zip(&self.advisors);
        pools.map(|(pool, advisor)| (pool, advisor.advice(pool.executors())))
    }

    /// When it started.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    fn sample(&self) {
        let models = self.service.models();
        for (pool, advisor) in self.service.pools().zip(&self.advisors) {
            let (mut good, mut bad) = (0, 0);
            for served in models.iter().filter(|served| Arc::ptr_eq(served.pool(), pool)) {
                good += served.metrics().outcome(Outcome::InTime);
                bad += Outcome::BAD
                    .map(|outcome| served.metrics().outcome(outcome))
                    .iter()
                    .sum::<u64>();
            }
            let busy = pool.gauges().busy().fold(Span::ZERO, |sum, busy| sum + busy);
            advisor.sample(Sample { time: pool.clock().now(), busy, good, bad });
        }
    }

    fn pending(&self) -> u64 {
        self.service.models().iter().map(|served| served.metrics().pending()).sum()
    }
}

/// Serves until `shutdown`, then finishes what has come.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
    for folder in &config.repositories {
        if !folder.is_dir() {
            return Err(ServeError::Repository(folder.clone()));
        }
    }
    if config.scheduler_threads > 0 {
        pool::in_pieces(config.policy, config.record.is_some()).map_err(ServeError::Scheduler)?;
    }
    let http = bind("http", config.http).await?;
    let grpc = bind("grpc", config.grpc).await?;
    let metrics = bind("metrics", config.metrics).await?;
    let mut recording = match &config.record {
        None => None,
        Some(path) => Some(
            Recording::create(path)
                .map_err(|source| ServeError::Record { path: path.clone(), source })?,
        ),
    };
    let clock = Clock::start();
    let mut pool = |name: &str, executors| {
        let (policy, margin, scheduler_threads) =
            (config.policy, config.margin, config.scheduler_threads);
        let recorder = recording.as_mut().map(|recording| recording.pool(name, policy));
        let name = name.to_owned();
        let config = PoolConfig { name, executors, policy, margin, recorder, scheduler_threads };
        Pool::start(config, clock).map_err(ServeError::Thread)
    };
    let loader = Loader {
        engine: config.engine,
        cpu: pool("cpu", config.cpu_executors)?,
        emulated: pool("emulated", config.emulated_executors)?,
        threads: config.cpu_threads,
    };
    let service = Arc::new(Service::new(Repository::new(config.repositories, config.slo), loader));
    let advisors = service.pools().map(|_| Advisor::default()).collect();
    let server =
        Arc::new(Server { service: service.clone(), advisors, started: SystemTime::now() });

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
    shutdown.await;

    tracing::info!(pending = server.pending(), "stopping: what has come is finished");
    service.drain();
    background.abort();
    drop(stop);
    let all_left = async { while frontends.join_next().await.is_some() {} };
    let drained = tokio::time::timeout(config.exit_timeout, all_left).await;
    let left = server.pending();
    if drained.is_err() && left > 0 {
        return Err(ServeError::Drain(left));
    }
    for pool in service.pools() {
        pool.stop();
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
