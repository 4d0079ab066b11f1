//! The binary `fermata`.

use std::process::ExitCode;

fn main() -> ExitCode {
    fermata_cli::main()
}
