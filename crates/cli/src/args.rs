//! What can be said on the command line. Every flag can be set by an environment variable too.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args as Arguments, Parser, Subcommand};
use fermata_dispatch::Policy;

/// Serves deep neural networks under latency objectives, holding each batch for exactly as long as its
/// deadlines allow.
#[derive(Debug, Parser)]
#[command(name = "fermata", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Sim(SimArgs),
}

const EXAMPLES: &str = "Examples:
  fermata sim examples/resnet50.toml                  what happens to this load
  fermata sim examples/resnet50.toml --goodput        how much more it could be
  fermata sim --help                                  every option, with the file's keys";

/// Simulates a load on a pool of GPUs, in virtual time, with the scheduler that serves.
#[derive(Debug, Arguments)]
#[command(after_help = sim_help())]
pub(crate) struct SimArgs {
    /// The load and the pool, as TOML (see below).
    pub(crate) file: PathBuf,

    /// The scheduling policy: several, or `all`, are compared side by side.
    #[arg(
        long,
        value_name = "P",
        env = "FERMATA_POLICY",
        value_delimiter = ' ',
        default_value = "fermata"
    )]
    pub(crate) policy: Vec<String>,

    /// The seed of all random numbers: the same seed gives the same run.
    #[arg(
        long,
        value_name = "N",
        env = "FERMATA_SEED",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub(crate) seed: u64,

    /// Search for the highest total rate, in the same mix, at which every model has 99 % of its requests
    /// in time, and report a run at that rate.
    #[arg(long, env = "FERMATA_GOODPUT", value_parser = FalseyValueParser::new())]
    pub(crate) goodput: bool,

    /// Search for the fewest GPUs with which every model has 99 % of its requests in time, and report a
    /// run with that many.
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
        "Policies: {policies}; timeout:5ms or timeout:20% (of the SLO) waits that long; \
         deferred-prefix, eager-prefix and timeout:...-prefix gather without early drop.

The file:
  gpus = 8
  duration_s = 60            # or requests = 400000
  network = {{ ctrl_us = 0, data_us = 0, resp_us = 0 }}    # optional
  noise = 0.05               # optional: relative deviation of execution times
  [[model]]
  name = \"resnet50\"
  alpha_ms = 1.053           # a batch of b takes alpha b + beta;
  beta_ms = 5.072            # or latency_ms = [6.1, 7.2, ...] by batch
  slo_ms = 25
  rate = 5000                # requests a second; of each copy
  arrivals = \"poisson\"       # \"gamma:0.2\", \"uniform\", \"trace:FILE\"
  copies = 1                 # optional: named resnet50-1, resnet50-2, ...
  [[fault]]                  # optional
  at_s = 20
  executor = 3
  kind = \"slow\"              # \"crash\", \"join\", \"leave\"
  factor = 2                 # of \"slow\"

A trace has one arrival a line, in seconds or as a date and time. It is replayed, again and again, at \
the given rate, or as recorded where there is none.

Examples:
  fermata sim examples/resnet50.toml
  fermata sim examples/resnet50.toml --policy fermata --policy deferred --policy eager
  fermata sim examples/zoo_a100.toml --goodput --policy all
  fermata sim examples/bursty.toml --min-gpus --json | jq .min_gpus
  FERMATA_SEED=7 fermata sim examples/faults.toml --plot faults.svg"
    )
}
