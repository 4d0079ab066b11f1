//! The arguments of `fermata bench symphony`.

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;

use super::EXPERIMENTS;
use crate::experiment::{SuiteArgs, TraceArgs, count, list};

/// Repeats the experiments of Symphony (deferred batch scheduling) in virtual time, every policy
/// beside what the paper printed, and writes tables and pictures.
#[derive(Debug, Arguments)]
#[command(after_help = help())]
pub(crate) struct SymphonyArgs {
    #[command(flatten)]
    pub(super) suite: SuiteArgs,

    /// Requests per run; fewer are quicker and rougher.
    #[arg(long, value_name = "N", env = "FERMATA_REQUESTS", value_parser = count())]
    pub(super) requests: Option<u64>,

    /// An even sample of so many of figure 7's workloads.
    #[arg(long, value_name = "N", env = "FERMATA_WORKLOADS", value_parser = count())]
    pub(super) workloads: Option<u64>,

    /// Figure 7: measure this policy again, keeping the stored goodputs of the others.
    #[arg(long, value_name = "P", env = "FERMATA_REFRESH")]
    pub(super) refresh: Option<String>,

    /// Figure 7: only report what is stored in symphony/figure7.csv.
    #[arg(long, env = "FERMATA_REPORT", value_parser = FalseyValueParser::new())]
    pub(super) report: bool,

    #[command(flatten)]
    pub(super) trace: TraceArgs,
}

fn help() -> String {
    format!(
        "Experiments:
{}

Figure 7 takes hours. Its goodputs are kept in symphony/figure7.csv as they are found: a run that \
was \
interrupted goes on where it stopped, and a full run keeps what --quick has found.

Examples:
  fermata bench symphony --quick                    a rough look at everything
  fermata bench symphony --only table2              one experiment, thoroughly
  fermata bench symphony --only figure7             all 5,880 workloads
  fermata bench symphony --only figure7 --report    render again what is stored
  fermata bench symphony --only figure7 --refresh fermata",
        list(&EXPERIMENTS)
    )
}
