//! What can be said to `fermata serve`. Where Triton has a flag for the same thing, it has the same
//! name.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args as Arguments, ValueEnum};
use fermata_dispatch::Spare;

/// Serves the models of a repository over HTTP and gRPC, as the Open Inference Protocol and
/// Triton's extensions say.
#[derive(Debug, Arguments)]
#[command(after_help = HELP)]
pub(crate) struct ServeArgs {
    /// A folder of models, NAME/VERSION/model.onnx; several are served together.
    #[arg(
        value_name = "FOLDER",
        required_unless_present = "model_repository",
        env = "FERMATA_MODEL_REPOSITORY"
    )]
    pub(crate) repository: Vec<PathBuf>,

    /// The same, by Triton's name.
    #[arg(long, alias = "model-store", value_name = "FOLDER")]
    pub(crate) model_repository: Vec<PathBuf>,

    /// The latency objective of models for which no fermata.toml has one.
    #[arg(long, value_name = "MS", env = "FERMATA_SLO_MS")]
    pub(crate) slo_ms: Option<f64>,

    /// Which models are served: all that are there at the start (none), all that are there at any
    /// time (poll), or those that clients load (explicit).
    #[arg(
        long,
        value_name = "MODE",
        env = "FERMATA_MODEL_CONTROL_MODE",
        value_enum,
        default_value_t = Mode::None
    )]
    pub(crate) model_control_mode: Mode,

    /// In explicit mode: a model to load at the start; `*` for all.
    #[arg(long, value_name = "NAME", env = "FERMATA_LOAD_MODEL", value_delimiter = ',')]
    pub(crate) load_model: Vec<String>,

    /// In poll mode: how often to look.
    #[arg(
        long,
        value_name = "S",
        env = "FERMATA_REPOSITORY_POLL_SECS",
        default_value_t = 15,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(crate) repository_poll_secs: u64,

    /// The address to listen on. Use 127.0.0.1 to be reached from this machine only.
    #[arg(
        long,
        alias = "http-address",
        value_name = "IP",
        env = "FERMATA_ADDRESS",
        default_value = "0.0.0.0"
    )]
    pub(crate) address: IpAddr,

    /// The port of HTTP; 0 takes any that is free.
    #[arg(long, value_name = "PORT", env = "FERMATA_HTTP_PORT", default_value_t = 8000)]
    pub(crate) http_port: u16,

    /// The port of gRPC.
    #[arg(long, value_name = "PORT", env = "FERMATA_GRPC_PORT", default_value_t = 8001)]
    pub(crate) grpc_port: u16,

    /// The port of the metrics.
    #[arg(long, value_name = "PORT", env = "FERMATA_METRICS_PORT", default_value_t = 8002)]
    pub(crate) metrics_port: u16,

    /// Executors for model files, each with its own session.
    #[arg(
        long,
        value_name = "N",
        env = "FERMATA_CPU_EXECUTORS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1024)
    )]
    pub(crate) cpu_executors: u64,

    /// Threads of each of them; together as many as there are cores, if not given.
    #[arg(
        long,
        value_name = "N",
        env = "FERMATA_CPU_THREADS",
        value_parser = clap::value_parser!(u64).range(1..=1024)
    )]
    pub(crate) cpu_threads: Option<u64>,

    /// The GPUs that model files run on: all, none, or by number (0,1). A model whose fermata.toml
    /// says device = "cpu", or whose instance groups are all KIND_CPU, stays on the processors.
    #[arg(long, value_name = "WHICH", env = "FERMATA_GPUS")]
    pub(crate) gpus: Option<String>,

    /// The shares that each GPU is cut into at first, in percent: 100 is a whole one, 40,60 are
    /// two. `fermata shares` cuts them anew. With auto each begins whole, and the server cuts it
    /// every --epoch as what comes in needs it.
    #[arg(long, value_name = "PERCENTS", env = "FERMATA_SHARES")]
    pub(crate) shares: Option<String>,

    /// How many shares each GPU can have later: each takes a process, and the memory of all models
    /// once more. As many as --shares has, if not given; 4 with --shares auto.
    #[arg(
        long,
        value_name = "N",
        env = "FERMATA_SEATS",
        value_parser = clap::value_parser!(u64).range(1..=64)
    )]
    pub(crate) seats: Option<u64>,

    /// Executors for emulated models.
    #[arg(
        long,
        value_name = "N",
        env = "FERMATA_EMULATED_EXECUTORS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=4096)
    )]
    pub(crate) emulated_executors: u64,

    /// Who says how many executors emulated models have, and which of them share executors: it
    /// stays as it is at the start (fixed), or the server plans it while serving (auto), with
    /// --emulated-executors as the most.
    #[arg(
        long,
        value_name = "WHO",
        env = "FERMATA_PLAN",
        value_enum,
        default_value_t = PlanMode::Fixed
    )]
    pub(crate) plan: PlanMode,

    /// With --plan auto or --shares auto: how often a plan is made, if nothing happens before.
    #[arg(long, value_name = "D", env = "FERMATA_EPOCH", default_value = "30s")]
    pub(crate) epoch: String,

    /// With --plan auto: the memory of each GPU; models that do not fit beside each other are kept
    /// apart. As much as anybody wants, if not given.
    #[arg(
        long,
        value_name = "MB",
        env = "FERMATA_GPU_MEMORY_MB",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000)
    )]
    pub(crate) gpu_memory_mb: Option<u64>,

    /// Threads that have the models of each pool of executors, beside one that ranks them. With 0,
    /// dispatch runs on the threads that bring events, which is quicker where there are few; a
    /// thread for each 32 cores, if not given.
    #[arg(
        long,
        value_name = "N",
        env = "FERMATA_SCHEDULER_THREADS",
        value_parser = clap::value_parser!(u64).range(..=256)
    )]
    pub(crate) scheduler_threads: Option<u64>,

    /// How batches are formed (see fermata sim --help).
    #[arg(long, value_name = "P", env = "FERMATA_POLICY", default_value = "fermata")]
    pub(crate) policy: String,

    /// What spare executors are for: they answer requests sooner (latency), or stay idle so that
    /// they can be given away (release). As the repository's fermata.toml says, if not given; else
    /// release with --plan auto, latency without.
    #[arg(long, value_name = "USE", env = "FERMATA_SPARE")]
    pub(crate) spare: Option<Spare>,

    /// What comes off every deadline for the way back to the client.
    #[arg(long, value_name = "US", env = "FERMATA_MARGIN_US", default_value_t = 200)]
    pub(crate) margin_us: u64,

    /// Write everything that happens to the dispatchers to this file, for `fermata replay` and
    /// `fermata sim --recording`.
    #[arg(long, value_name = "FILE", env = "FERMATA_RECORD")]
    pub(crate) record: Option<PathBuf>,

    /// The largest request, in MiB.
    #[arg(
        long,
        value_name = "MIB",
        env = "FERMATA_MAX_REQUEST_MIB",
        default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=4096)
    )]
    pub(crate) max_request_mib: u64,

    /// How long requests may take to leave after SIGTERM or Ctrl-C.
    #[arg(long, value_name = "S", env = "FERMATA_EXIT_TIMEOUT_SECS", default_value_t = 30)]
    pub(crate) exit_timeout_secs: u64,

    /// What is logged: error, warn, info, debug or trace, by module if wanted
    /// (warn,fermata_server=debug).
    #[arg(long, value_name = "LEVEL", env = "FERMATA_LOG", default_value = "info")]
    pub(crate) log: String,

    /// Log as JSON, a line each.
    #[arg(long, env = "FERMATA_LOG_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) log_json: bool,
}

