//! Published experiments and our own, as `fermata bench` runs them: suites of experiments, each of
//! which writes a section with tables and pictures, and `scheduler`, which measures threads.
//!
//! Every section is a file of its own; a document is put together from those that there are, so
//! that one experiment can be repeated and the others stay. [`trials`] has what is run and
//! measured; the other modules choose what to run, and write about it. `gpu` starts a server as a
//! process of its own: it is not linked here.

mod args;
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
pub mod trials;
mod wrap;

pub use args::BenchArgs;
use args::Suite;
pub use gpu::{FindGpu, GpuAccess};

/// Runs the command.
pub fn run(args: &BenchArgs, access: &GpuAccess) -> anyhow::Result<()> {
    match &args.suite {
        Suite::Gpu(args) => gpu::run(args, access),
        Suite::Gpulet(args) => gpulet::run(args, planner::document),
        Suite::Latency(args) => latency::run(args),
        Suite::Mixes(args) => mixes::run(args),
        Suite::Nexus(args) => nexus::run(args, planner::document),
        Suite::Orloj(args) => orloj::run(args),
        Suite::Scheduler(args) => scheduler::run(args),
        Suite::Symphony(args) => symphony::run(args),
    }
}
