//! The binary `fermata`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

// A request is allocated on one thread and freed on another, which the system's allocator is slow
// at.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    fermata_cli::main()
}
