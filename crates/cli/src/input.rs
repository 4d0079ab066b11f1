//! Why input was refused: which file or argument, which key, and the reason, in one line.

use std::io;
use std::path::PathBuf;

/// Input that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// An argument, on the command line or from its environment variable.
    #[error("{name}: {reason}")]
    Argument { name: &'static str, reason: String },
    /// A value in a file.
    #[error("{}: {}{key}: {reason}", file.display(), place_of(place))]
    Key {
        file: PathBuf,
        /// Which of several tables, such as `model 'resnet50'`.
        place: Option<String>,
        key: String,
        reason: String,
    },
    /// A file that is not there, or is not text. Why is told by the source.
    #[error("{}: cannot be read", file.display())]
    Read { file: PathBuf, source: io::Error },
    /// A file that is not TOML.
    #[error("{}: line {line}: {reason}", file.display())]
    Syntax { file: PathBuf, line: usize, reason: String },
}

fn place_of(place: &Option<String>) -> String {
    place.as_ref().map_or(String::new(), |place| format!("{place}: "))
}
