//! `fermata bench gpulet`: shares of GPUs by every method, on the nine models and the loads of the
//! paper.

mod args;
mod methods;
mod models;
mod rates;
mod scenarios;

use std::path::Path;

pub(crate) use args::GpuletArgs;

use super::document::Document;
use super::experiment::{self, Experiment};

/// In the order of the document.
pub(super) const EXPERIMENTS: [Experiment<GpuletArgs>; 2] = [
    Experiment { name: "scenarios", title: "gpulet's 19,682 scenarios", run: scenarios::run },
    Experiment { name: "rates", title: "The highest rates of gpulet's loads", run: rates::run },
];

/// What an experiment needs.
type Bench<'a> = experiment::Bench<'a, GpuletArgs>;

/// The GPUs of the paper's servers.
const GPUS: usize = 4;

/// Runs the command; `document` is the one that its sections are in, by its folder.
pub(super) fn run(args: &GpuletArgs, document: fn(&Path) -> Document) -> anyhow::Result<()> {
    let chosen = experiment::choose(&EXPERIMENTS, &args.suite)?;
    experiment::run(&chosen, args, &args.suite, &document(&args.suite.out))
}
