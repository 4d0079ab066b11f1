//! The arguments of `fermata bench nexus`.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::EXPERIMENTS;
use crate::bench::experiment::{SuiteArgs, list};

/// Measures the planner on the problems of Nexus and Symphony, every method beside what the papers printed, and writes
/// tables and pictures.
#[derive(Debug, Arguments)]
#[command(after_help = help())]
pub(crate) struct NexusArgs {
    #[command(flatten)]
    pub(super) suite: SuiteArgs,

    /// The day: calls a minute, as in the Azure Functions traces of 2019.
    #[arg(
        long,
        value_name = "FILE",
        env = "FERMATA_TRACE",
        default_value = "data/traces/azure_functions_2019_1000x1440.csv"
    )]
    pub(super) trace: PathBuf,
}

fn help() -> String {
    format!(
        "Experiments:
{}

Examples:
  fermata bench nexus --quick             a rough look at everything
  fermata bench nexus --only examples     one experiment",
        list(&EXPERIMENTS)
    )
}
