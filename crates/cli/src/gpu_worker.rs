//! `fermata gpu-worker`: the process behind a seat on a GPU. The server starts it; no person
//! does.

use std::path::PathBuf;

use clap::Args as Arguments;
use fermata_engine::cuda;
use fermata_files::output;

/// Runs batches on a GPU for the server that started it, over its standard input.
#[derive(Debug, Arguments)]
pub(crate) struct GpuWorkerArgs {
    /// Print the GPUs of this machine as JSON, and end.
    #[arg(long)]
    list: bool,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: usize,

    /// A folder with ONNX Runtime.
    #[arg(long, value_name = "FOLDER")]
    library: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &GpuWorkerArgs) -> anyhow::Result<()> {
    if args.list {
        return output::print(&serde_json::to_string(&cuda::gpus()?)?);
    }
    cuda::work(args.gpu, &args.library)?;
    Ok(())
}
