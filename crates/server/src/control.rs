//! Which models are served, and who decides: the repository at the start, its changes, or clients.

use std::sync::Arc;
use std::time::Duration;

use fermata_repository::{LoadOverride, Survey, Watch};

use crate::service::Service;

/// Who decides which models are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// All that are there at the start.
    Start,
    /// All that are there, looked at again and again.
    Poll(Duration),
    /// These at the start (all, if one is `*`); then clients load and unload.
    Explicit(Vec<String>),
}

/// Loads what should be there at the start.
pub(crate) async fn load_first(service: &Arc<Service>, control: &Control) -> Survey {
    let survey = survey(service).unwrap_or_default();
    let names: Vec<String> = match control {
        Control::Explicit(names) if !names.iter().any(|name| name == "*") => names.clone(),
        _ => survey.keys().cloned().collect(),
    };
    for name in names {
        // The reason is logged, and kept for the index; the others are served.
        let _ = service.load(&name, LoadOverride::default()).await;
    }
    service.set_started();
    survey
}

/// Follows the changes of the repository, for ever.
pub(crate) async fn follow(service: Arc<Service>, period: Duration, loaded: Survey) {
    let mut watch = Watch::new(loaded);
    loop {
        tokio::time::sleep(period).await;
        // A repository that cannot be read for a while is not an empty one.
        let Some(survey) = survey(&service) else { continue };
        let changes = watch.poll(survey);
        for name in changes.removed {
            tracing::info!(model = name, "its folder is gone");
            // It may never have been ready.
            let _ = service.unload(&name).await;
            service.forget(&name);
        }
        for name in changes.added.into_iter().chain(changes.changed) {
            let _ = service.load(&name, LoadOverride::default()).await;
        }
    }
}

fn survey(service: &Service) -> Option<Survey> {
    let survey = service.repository().survey();
    survey.inspect_err(|error| tracing::error!(%error, "the repository cannot be read")).ok()
}
