//! The arguments of `fermata bench scheduler`.

use std::path::PathBuf;

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;

const HELP: &str = "\
Requests come in this process, to emulated GPUs, without a network or a payload; threads and clock \
are real. Models are \
alike, and as fast as they must be for the GPUs to be 80 % busy in batches of 16. A rate is \
sustained if no more \
requests are lost than in virtual time and one in a thousand.

Examples:
  fermata bench scheduler                                        the highest rate that 37 models \
  on 1,000 GPUs sustain
  fermata bench scheduler --policy deferred --rate 12e6 --json   one rate
  fermata bench scheduler --models 1000 --gpus 10000 --pin
  fermata bench scheduler --all                                  everything in \
  docs/results/scheduler.md, about 10 minutes";

/// Finds how many requests a second the scheduler takes on this machine's cores, how punctually,
/// and at what cost.
#[derive(Debug, Arguments)]
#[command(after_help = HELP)]
pub(crate) struct SchedulerArgs {
    /// How many threads have models, beside the one that has the GPUs; one less than there are
    /// cores, if not given.
    #[arg(long, value_name = "N", env = "FERMATA_MODEL_THREADS")]
    pub(crate) model_threads: Option<usize>,

    /// How many models.
    #[arg(long, value_name = "M", env = "FERMATA_MODELS", default_value_t = 37)]
    pub(crate) models: usize,

    /// How many GPUs.
    #[arg(long, value_name = "G", env = "FERMATA_GPUS", default_value_t = 1000)]
    pub(crate) gpus: usize,

    /// How long each try lasts.
    #[arg(long, value_name = "S", env = "FERMATA_SECONDS", default_value_t = 2.0)]
    pub(crate) seconds: f64,

    /// Only this many requests a second; the highest rate that is sustained, if not given.
    #[arg(long, value_name = "R", env = "FERMATA_RATE")]
    pub(crate) rate: Option<f64>,

    /// How the pool decides: fermata:release, fermata, deferred, eager or timeout:10ms.
    #[arg(long, value_name = "P", env = "FERMATA_POLICY", default_value = "fermata:release")]
    pub(crate) policy: String,

    /// Threads that have nothing to do keep looking, in place of sleeping.
    #[arg(long, env = "FERMATA_SPIN", value_parser = FalseyValueParser::new())]
    pub(crate) spin: bool,

    /// Each thread stays on a core of its own.
    #[arg(long, env = "FERMATA_PIN", value_parser = FalseyValueParser::new())]
    pub(crate) pin: bool,

    /// Do not count instructions, which takes some seconds.
    #[arg(long, env = "FERMATA_NO_COUNT", value_parser = FalseyValueParser::new())]
    pub(crate) no_count: bool,

    /// The seed of the requests.
    #[arg(long, value_name = "N", env = "FERMATA_SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print JSON.
    #[arg(long, env = "FERMATA_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,

    /// Measure everything, and write scheduler.md.
    #[arg(long, value_parser = FalseyValueParser::new())]
    pub(crate) all: bool,

    /// Where --all writes to.
    #[arg(long, value_name = "DIR", env = "FERMATA_OUT", default_value = "docs/results")]
    pub(crate) out: PathBuf,

    /// Be the one whose instructions are counted.
    #[arg(long, hide = true)]
    pub(crate) counted: bool,
}
