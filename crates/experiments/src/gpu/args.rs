//! The arguments of `fermata bench gpu`.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::EXPERIMENTS;
use crate::experiment::{SuiteArgs, list};

/// Measures a GPU: models over batches and shares, what neighbours do to each other, and the server
/// under load, beside what the simulator and the GPU itself could do. Leaves profiles, tables,
/// pictures and JSON.
#[derive(Debug, Arguments)]
#[command(after_help = help())]
pub(crate) struct GpuArgs {
    #[command(flatten)]
    pub(super) suite: SuiteArgs,

    /// Which GPU.
    #[arg(long, value_name = "N", env = "FERMATA_GPU", default_value_t = 0)]
    pub(super) gpu: usize,

    /// Where the models are, or are made: well-known networks with random weights, a gigabyte.
    #[arg(long, value_name = "DIR", env = "FERMATA_MODELS", default_value = ".fermata/zoo")]
    pub(super) models: PathBuf,

    /// Where to write the profiles, a file for each model.
    #[arg(long, value_name = "DIR", env = "FERMATA_PROFILES", default_value = "profiles/h200")]
    pub(super) profiles: PathBuf,

    /// About how long all runs may take together. Less time is shorter runs; to load the models
    /// takes minutes more.
    #[arg(long, value_name = "M", env = "FERMATA_MINUTES", default_value_t = 5.5)]
    pub(super) minutes: f64,
}

fn help() -> String {
    format!(
        "Experiments:
{}

It needs a GPU of NVIDIA with CUDA 13 and cuDNN 9, and ONNX Runtime for GPUs (`make setup-gpu`).

Examples:
  fermata bench gpu                            all of it
  fermata bench gpu --only latency             one experiment
  fermata bench gpu --only serve,recut         two of them
  fermata bench gpu --minutes 3 --out /tmp     a rough look, elsewhere than in docs/results",
        list(&EXPERIMENTS)
    )
}
