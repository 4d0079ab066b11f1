//! Why a model cannot be served: which file, which line or key, and the reason, in one line.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a model of the repository. Cheap enough to keep: the index shows it until it
/// is mended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    /// A value in a file.
    #[error("{}: {key}: {reason}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// Which value, such as `input 'x': dims`.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Files and folders that are not as they should be.
    #[error("{}: {reason}", path.display())]
    Layout {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What came with a request to load a model.
    #[error("{what}: {reason}")]
    Override {
        /// The parameter, such as `config` or `file:1/model.onnx`.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file or folder that cannot be read.
    #[error("{}: cannot be read: {reason}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A file that is not in its format.
    #[error("{}: line {line}: {reason}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Where, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
}

impl RepositoryError {
    pub(crate) fn key(file: &Path, key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Key { file: file.to_owned(), key: key.into(), reason: reason.into() }
    }

    /// What is wrong with a folder or a file as a whole.
    pub fn layout(path: &Path, reason: impl Into<String>) -> Self {
        Self::Layout { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn read(path: &Path, error: &io::Error) -> Self {
        Self::Read { path: path.to_owned(), reason: error.to_string() }
    }
}

/// A message of several lines as one.
pub(crate) fn in_one_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(", ")
}

/// In which line of a text a place is, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.get(..offset.min(text.len())).unwrap_or_default().matches('\n').count() + 1
}

/// What is written in a line, shortened; `None` if it is empty.
pub(crate) fn written_in(text: &str, line: usize) -> Option<String> {
    let written = text.lines().nth(line - 1)?.trim();
    (!written.is_empty())
        .then(|| written.chars().take(60).collect::<String>().escape_debug().to_string())
}
