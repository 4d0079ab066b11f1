//! What can be said to `fermata load`.

use std::path::PathBuf;

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;

/// Sends requests to a server of the Open Inference Protocol, ours or Triton, and measures what
/// comes back.
///
/// Requests are sent when they are due, whether or not earlier ones were answered, and latencies
/// count from that moment: a server that stalls cannot hide it.
#[derive(Debug, Arguments)]
#[command(after_help = HELP)]
pub struct LoadArgs {
    /// The server: http://host:8000, or grpc://host:8001.
    pub(crate) url: String,

    /// The models, each as NAME, NAME=RATE, NAME@SLO_MS or NAME=RATE@SLO_MS.
    #[arg(value_name = "MODEL", required = true)]
    pub(crate) models: Vec<String>,

    /// Requests a second, all models together; those with a rate of their own keep it.
    #[arg(long, value_name = "R", env = "FERMATA_RATE")]
    pub(crate) rate: Option<f64>,

    /// How arrivals are spread: poisson, gamma:SHAPE, uniform or trace:FILE.
    #[arg(long, value_name = "A", env = "FERMATA_ARRIVALS", default_value = "poisson")]
    pub(crate) arrivals: String,

    /// Instead of a rate: so many connections, each with one request in flight, as fast as it goes.
    #[arg(long, value_name = "N", env = "FERMATA_CONCURRENCY")]
    pub(crate) concurrency: Option<usize>,

    /// Search for the highest rate at which 99 % of every model's requests are in time.
    #[arg(long, env = "FERMATA_GOODPUT", value_parser = FalseyValueParser::new())]
    pub(crate) goodput: bool,

    /// With --goodput: a rate is too much if it is too much so often. Tries while a hypervisor gave
    /// the processors to others do not count, up to as many again. The lowest rate that is too much
    /// is asked once more in the end.
    #[arg(long, value_name = "N", env = "FERMATA_TRIES", default_value_t = 2)]
    pub(crate) tries: usize,

    /// The latency objective of models that have none of their own. Without one, every answer is in
    /// time.
    #[arg(long, value_name = "MS", env = "FERMATA_SLO_MS")]
    pub(crate) slo_ms: Option<f64>,

    /// Tell the server: send the objective with each request, as its `timeout`.
    #[arg(long, env = "FERMATA_SEND_TIMEOUT", value_parser = FalseyValueParser::new())]
    pub(crate) send_timeout: bool,

    /// How long to measure (10s, 500ms, 2m); with --goodput, at each rate.
    #[arg(long, value_name = "D", env = "FERMATA_DURATION", default_value = "10s")]
    pub(crate) duration: String,

    /// How long to send before that, without counting.
    #[arg(long, value_name = "D", env = "FERMATA_WARMUP", default_value = "1s")]
    pub(crate) warmup: String,

    /// Give a request up after this; it counts as missed. Four objectives, at least 1,000, if not
    /// given.
    #[arg(long, value_name = "MS", env = "FERMATA_TIMEOUT_MS")]
    pub(crate) timeout_ms: Option<f64>,

    /// The most connections. They are opened as they are needed; what had to wait for one is
    /// counted.
    #[arg(long, value_name = "N", env = "FERMATA_CONNECTIONS", default_value_t = 512)]
    pub(crate) connections: usize,

    /// Threads that send; one is enough for tens of thousands of requests a second.
    #[arg(long, value_name = "N", env = "FERMATA_THREADS", default_value_t = 1)]
    pub(crate) threads: usize,

    /// Inputs to a request, where a model's first axis is free.
    #[arg(long, value_name = "N", env = "FERMATA_BATCH", default_value_t = 1)]
    pub(crate) batch: i64,

    /// The shape of an input with free axes, as INPUT:1,3,224,224; free axes are 1 otherwise.
    #[arg(long, value_name = "SHAPE", env = "FERMATA_SHAPE", value_delimiter = ' ')]
    pub(crate) shape: Vec<String>,

    /// What to send: random or zeros.
    #[arg(long, value_name = "WHAT", env = "FERMATA_DATA", default_value = "random")]
    pub(crate) data: String,

    /// Send this file as an input, as INPUT:FILE: its raw elements, little-endian.
    #[arg(long, value_name = "FILE", env = "FERMATA_INPUT", value_delimiter = ' ')]
    pub(crate) input: Vec<String>,

    /// Pass inputs through shared memory of this machine; with `outputs`, outputs too.
    #[arg(
        long,
        value_name = "WHAT",
        env = "FERMATA_SHARED_MEMORY",
        num_args = 0..=1,
        default_missing_value = "inputs",
        value_enum
    )]
    pub(crate) shared_memory: Option<Passed>,

    /// The seed of arrivals and inputs.
    #[arg(long, value_name = "N", env = "FERMATA_SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print JSON.
    #[arg(long, env = "FERMATA_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,

    /// Draw latencies, and what became of requests over time.
    #[arg(long, value_name = "OUT.svg", env = "FERMATA_PLOT")]
    pub(crate) plot: Option<PathBuf>,
}

/// Which tensors are passed through shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Passed {
    /// Inputs; outputs are in the answer.
    Inputs,
    /// Inputs and outputs.
    Outputs,
}

const HELP: &str = "What becomes of a request: in time (within its SLO), late, shed (503, \
RESOURCE_EXHAUSTED or UNAVAILABLE), missed (504, DEADLINE_EXCEEDED, or no answer until \
--timeout-ms), \
failed (anything else). Ctrl-C ends the run early and reports it.

Examples:
  fermata load http://localhost:8000 resnet50 --rate 500 --slo-ms 25
  fermata load grpc://localhost:8001 resnet50=500@25 bert=100@50 --arrivals gamma:0.2 --duration 60s
  fermata load http://localhost:8000 identity --concurrency 32
  fermata load http://localhost:8000 resnet50 --goodput --slo-ms 25 --duration 5s
  fermata load grpc://localhost:8001 resnet50 --goodput --slo-ms 25 --shared-memory
  fermata load http://localhost:8000 bert --rate 50 --shape input_ids:1,128 --json | jq .latency_ms
  FERMATA_SEED=7 fermata load http://localhost:8000 resnet50 --rate 500 --plot load.svg";
