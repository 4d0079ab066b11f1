//! The command line of Fermata: arguments, files and pictures around simulator and server.
//!
//! Nothing is decided here. Input is checked whole before anything runs, results are rendered whole
//! before anything is written, and an error is printed once, in one line.

mod args;
mod gpu;
mod gpu_worker;
mod input;
mod make_model;
mod models;
mod plan;
mod profile;
mod replay;
mod serve;
mod shares;
mod sim;
mod top;

use std::process::ExitCode;

use fermata_files::InputError;

use crate::args::{Args, Command};

/// Bad input, as opposed to a failure of ours or of the machine's.
const BAD_INPUT: u8 = 2;
/// An answer was given, and it is that not all that was asked for can be had.
const UNMET: u8 = 3;

/// Runs the command of this process' arguments.
pub fn main() -> ExitCode {
    let args = match Args::read() {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
    let result = match &args.command {
        Command::Bench(args) => fermata_experiments::run(args, &gpu::ACCESS),
        Command::GpuWorker(args) => gpu_worker::run(args),
        Command::Load(args) => fermata_load::run(args),
        Command::MakeModel(args) => make_model::run(args),
        Command::Models(args) => models::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Shares(args) => shares::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Top(args) => top::run(args),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("error: {error:#}");
    match error {
        error if error.is::<InputError>() => ExitCode::from(BAD_INPUT),
        error if error.is::<plan::Unmet>() => ExitCode::from(UNMET),
        _ => ExitCode::FAILURE,
    }
}

/// Prints help as it is, and what is wrong with the arguments in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        // Whoever closed the pipe has read enough.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(BAD_INPUT) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let reason: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    eprintln!("{} (see --help)", reason.join(" "));
    ExitCode::from(BAD_INPUT)
}
