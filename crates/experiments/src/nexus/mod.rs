//! `fermata bench nexus`: packing, query split and sub-clusters, beside what Nexus and Symphony
//! print about them.

mod args;
mod day;
mod examples;
mod instances;
mod large;
mod oracle;
mod packing;
mod queries;
mod subclusters;
mod zoo;

use std::path::Path;

pub(crate) use args::NexusArgs;

use super::document::Document;
use super::experiment::{self, Experiment};

/// In the order of the document.
pub(super) const EXPERIMENTS: [Experiment<NexusArgs>; 7] = [
    Experiment { name: "examples", title: "The papers' worked examples", run: examples::run },
    Experiment { name: "zoo", title: "15,000 requests a second of the A100 zoo", run: zoo::run },
    Experiment { name: "packing", title: "Packing a hundred sessions", run: packing::run },
    Experiment { name: "large", title: "Packing ten thousand sessions", run: large::run },
    Experiment { name: "queries", title: "The split of a query's objective", run: queries::run },
    Experiment {
        name: "subclusters",
        title: "800 models into 20 sub-clusters",
        run: subclusters::run,
    },
    Experiment { name: "day", title: "A day of Azure Functions", run: day::run },
];

/// What an experiment needs.
type Bench<'a> = experiment::Bench<'a, NexusArgs>;

/// Runs the command; `document` is the one that its sections are in, by its folder.
pub(super) fn run(args: &NexusArgs, document: fn(&Path) -> Document) -> anyhow::Result<()> {
    let chosen = experiment::choose(&EXPERIMENTS, &args.suite)?;
    experiment::run(&chosen, args, &args.suite, &document(&args.suite.out))
}
