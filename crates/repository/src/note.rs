//! What a model's files say that makes no difference here.

use std::fmt;

/// A field that was accepted and has no effect, and why: logged once, when the model is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The field, as it is written in the file.
    pub field: String,
    /// Why it is not needed, or what was done in its place.
    pub reason: String,
}

impl Note {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}
