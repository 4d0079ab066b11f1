//! The numbers of a settings file.

use std::path::Path;

use fermata_core::Span;

use crate::error::RepositoryError;

/// Thirty years: longer latencies and objectives are slips of the keyboard.
const MS_MAX: f64 = 1e12;

/// A number above zero.
pub(crate) fn positive(file: &Path, key: &str, value: f64) -> Result<f64, RepositoryError> {
    // What rounds to no time at all is none.
    if value <= MS_MAX && Span::from_ms(value) > Span::ZERO {
        return Ok(value);
    }
    Err(RepositoryError::key(
        file,
        key,
        format!("{value} is not a number above 0 and at most {MS_MAX}"),
    ))
}

/// A number of zero or more.
pub(crate) fn not_negative(file: &Path, key: &str, value: f64) -> Result<f64, RepositoryError> {
    if (0.0..=MS_MAX).contains(&value) {
        return Ok(value);
    }
    Err(RepositoryError::key(file, key, format!("{value} is not a number from 0 to {MS_MAX}")))
}
