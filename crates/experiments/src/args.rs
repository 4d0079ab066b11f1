//! What can be said to `fermata bench`.

use clap::{Args as Arguments, Subcommand};

use crate::gpu::GpuArgs;
use crate::gpulet::GpuletArgs;
use crate::latency::LatencyArgs;
use crate::mixes::MixesArgs;
use crate::nexus::NexusArgs;
use crate::orloj::OrlojArgs;
use crate::scheduler::SchedulerArgs;
use crate::symphony::SymphonyArgs;

/// Repeats published experiments, measures the scheduler, and writes what comes out.
#[derive(Debug, Arguments)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub(crate) suite: Suite,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Suite {
    Gpu(GpuArgs),
    Gpulet(GpuletArgs),
    Latency(LatencyArgs),
    Mixes(MixesArgs),
    Nexus(NexusArgs),
    Orloj(OrlojArgs),
    Scheduler(SchedulerArgs),
    Symphony(SymphonyArgs),
}
