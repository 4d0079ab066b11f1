//! The arguments of `fermata bench nexus`.

use clap::Args as Arguments;

use super::EXPERIMENTS;
use crate::experiment::{SuiteArgs, TraceArgs, list};

/// Measures the planner on the problems of Nexus and Symphony, every method beside what the papers
/// printed, and writes tables and pictures.
#[derive(Debug, Arguments)]
#[command(after_help = help())]
pub(crate) struct NexusArgs {
    #[command(flatten)]
    pub(super) suite: SuiteArgs,

    #[command(flatten)]
    pub(super) trace: TraceArgs,
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
