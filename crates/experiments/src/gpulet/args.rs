//! The arguments of `fermata bench gpulet`.

use clap::Args as Arguments;

use super::EXPERIMENTS;
use crate::experiment::{SuiteArgs, list};

/// Measures shares of GPUs on gpulet's nine models: its 19,682 scenarios and its multi-model loads,
/// every method beside what the paper printed, and writes tables and pictures.
#[derive(Debug, Arguments)]
#[command(after_help = help())]
pub(crate) struct GpuletArgs {
    #[command(flatten)]
    pub(super) suite: SuiteArgs,
}

fn help() -> String {
    format!(
        "Experiments:
{}

Examples:
  fermata bench gpulet --quick            a fiftieth of the scenarios, and coarse rates
  fermata bench gpulet --only rates       one experiment
  fermata bench gpulet --out /tmp         elsewhere than in docs/results",
        list(&EXPERIMENTS)
    )
}