/// Which models are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Explicit,
    None,
    Poll,
}

/// Who says how many executors emulated models have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanMode {
    Auto,
    Fixed,
}

const HELP: &str = "A repository is Triton's: NAME/[config.pbtxt], NAME/VERSION/model.onnx. The \
                    one thing that \
Fermata must be told is the SLO of each model, in NAME/fermata.toml, in the repository's \
fermata.toml, or by \
--slo-ms:

  # NAME/fermata.toml
  slo_ms = 25
  # and for a model that is only emulated, without a file:
  engine = \"emulated\"
  alpha_ms = 1.053           # a batch of b takes alpha b + beta;
  beta_ms = 5.072            # or latency_ms = [6.1, 7.2, ...] by batch
  memory_mb = 98             # for --plan auto; of a model with a file, its limit on a GPU

  # fermata.toml of the repository
  spare = \"latency\"          # optional: as --spare
  [defaults]
  slo_ms = 100

Batching and instance settings of config.pbtxt are read and not needed: the log says which.

Examples:
  fermata serve models --slo-ms 50
  fermata serve models --model-control-mode poll --repository-poll-secs 5
  fermata serve --model-repository=/models --http-port=8000        as tritonserver is started
  fermata serve models --gpus all                                  on the GPUs, each in one piece
  fermata serve models --gpus 0 --shares 40,60 --seats 3           on two shares of one, later on \
  three at most
  fermata serve models --gpus all --shares auto                    on shares that follow the load
  fermata serve models --emulated-executors 64 --record run.txt
  fermata serve models --plan auto --emulated-executors 256 --gpu-memory-mb 80000
                                                  as many as the load needs, at most 256
  curl localhost:8000/v2/health/ready; curl localhost:8002/metrics; a browser on localhost:8000";
