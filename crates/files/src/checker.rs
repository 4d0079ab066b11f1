//! Checks the values of a file one by one.

use std::path::Path;

use super::InputError;

/// One request a nanosecond: time has no finer grain.
const RATE_MAX: f64 = 1e9;
/// As seconds, thirty years; the clock's nanoseconds last for five hundred.
const NUMBER_MAX: f64 = 1e9;

/// Checks the values of one table, and names file, table and key of what it refuses.
pub struct Checker<'a> {
    /// The file.
    pub file: &'a Path,
    /// Which of several tables, such as `model 'resnet50'`.
    pub place: Option<String>,
}

impl Checker<'_> {
    /// Why the value of a key is refused.
    pub fn refuse(&self, key: &str, reason: impl Into<String>) -> InputError {
        let (file, place) = (self.file.to_owned(), self.place.clone());
        InputError::Key { file, place, key: key.to_owned(), reason: reason.into() }
    }

    /// A value that must be there.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, InputError> {
        value.ok_or_else(|| self.refuse(key, "missing"))
    }

    /// A name that can be shown in one line.
    pub fn name<'b>(&self, key: &str, value: Option<&'b str>) -> Result<&'b str, InputError> {
        let name = self.required(key, value)?;
        if name.is_empty() || name.contains(char::is_control) {
            return Err(self.refuse(key, "must be a word in one line"));
        }
        Ok(name)
    }

    /// A number above zero.
    pub fn positive(&self, key: &str, value: f64) -> Result<f64, InputError> {
        if value > 0.0 && value <= NUMBER_MAX {
            return Ok(value);
        }
        Err(self.refuse(
            key,
            format!("{} is not a number above 0 and at most {NUMBER_MAX}", shown(value)),
        ))
    }

    /// A number that is zero or more.
    pub fn not_negative(&self, key: &str, value: f64) -> Result<f64, InputError> {
        if (0.0..=NUMBER_MAX).contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(key, format!("{} is not a number from 0 to {NUMBER_MAX}", shown(value))))
    }

    /// The requests a second of the key `rate`.
    pub fn rate(&self, rate: f64) -> Result<f64, InputError> {
        if rate > 0.0 && rate <= RATE_MAX {
            return Ok(rate);
        }
        let reason = format!(
            "{} is not a number of requests a second above 0, at most {RATE_MAX}",
            shown(rate)
        );
        Err(self.refuse("rate", reason))
    }

    /// A whole number from one to `most`.
    pub fn count(&self, key: &str, value: i64, most: usize) -> Result<usize, InputError> {
        match usize::try_from(value) {
            Ok(count) if count >= 1 && count <= most => Ok(count),
            _ => Err(self.refuse(key, format!("{value} is not a whole number from 1 to {most}"))),
        }
    }
}

/// A number as people write it: three hundred zeros are not one line to read.
fn shown(value: f64) -> String {
    if value.abs() < 1e15 { value.to_string() } else { format!("{value:e}") }
}
