//! `fermata serve`: arguments into a server.

mod args;
mod gpus;
mod log;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::Context;
use fermata_core::Span;
use fermata_dispatch::Policy;
use fermata_engine::OnnxRuntime;
use fermata_files::{InputError, duration, objective};
use fermata_plan::{Method, Plan, Problem, solve};
use fermata_server::control::Control;
use fermata_server::frontend::Limits;
use fermata_server::planning;
use fermata_server::server::{self, Config, ServeError};
use fermata_server::spare::spare_of;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use args::ServeArgs;
use args::{Mode, PlanMode};

use crate::input::says_spare;

/// Serves until it is told to stop.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let config = configure(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .on_thread_start(|| {
            if let Err(error) = fermata_engine::thread::yield_to_others() {
                tracing::debug!(%error, "small requests cost more than they need to");
            }
        })
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let result = runtime.block_on(async {
        let stop = stop_signal()?;
        anyhow::Ok(server::run(config, stop).await)
    });
    // Not by dropping it, which waits for a model that is still being loaded.
    runtime.shutdown_background();
    result?.map_err(|error| match error {
        ServeError::Repository(_) | ServeError::Settings(_) => {
            InputError::Argument { name: "FOLDER", reason: error.to_string() }.into()
        }
        ServeError::Planning(reason) => {
            InputError::Argument { name: "--plan", reason: reason.to_owned() }.into()
        }
        ServeError::Scheduler(reason) => {
            let (name, reason) = ("--scheduler-threads", reason.to_owned());
            InputError::Argument { name, reason }.into()
        }
        error => error.into(),
    })
}

fn configure(args: &ServeArgs) -> anyhow::Result<Config> {
    let policy = check_policy(&args.policy)?;
    let slo = args.slo_ms.map(objective).transpose()?;
    let epoch = epoch(args)?;
    let planning = planning(args, epoch);
    let log = log::start(&args.log, args.log_json)?;
    let gpus = gpus::setup(args, epoch)?;
    let cpu_executors = args.cpu_executors as usize;
    let cores = available_parallelism().map_or(1, usize::from);
    let cpu_threads = args.cpu_threads.map_or((cores / cpu_executors).max(1), |n| n as usize);
    let at = |port| Some(SocketAddr::new(args.address, port));
    let engine = OnnxRuntime::new(library_folders()).map(|engine| Box::new(engine) as _);
    let control = match args.model_control_mode {
        Mode::Explicit => Control::Explicit(args.load_model.clone()),
        Mode::None => Control::Start,
        Mode::Poll => Control::Poll(Duration::from_secs(args.repository_poll_secs)),
    };
    Ok(Config {
        repositories: args.repository.iter().chain(&args.model_repository).cloned().collect(),
        slo,
        control,
        http: at(args.http_port),
        grpc: at(args.grpc_port),
        metrics: at(args.metrics_port),
        policy,
        spare: args.spare.or(spare_of(policy).filter(|_| says_spare(&args.policy))),
        engine,
        cpu_executors,
        cpu_threads,
        gpus,
        emulated_executors: args.emulated_executors as usize,
        planning,
        scheduler_threads: scheduler_threads(args, cores),
        margin: Span(args.margin_us) * 1_000,
        record: args.record.clone(),
        exit_timeout: Duration::from_secs(args.exit_timeout_secs),
        limits: Limits { request_bytes: (args.max_request_mib as usize) << 20 },
        log: Box::new(log),
    })
}

/// The counters are looked at thirty times an epoch.
const EPOCH_MIN: Duration = Duration::from_millis(100);

fn epoch(args: &ServeArgs) -> Result<Duration, InputError> {
    let epoch = duration("--epoch", &args.epoch, false)?;
    if epoch < EPOCH_MIN {
        let reason =
            format!("'{}' is too short to measure anything in: 100ms at least", args.epoch);
        return Err(InputError::Argument { name: "--epoch", reason });
    }
    Ok(epoch)
}

fn planning(args: &ServeArgs, epoch: Duration) -> Option<planning::Settings> {
    let gpu_memory = args.gpu_memory_mb.map_or(u64::MAX, |mb| mb * 1_000_000);
    let planner =
        |problem: &Problem, previous: Option<&Plan>| solve(problem, Method::Pools, previous);
    let settings = planning::Settings { epoch, gpu_memory, planner };
    (args.plan == PlanMode::Auto).then_some(settings)
}

/// So many cores for each thread that has models. To wake a thread costs tens of microseconds and a
/// decision a tenth of one: threads of its own pay only where more events come than one desk can
/// take.
const CORES_PER_SCHEDULER: usize = 32;

fn scheduler_threads(args: &ServeArgs, cores: usize) -> usize {
    match args.scheduler_threads {
        Some(0) => {
            tracing::info!("dispatch runs on the threads that bring events");
            0
        }
        Some(threads) => threads as usize,
        // A recording needs the dispatcher in one piece, and so do executors that come and go.
        None if args.record.is_some() || args.plan == PlanMode::Auto => 0,
        None => cores / CORES_PER_SCHEDULER,
    }
}

/// Where `make setup-gpu` puts the library for GPUs, before those of the one for processors, which
/// may have both.
pub(crate) fn gpu_library_folders() -> Vec<PathBuf> {
    let folders = library_folders();
    folders.iter().map(|folder| folder.with_file_name("lib-cuda")).chain(folders.clone()).collect()
}

/// Where `make setup` puts the library: below the folder one is in, or beside the binary.
pub(crate) fn library_folders() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from(".fermata/lib")];
    if let Ok(binary) = std::env::current_exe() {
        folders.extend(binary.parent().map(|folder| folder.join("lib")));
    }
    folders
}

fn check_policy(text: &str) -> Result<Policy, InputError> {
    let refuse = |reason| InputError::Argument { name: "--policy", reason };
    let policy: Policy = text.parse().map_err(refuse)?;
    match policy.rules() {
        Some(_) => Ok(policy),
        None => Err(refuse(format!(
            "'{text}' can be simulated, but not served with: choose fermata, deferred, eager or \
             timeout:..."
        ))),
    }
}

/// Ends at the first SIGTERM or Ctrl-C; a second one ends the process at once.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("Ctrl-C cannot be caught")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::warn!("stopped at once");
            std::process::exit(130);
        });
    })
}
