//! The settings of trace and log that clients may change while the server runs.
//!
//! Log settings choose the level of the server's log. Trace settings are kept and told, as clients
//! expect of a Triton server, but there is no Triton trace that they would switch on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tracing::level_filters::LevelFilter;

use crate::inference::InferError;

/// Sets the level of the server's log.
pub trait LogControl: Send + Sync {
    /// From here on, events up to this level are written. An error says why they are not.
    fn set_level(&self, level: LevelFilter) -> Result<(), String>;
}

/// All settings.
pub(crate) struct Settings {
    log_control: Box<dyn LogControl>,
    log: Mutex<Log>,
    trace: Mutex<Trace>,
}

/// What is logged, in Triton's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// Whether INFO is written.
    pub(crate) info: bool,
    /// Whether WARN is written.
    pub(crate) warning: bool,
    /// Whether ERROR is written.
    pub(crate) error: bool,
    /// DEBUG from 1, TRACE from 2.
    pub(crate) verbose_level: u32,
    /// `default` or `ISO8601`; ours is both.
    pub(crate) format: String,
}

/// A new value of a log setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogValue {
    /// A switch.
    Bool(bool),
    /// A level.
    Number(u32),
    /// A name.
    Text(String),
}

/// The values of trace settings by name.
pub(crate) type TraceValues = BTreeMap<String, Vec<String>>;

#[derive(Debug, Default)]
struct Trace {
    all: TraceValues,
    by_model: BTreeMap<String, TraceValues>,
}

impl Settings {
    /// The settings of a server that has just begun.
    pub(crate) fn new(log_control: Box<dyn LogControl>) -> Self {
        let log = Log {
            info: true,
            warning: true,
            error: true,
            verbose_level: 0,
            format: "default".to_owned(),
        };
        Self { log_control, log: Mutex::new(log), trace: Mutex::default() }
    }

    /// What is logged.
    pub(crate) fn log(&self) -> Log {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is logged: all of it, or nothing if one value is wrong.
    pub(crate) fn change_log(
        &self,
        values: impl Iterator<Item = (String, LogValue)>,
    ) -> Result<Log, InferError> {
        let mut current = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let mut log = current.clone();
        for (key, value) in values {
            match (key.as_str(), value) {
                ("log_info", LogValue::Bool(on)) => log.info = on,
                ("log_warning", LogValue::Bool(on)) => log.warning = on,
                ("log_error", LogValue::Bool(on)) => log.error = on,
                ("log_verbose_level", LogValue::Number(level)) => log.verbose_level = level,
                ("log_format", LogValue::Text(format))
                    if format == "default" || format == "ISO8601" =>
                {
                    log.format = format;
                }
                ("log_file", _) => return Err(no_file("log_file")),
                (
                    "log_info" | "log_warning" | "log_error" | "log_verbose_level" | "log_format",
                    value,
                ) => return Err(wrong("log", &key, &value)),
                _ => return Err(InferError::Invalid(format!("unknown log setting '{key}'"))),
            }
        }
        if log != *current {
            self.log_control.set_level(level(&log)).map_err(InferError::Internal)?;
            *current = log;
        }
        Ok(current.clone())
    }

    /// The trace settings of a model; those for all models, if `model` is empty.
    pub(crate) fn trace(&self, model: &str) -> TraceValues {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).values(model)
    }

    /// Changes trace settings: all of them, or none if one value is wrong. A setting without a
    /// value goes back to where it was at the start; for a model, to that for all models.
    pub(crate) fn change_trace(
        &self,
        model: &str,
        changes: impl Iterator<Item = (String, Vec<String>)>,
    ) -> Result<TraceValues, InferError> {
        let changes: Vec<_> = changes.collect();
        for (key, values) in &changes {
            check_trace(key, values)?;
        }
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let own = if model.is_empty() {
            &mut trace.all
        } else {
            trace.by_model.entry(model.to_owned()).or_default()
        };
        for (key, values) in changes {
            if values.is_empty() {
                own.remove(&key);
            } else {
                own.insert(key, values);
            }
        }
        Ok(trace.values(model))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("log", &self.log).field("trace", &self.trace).finish()
    }
}

