//! Why input was refused: which file or argument, which key, and the reason, in one line; and what files of several commands have in
//! common.

mod checker;
mod document;
mod load;
mod measured;
mod profile;
mod shares;
mod spare;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fermata_core::Span;

use crate::client;
pub(crate) use checker::Checker;
pub(crate) use document::{parse, parse_json};
pub(crate) use load::{Latency, LatencyKeys, arrivals, copies_of, one, poisson};
pub(crate) use measured::{
    CoefficientsRow, FORMAT, INTERFERENCE, MeasuredFile, ShareRow, UsageRow, read_interference,
    read_unpadded,
};
pub(crate) use shares::shares;
pub(crate) use spare::{says_spare, spare};

/// A day: longer runs are slips of the keyboard.
pub(crate) const SECONDS_MAX: f64 = 86_400.0;

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
    /// A file that is not TOML, or not JSON.
    #[error("{}: line {line}: {reason}", file.display())]
    Syntax { file: PathBuf, line: usize, reason: String },
}

/// The latency objective of `--slo-ms`.
pub(crate) fn objective(ms: f64) -> Result<Span, InputError> {
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
pub(crate) fn duration(name: &'static str, text: &str, zero: bool) -> Result<Duration, InputError> {
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
                client::in_one_line(text)
            ),
        }),
    }
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
