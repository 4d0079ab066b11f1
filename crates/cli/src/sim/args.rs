//! What can be said to `fermata sim`.

use std::path::PathBuf;

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;
use fermata_dispatch::{Policy, Spare};

use crate::input::GPUS_MAX;

/// Simulates a load on a pool of GPUs, in virtual time, with the scheduler that serves.
#[derive(Debug, Arguments)]
#[command(after_help = sim_help())]
pub(crate) struct SimArgs {
    /// The load and the pool, as TOML (see below).
    #[arg(required_unless_present = "recording", conflicts_with = "recording")]
    pub(crate) file: Option<PathBuf>,

    /// In place of a file: the requests that a server was asked, from `fermata serve --record`.
    #[arg(long, value_name = "FILE", env = "FERMATA_RECORDING")]
    pub(crate) recording: Option<PathBuf>,

    /// With --recording: which pool; the one with the most requests, if not given.
    #[arg(long, value_name = "NAME", requires = "recording")]
    pub(crate) pool: Option<String>,

    /// With --recording: one objective for all requests, in place of the deadlines that they had.
    #[arg(long, value_name = "MS", requires = "recording")]
    pub(crate) slo_ms: Option<f64>,

    /// With --recording: another number of GPUs.
    #[arg(
        long,
        value_name = "N",
        requires = "recording",
        value_parser = clap::value_parser!(u64).range(1..=GPUS_MAX as u64)
    )]
    pub(crate) gpus: Option<u64>,

    /// The scheduling policy: several, or `all`, are compared side by side.
    #[arg(
        long,
        value_name = "P",
        env = "FERMATA_POLICY",
        value_delimiter = ' ',
        default_value = "fermata"
    )]
    pub(crate) policy: Vec<String>,

    /// What spare executors are for, under policies that price them: they answer requests sooner
    /// (latency), or stay idle so that they can be given away (release). As the file or the
    /// recording says, if not given; latency, if it does not.
    #[arg(long, value_name = "USE", env = "FERMATA_SPARE")]
    pub(crate) spare: Option<Spare>,

    /// The seed of all random numbers: the same seed gives the same run.
    #[arg(long, value_name = "N", env = "FERMATA_SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Search for the highest total rate, in the same mix, at which every model has 99 % of its
    /// requests in time, and report a run at that rate.
    #[arg(long, env = "FERMATA_GOODPUT", value_parser = FalseyValueParser::new())]
    pub(crate) goodput: bool,

    /// Search for the fewest GPUs with which every model has 99 % of its requests in time, and
    /// report a run with that many.
    #[arg(long, env = "FERMATA_MIN_GPUS", value_parser = FalseyValueParser::new())]
    pub(crate) min_gpus: bool,

    /// Print JSON: one object, or a list of them for several policies.
    #[arg(long, env = "FERMATA_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,

    /// Draw the end of the run, executor by executor, and the batch sizes.
    #[arg(long, value_name = "OUT.svg", env = "FERMATA_PLOT")]
    pub(crate) plot: Option<PathBuf>,
}

fn sim_help() -> String {
    let policies = Policy::names().join(", ");
    format!(
        "Policies: {policies}; fermata:release is fermata with --spare release; \
         fermata:fixed keeps its rules where fermata compares them with others; \
         timeout:5ms or timeout:20% (of the SLO) waits that long; \
         deferred-prefix, eager-prefix and timeout:...-prefix gather without early drop; \
         tfserving:5ms,32 \
         takes a timeout and a largest batch, orloj:0.001 the rate of the anticipated delay per \
         millisecond.

The file:
  gpus = 8
  share = 40                 # optional: of each of them, so many percent
  duration_s = 60            # or requests = 400000
  spare = \"latency\"          # optional: what spare executors are for, as --spare says it
  network = {{ ctrl_us = 0, data_us = 0, resp_us = 0 }}    # optional: from the decision to the GPU;
                             # to fetch the input of each request; from the GPU to the client
  noise = 0.05               # optional: relative standard deviation of execution times, which the
                             # scheduler does not know: give it latencies that are rarely exceeded
  [[model]]
  name = \"resnet50\"
  alpha_ms = 1.053           # a batch of b takes alpha b + beta;
  beta_ms = 5.072            # or latency_ms = [6.1, 7.2, ...] by batch;
                             # or profile = \"FILE\", as fermata profile --json or fermata bench \
                             gpu wrote it
  slo_ms = 25
  rate = 5000                # requests a second; of each copy
  arrivals = \"poisson\"       # \"gamma:0.2\", \"uniform\", \"trace:FILE\"
  copies = 1                 # optional: named resnet50-1, resnet50-2, ...
  [[model.alone]]            # in place of latencies, for a model whose run time depends on the \
  input: what
  mean_ms = 50               # requests of one application take alone; several of these are several
  deviation_ms = 10          # applications, with these shares. With growth = {{ fixed_ms = 0, \
  base = 0.8, each = 0.2 }}
  share = 1                  # a batch of b takes fixed + (base + each b) times its longest \
  request; max_batch = 16;
                             # tags = false: the scheduler is not told the application of a request
  [[fault]]                  # optional
  at_s = 20
  executor = 3
  kind = \"slow\"              # \"crash\", \"join\", \"leave\"
  factor = 2                 # of \"slow\"

A trace has one arrival a line, in seconds or as a date and time. It is replayed, again and again, \
at \
the given rate, or as recorded where there is none.

Examples:
  fermata sim examples/resnet50.toml
  fermata sim examples/resnet50.toml --policy fermata --policy deferred --policy eager
  fermata sim examples/zoo_a100.toml --goodput --policy all
  fermata sim examples/zoo_a100.toml --policy fermata:latency --policy fermata:release
  fermata sim examples/bursty.toml --min-gpus --json | jq .min_gpus
  fermata sim examples/uneven.toml --policy fermata --policy orloj
  fermata sim --recording run.txt --policy deferred --gpus 4
  FERMATA_SEED=7 fermata sim examples/faults.toml --plot faults.svg"
    )
}