impl Trace {
    fn values(&self, model: &str) -> TraceValues {
        let defaults = [
            ("log_frequency", "0"),
            ("trace_count", "-1"),
            ("trace_file", ""),
            ("trace_level", "OFF"),
            ("trace_mode", "triton"),
            ("trace_rate", "1000"),
        ];
        let mut values: TraceValues =
            defaults.map(|(key, value)| (key.to_owned(), vec![value.to_owned()])).into();
        for own in [Some(&self.all), self.by_model.get(model)].into_iter().flatten() {
            values.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        values
    }
}

fn check_trace(key: &str, values: &[String]) -> Result<(), InferError> {
    let fine = match key {
        "trace_level" => {
            let known = |level: &String| matches!(level.as_str(), "TIMESTAMPS" | "TENSORS");
            values == ["OFF"] || values.iter().all(known)
        }
        "trace_rate" | "log_frequency" => {
            matches!(values, []) || matches!(values, [value] if value.parse::<u32>().is_ok())
        }
        "trace_count" => {
            let at_least = |value: &String| value.parse::<i32>().is_ok_and(|count| count >= -1);
            matches!(values, []) || matches!(values, [value] if at_least(value))
        }
        "trace_file" => return Err(no_file("trace_file")),
        _ => return Err(InferError::Invalid(format!("unknown trace setting '{key}'"))),
    };
    if fine { Ok(()) } else { Err(wrong("trace", key, &values)) }
}

fn wrong(kind: &str, key: &str, value: &dyn fmt::Debug) -> InferError {
    InferError::Invalid(format!("{kind} setting '{key}' cannot be {value:?}"))
}

fn no_file(key: &str) -> InferError {
    InferError::Unsupported(format!("'{key}' cannot be changed over the network"))
}

fn level(log: &Log) -> LevelFilter {
    match log {
        Log { verbose_level: 2.., .. } => LevelFilter::TRACE,
        Log { verbose_level: 1, .. } => LevelFilter::DEBUG,
        Log { info: true, .. } => LevelFilter::INFO,
        Log { warning: true, .. } => LevelFilter::WARN,
        Log { error: true, .. } => LevelFilter::ERROR,
        _ => LevelFilter::OFF,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Levels(Arc<Mutex<Vec<LevelFilter>>>);

    impl LogControl for Levels {
        fn set_level(&self, level: LevelFilter) -> Result<(), String> {
            self.0.lock().unwrap().push(level);
            Ok(())
        }
    }

    fn log(settings: &Settings, key: &str, value: LogValue) -> Result<Log, InferError> {
        settings.change_log([(key.to_owned(), value)].into_iter())
    }

    fn trace(
        settings: &Settings,
        model: &str,
        key: &str,
        values: &[&str],
    ) -> Result<TraceValues, InferError> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        settings.change_trace(model, [(key.to_owned(), values)].into_iter())
    }

    #[test]
    fn log_settings_choose_the_level() {
        let levels = Levels::default();
        let settings = Settings::new(Box::new(levels.clone()));
        log(&settings, "log_verbose_level", LogValue::Number(1)).unwrap();
        log(&settings, "log_verbose_level", LogValue::Number(0)).unwrap();
        log(&settings, "log_info", LogValue::Bool(false)).unwrap();
        log(&settings, "log_info", LogValue::Bool(false)).unwrap();
        let expected = [LevelFilter::DEBUG, LevelFilter::INFO, LevelFilter::WARN];
        assert_eq!(*levels.0.lock().unwrap(), expected);
        assert!(!settings.log().info);
    }

    #[test]
    fn wrong_settings_are_named() {
        let settings = Settings::new(Box::new(Levels::default()));
        let error = log(&settings, "log_info", LogValue::Number(1)).unwrap_err();
        assert!(error.to_string().contains("'log_info'"), "{error}");
        assert!(log(&settings, "log_inof", LogValue::Bool(true)).is_err());
        assert!(matches!(
            log(&settings, "log_file", LogValue::Text("x".to_owned())),
            Err(InferError::Unsupported(_))
        ));
        assert!(trace(&settings, "", "trace_rate", &["often"]).is_err());
        assert!(trace(&settings, "", "trace_level", &["OFF", "TENSORS"]).is_err());
        assert!(trace(&settings, "", "trace_file", &["x"]).is_err());
        assert!(trace(&settings, "", "trace_speed", &["1"]).is_err());
    }

    #[test]
    fn a_model_has_the_settings_of_all_until_it_has_its_own() {
        let settings = Settings::new(Box::new(Levels::default()));
        trace(&settings, "", "trace_rate", &["5"]).unwrap();
        assert_eq!(settings.trace("m")["trace_rate"], ["5"]);
        trace(&settings, "m", "trace_rate", &["7"]).unwrap();
        assert_eq!(settings.trace("m")["trace_rate"], ["7"]);
        assert_eq!(settings.trace("")["trace_rate"], ["5"]);
        trace(&settings, "m", "trace_rate", &[]).unwrap();
        assert_eq!(settings.trace("m")["trace_rate"], ["5"]);
        trace(&settings, "", "trace_rate", &[]).unwrap();
        assert_eq!(settings.trace("")["trace_rate"], ["1000"]);
    }
}
