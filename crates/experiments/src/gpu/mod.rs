//! `fermata bench gpu`: what a GPU does: models over batches and shares, neighbours, and the server
//! under load.
//!
//! - On seats of the engine: `latency.rs`, `overlap.rs`, `shares.rs`, `interference.rs` (with
//!   `neighbours.rs`, `choice.rs` and `fit.rs`).
//! - On a server, under load, both processes of their own: `serve.rs`, `light.rs`, `recut.rs`,
//!   `mix.rs`, `crash.rs`.
//! - `rig.rs`, `looping.rs`, `subject.rs`, `zoo.rs`, `child.rs`, `expected.rs`: what they share.

mod args;
mod child;
mod choice;
mod crash;
mod expected;
#[cfg(test)]
mod fake;
mod fit;
mod interference;
mod lab;
mod latency;
mod light;
mod looping;
mod mix;
mod neighbours;
mod overlap;
mod recut;
mod rig;
mod serve;
mod shares;
mod subject;
mod zoo;

use fermata_files::output;
use serde::Serialize;

pub(crate) use args::GpuArgs;
pub use rig::{FindGpu, GpuAccess};

use super::document::Document;
use super::experiment::{self, Experiment};
use rig::Rig;

/// In the order of the document, and of the time that they need the GPU for.
const EXPERIMENTS: [Experiment<Rig>; 9] = [
    Experiment { name: "latency", title: "Batches on the whole GPU", run: latency::run },
    Experiment { name: "overlap", title: "What is not hidden behind compute", run: overlap::run },
    Experiment { name: "shares", title: "Profiles over batch and share", run: shares::run },
    Experiment {
        name: "interference",
        title: "What neighbours do to each other",
        run: interference::run,
    },
    Experiment { name: "serve", title: "ResNet50 served, SLO 10 ms", run: serve::run },
    Experiment { name: "light", title: "Light loads and lone clients", run: light::run },
    Experiment { name: "recut", title: "Other shares while serving", run: recut::run },
    Experiment { name: "mix", title: "Small models at tight SLOs, with shares", run: mix::run },
    Experiment { name: "crash", title: "A worker that is killed", run: crash::run },
];

/// What an experiment needs.
type Bench<'a> = experiment::Bench<'a, Rig>;

const INTRODUCTION: &str = "# One H200, measured

What `fermata bench gpu` found on one NVIDIA H200: how long batches take on the GPU and on shares \
of it, what shares do to each
other, and what the server makes of it over loopback, beside what `fermata sim` says for the \
measured profiles and what the GPU could do with
batches back to back. The models are well-known networks with random weights, in FP16, which take \
images as bytes (`fermata make-model`).
Beside this file, `h200/` has every number as JSON, and `profiles/h200/` the profiles that \
`fermata plan` and `fermata sim` read.

- *device time*: how long a batch had the device to itself, from the end of the one before it, \
with one always begun ahead.
- *goodput*: the highest rate of Poisson arrivals at which 99 % of every model's requests are \
answered within the SLO, as the client sees it.
- *share*: a CUDA green context of so many of the GPU's multiprocessors; *whole*: all of them.
- A row of a table with *at least* or *at most* is what this project asks of itself.
";

/// Runs the command.
pub(super) fn run(args: &GpuArgs, access: &GpuAccess) -> anyhow::Result<()> {
    let chosen = experiment::choose(&EXPERIMENTS, &args.suite)?;
    let rig = Rig::new(args, access)?;
    let document = Document {
        name: "h200",
        out: args.suite.out.clone(),
        introduction: INTRODUCTION,
        headings: EXPERIMENTS.iter().map(Experiment::heading).collect(),
    };
    experiment::run(&chosen, &rig, &args.suite, &document)
}

/// Writes everything that an experiment found beside its section.
fn write_json(bench: &Bench<'_>, name: &str, found: &impl Serialize) -> anyhow::Result<()> {
    let file = bench.document.folder().join(format!("{name}.json"));
    output::write_file(&file, &(serde_json::to_string_pretty(found)? + "\n"))
}

/// `yes` or `no`, for a row that asks for something.
fn met(holds: bool) -> &'static str {
    if holds { "yes" } else { "**no**" }
}

/// A part as a percentage.
fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}
