//! Writing whole files and whole answers, or nothing.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::InputError;

/// Finds out before a long run whether a file can be written where it is wanted.
pub fn check_writable(name: &'static str, file: &Path) -> Result<(), InputError> {
    let refuse = |reason: String| {
        Err(InputError::Argument { name, reason: format!("{}: {reason}", file.display()) })
    };
    if file.file_name().is_none() || file.is_dir() {
        return refuse("is not the name of a file".to_owned());
    }
    let neighbour = neighbour(file);
    match fs::write(&neighbour, "").and_then(|()| fs::remove_file(&neighbour)) {
        Ok(()) => Ok(()),
        Err(error) => refuse(format!("cannot be written: {error}")),
    }
}

/// The name under which a file is written before it is whole.
fn neighbour(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    file.with_file_name(name)
}

/// Writes a file through a neighbour that is renamed at the end, so that a reader, or an
/// interruption, never sees half of it.
pub fn write_file(file: &Path, text: &str) -> anyhow::Result<()> {
    let neighbour = neighbour(file);
    let written = fs::write(&neighbour, text).and_then(|()| fs::rename(&neighbour, file));
    if written.is_err() {
        // The first error is the one to report, not that there was nothing to clean up.
        let _ = fs::remove_file(&neighbour);
    }
    written.with_context(|| format!("{}: cannot be written", file.display()))
}

/// Prints an answer at once. A reader that has closed its end has read enough.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("the answer cannot be printed")
        }
        _ => Ok(()),
    }
}
