//! The log: to standard error, as text or JSON, at a level that clients may change.

use std::io::{self, IsTerminal};

use fermata_files::InputError;
use fermata_server::frontend::LogControl;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// Changes what is logged while the server runs.
pub(super) struct Handle(reload::Handle<EnvFilter, Registry>);

/// Begins to log.
pub(super) fn start(level: &str, json: bool) -> anyhow::Result<Handle> {
    let filter: EnvFilter = level.parse().map_err(|error| InputError::Argument {
        name: "--log",
        reason: format!("'{level}' is not a level: {error}"),
    })?;
    let (filter, handle) = reload::Layer::new(filter);
    let log = Registry::default().with(filter);
    let started = if json {
        log.with(fmt::layer().json().flatten_event(true).with_writer(io::stderr)).try_init()
    } else {
        let colours = io::stderr().is_terminal();
        log.with(fmt::layer().with_ansi(colours).with_target(false).with_writer(io::stderr))
            .try_init()
    };
    started.map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))?;
    Ok(Handle(handle))
}

impl LogControl for Handle {
    fn set_level(&self, level: LevelFilter) -> Result<(), String> {
        self.0.reload(EnvFilter::default().add_directive(level.into())).map_err(|e| e.to_string())
    }
}
