//! `fermata bench`: suites of experiments, each of which writes a section with tables and pictures, and
//! `fermata bench scheduler`, which measures threads.
//!
//! Every section is a file of its own; a document is put together from those that there are, so that one experiment
//! can be repeated and the others stay.

mod document;
mod experiment;
mod gpu;
mod gpulet;
mod latency;
mod machine;
mod measured;
mod mixes;
mod nexus;
mod orloj;
mod planner;
mod progress;
mod scheduler;
mod store;
mod symphony;

use crate::args::{BenchArgs, Suite};
pub(crate) use gpu::GpuArgs;
pub(crate) use gpulet::GpuletArgs;
pub(crate) use latency::LatencyArgs;
pub(crate) use mixes::MixesArgs;
pub(crate) use nexus::NexusArgs;
pub(crate) use orloj::OrlojArgs;
pub(crate) use scheduler::SchedulerArgs;
pub(crate) use symphony::SymphonyArgs;

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    match &args.suite {
        Suite::Gpu(args) => gpu::run(args),
        Suite::Gpulet(args) => gpulet::run(args),
        Suite::Latency(args) => latency::run(args),
        Suite::Mixes(args) => mixes::run(args),
        Suite::Nexus(args) => nexus::run(args),
        Suite::Orloj(args) => orloj::run(args),
        Suite::Scheduler(args) => scheduler::run(args),
        Suite::Symphony(args) => symphony::run(args),
    }
}
