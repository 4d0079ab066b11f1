//! What can be said on the command line. Every option can be set by an environment variable too.

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use fermata_experiments::BenchArgs;
use fermata_load::LoadArgs;

use crate::gpu_worker::GpuWorkerArgs;
use crate::make_model::MakeModelArgs;
use crate::models::ModelsArgs;
use crate::plan::PlanArgs;
use crate::profile::ProfileArgs;
use crate::replay::ReplayArgs;
use crate::serve::ServeArgs;
use crate::shares::SharesArgs;
use crate::sim::SimArgs;
use crate::top::TopArgs;

/// Serves deep neural networks under latency objectives, holding each batch for exactly as long as
/// its deadlines allow.
#[derive(Debug, Parser)]
#[command(name = "fermata", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads the arguments of this process.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let matches =
            with_negative_numbers(<Self as CommandFactory>::command()).try_get_matches()?;
        Self::from_arg_matches(&matches)
    }
}

/// Takes a negative number for the value of an option, which then says by its own name what is
/// wrong with it; else it is an unknown option.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command.mut_subcommands(with_negative_numbers).mut_args(|arg| match arg.get_action() {
        ArgAction::Set | ArgAction::Append if !arg.is_positional() => {
            arg.allow_negative_numbers(true)
        }
        _ => arg,
    })
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Bench(BenchArgs),
    #[command(hide = true)]
    GpuWorker(GpuWorkerArgs),
    Load(LoadArgs),
    MakeModel(MakeModelArgs),
    Models(ModelsArgs),
    Plan(PlanArgs),
    Profile(ProfileArgs),
    Replay(ReplayArgs),
    Serve(ServeArgs),
    Shares(SharesArgs),
    Sim(SimArgs),
    Top(TopArgs),
}

const EXAMPLES: &str = "Examples:
  fermata serve models --slo-ms 50                    serve a folder of ONNX models
  fermata profile models                              how long their batches take
  fermata make-model resnet50 --repository models     a model to try it with
  fermata sim examples/resnet50.toml                  what happens to this load
  fermata sim examples/resnet50.toml --goodput        how much more it could be
  fermata plan examples/zoo.toml --confirm            how many GPUs these models need
  fermata sim --help                                  every option, with the file's keys
  fermata load http://localhost:8000 resnet50 --rate 500 --slo-ms 25
                                                      what a server makes of this load
  fermata models http://localhost:8000                what a server has
  fermata shares http://localhost:8000 40,60          cut its GPU into two shares
  fermata top http://localhost:8000                   what it does, live
  fermata bench symphony --quick                      the paper's experiments, roughly";
