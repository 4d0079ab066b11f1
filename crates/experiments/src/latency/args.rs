//! The arguments of `fermata bench latency`.

use clap::Args as Arguments;

use super::EXPERIMENTS;
use crate::experiment::{SuiteArgs, list};
use crate::measured::MeasuredArgs;

/// Measures how long requests take below the goodput: under several loads, on a pool of many
/// models, and alone after other traffic; and what answering soon costs in goodput.
#[derive(Debug, Arguments)]
#[command(after_help = help())]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    pub(super) suite: SuiteArgs,

    #[command(flatten)]
    pub(super) measured: MeasuredArgs,
}

fn help() -> String {
    format!(
        "Experiments:
{}

Examples:
  fermata bench latency --quick             a rough look at everything
  fermata bench latency --only load         one experiment, thoroughly
  fermata bench latency --only load,alone   two of them",
        list(&EXPERIMENTS)
    )
}
