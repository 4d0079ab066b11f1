//! Why input was refused: which file or argument, which key, and the reason, in one line.

use std::io;
use std::path::PathBuf;

use fermata_core::Span;

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

/// The latency objective of `--slo-ms`.
pub(crate) fn objective(ms: f64) -> Result<Span, InputError> {
    if ms.is_finite() && ms > 0.0 && ms < 1e12 {
        return Ok(Span::from_ms(ms));
    }
    Err(InputError::Argument { name: "--slo-ms", reason: format!("{ms} is not a time above 0") })
}

fn place_of(place: &Option<String>) -> String {
    place.as_ref().map_or(String::new(), |place| format!("{place}: "))
}
