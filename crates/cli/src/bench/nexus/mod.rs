//! `fermata bench nexus`: packing, query split and sub-clusters, beside what Nexus and Symphony print about them.

mod args;
mod examples;

pub(crate) use args::NexusArgs;

use super::experiment::{self, Experiment};
use super::planner;

/// In the order of the document.
pub(super) const EXPERIMENTS: [Experiment<NexusArgs>; 1] =
    [Experiment { name: "examples", title: "The papers' worked examples", run: examples::run }];

/// What an experiment needs.
type Bench<'a> = experiment::Bench<'a, NexusArgs>;

/// Runs the command.
pub(super) fn run(args: &NexusArgs) -> anyhow::Result<()> {
    let chosen = experiment::choose(&EXPERIMENTS, &args.suite)?;
    experiment::run(&chosen, args, &args.suite, &planner::document(&args.suite.out))
}
