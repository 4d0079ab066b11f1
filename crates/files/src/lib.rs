//! What commands read and write: files and arguments that people write, checked whole before
//! anything runs; files and answers that commands write, whole or not at all.
//!
//! An error names its place (the file or the argument, and the key) and the reason, in one line.
//! [`MeasuredFile`] is the file of latencies that several commands share.

mod checker;
mod document;
mod measured;
pub mod output;
mod shares;
mod table;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fermata_core::Span;

pub use checker::Checker;
pub use document::{parse, parse_json};
pub use measured::{
    CoefficientsRow, FORMAT, INTERFERENCE, Measured, MeasuredFile, ShareRow, UsageRow,
    read_interference, read_unpadded, span,
};
pub use shares::shares;
pub use table::Table;

/// A day: longer runs are slips of the keyboard.
pub const SECONDS_MAX: f64 = 86_400.0;

/// Input that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// An argument, on the command line or from its environment variable.
    #[error("{name}: {reason}")]
    Argument {
        /// Which.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A value in a file.
    #[error("{}: {}{key}: {reason}", file.display(), place_of(place))]
    Key {
        /// Which file.
        file: PathBuf,
        /// Which of several tables, such as `model 'resnet50'`.
        place: Option<String>,
        /// Which key.
        key: String,
        /// What is wrong with its value.
        reason: String,
    },
    /// A file that is not there, or is not text. Why is told by the source.
    #[error("{}: cannot be read", file.display())]
    Read {
        /// Which file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is not TOML, or not JSON.
    #[error("{}: line {line}: {reason}", file.display())]
    Syntax {
        /// Which file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// The latency objective of `--slo-ms`.
pub fn objective(ms: f64) -> Result<Span, InputError> {
    let span = Span::from_ms(ms);
    if ms <= 1e12 && span > Span::ZERO {
        return Ok(span);
    }
    Err(InputError::Argument { name: "--slo-ms", reason: format!("{ms} is not a time above 0") })
}

fn place_of(place: &Option<String>) -> String {
    place.as_ref().map_or(String::new(), |place| format!("{place}: "))
}

/// `10s`, `500ms`, `2m`; a bare number is seconds.
pub fn duration(name: &'static str, text: &str, zero: bool) -> Result<Duration, InputError> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))
        .unwrap_or((text, 1.0));
    match number.trim().parse::<f64>().map(|number| number * unit) {
        Ok(seconds) if seconds <= SECONDS_MAX && (seconds > 0.0 || zero && seconds == 0.0) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(InputError::Argument {
            name,
            reason: format!(
                "'{}' is not a duration such as 10s, 500ms or 2m, at most one day",
                in_one_line(text)
            ),
        }),
    }
}

/// Text from elsewhere, made fit for one line of ours.
pub fn in_one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    line.chars().filter(|letter| !letter.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, ms) in
            [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("0.5", 500), ("1h", 3_600_000)]
        {
            assert_eq!(duration("D", text, false).unwrap().as_millis(), ms, "{text}");
        }
        for text in ["", "s", "-1s", "0s", "nan", "inf", "25h", "1 day"] {
            assert!(duration("D", text, false).is_err(), "{text}");
        }
        assert_eq!(duration("D", "0", true).unwrap(), Duration::ZERO);
    }
}
