//! The arguments of `fermata bench mixes`.

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;

use super::EXPERIMENTS;
use crate::experiment::{SuiteArgs, count, list};
use crate::measured::MeasuredArgs;

/// Compares the default policy with the best of all others on models with different objectives that
/// share few executors, at steady rates, when rates change, and above the goodput.
#[derive(Debug, Arguments)]
#[command(after_help = help())]
pub(crate) struct MixesArgs {
    #[command(flatten)]
    pub(super) suite: SuiteArgs,

    /// How many random mixes; 1,000 if not given, 40 with --quick.
    #[arg(long, value_name = "N", env = "FERMATA_MIXES", value_parser = count())]
    pub(super) mixes: Option<u64>,

    /// The seed of the first mix of `random`; the others have the seeds that follow.
    #[arg(long, value_name = "N", env = "FERMATA_FIRST_SEED", default_value_t = 1)]
    pub(super) first_seed: u64,

    /// The seed of the first mix of `frozen`; the others have the seeds that follow.
    #[arg(long, value_name = "N", env = "FERMATA_FROZEN_SEED", default_value_t = 1_000_000)]
    pub(super) frozen_seed: u64,

    /// Random mixes: measure this policy (`fermata`) again on those that are stored, keeping the
    /// stored goodputs of the others.
    #[arg(long, value_name = "P", env = "FERMATA_REFRESH")]
    pub(super) refresh: Option<String>,

    /// Random mixes: only report what is stored, of all seeds.
    #[arg(long, env = "FERMATA_REPORT", value_parser = FalseyValueParser::new())]
    pub(super) report: bool,

    #[command(flatten)]
    pub(super) measured: MeasuredArgs,
}

fn help() -> String {
    format!(
        "Experiments:
{}

--seed is the seed of the arrivals of the four named mixes; a random mix draws everything from its \
own seed.

A thousand random mixes take an hour. They are kept in mixes/random.csv and mixes/frozen.csv as \
they are found: a run that was interrupted goes on where it stopped, and a full run keeps what \
--quick has found.

Examples:
  fermata bench mixes --quick                             a rough look at everything
  fermata bench mixes --only table                        the four named mixes, thoroughly
  fermata bench mixes --only random --mixes 100           fewer mixes
  fermata bench mixes --only random --first-seed 17 --mixes 1
                                                          one mix, by its seed
  fermata bench mixes --only random --refresh fermata     the default policy again
  fermata bench mixes --only random,frozen --report       render again what is stored",
        list(&EXPERIMENTS)
    )
}
