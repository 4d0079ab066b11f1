//! The arguments of `fermata bench orloj`.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::EXPERIMENTS;
use crate::experiment::{SuiteArgs, TraceArgs, list};

/// Repeats the experiments of Orloj (models whose run time depends on the input) in virtual time,
/// every policy beside what the paper printed, and writes tables and pictures.
#[derive(Debug, Arguments)]
#[command(after_help = help())]
pub(crate) struct OrlojArgs {
    #[command(flatten)]
    pub(super) suite: SuiteArgs,

    #[command(flatten)]
    pub(super) trace: TraceArgs,

    /// Input lengths of real requests: a CSV file with a column `ContextTokens`.
    #[arg(
        long,
        value_name = "FILE",
        env = "FERMATA_LENGTHS",
        default_value = "data/traces/azure_llm_2023_conv.csv"
    )]
    pub(super) lengths: PathBuf,

    /// The folder with what the paper printed (`orloj_finish_rates.csv`, `orloj_workloads.csv`).
    #[arg(long, value_name = "DIR", env = "FERMATA_DATA", default_value = "data")]
    pub(super) data: PathBuf,
}

fn help() -> String {
    format!(
        "Experiments:
{}

Examples:
  fermata bench orloj --quick             a rough look at everything
  fermata bench orloj --only targets      what was promised, thoroughly
  fermata bench orloj --only table5       the ten real workloads",
        list(&EXPERIMENTS)
    )
}
