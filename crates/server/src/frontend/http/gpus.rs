//! The GPUs over HTTP: what shares they have, and other ones for them.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use super::admin::{read, value};
use super::{Reply, Shared};
use crate::gpu::RecutError;
use crate::inference::InferError;

/// A list that is longer is refused before anybody looks at it: no GPU has so many multiprocessors.
const SHARES_MAX: usize = 1024;

/// `GET /v2/fermata/gpus`.
pub(super) async fn list(State(frontend): Shared) -> Response {
    let gpus = frontend.service.gpus().map(|gpus| gpus.report()).unwrap_or_default();
    value(&json!({ "gpus": gpus }))
}

/// `POST /v2/fermata/gpus/N/shares`.
pub(super) async fn recut(
    State(frontend): Shared,
    Path(gpu): Path<String>,
    request: Request,
) -> Reply {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        shares: Vec<u32>,
    }
    let number = gpu.parse().map_err(|_| {
        InferError::Unknown(format!("'{}' is not the number of a GPU", gpu.escape_default()))
    })?;
    let body: Option<Body> = read(&frontend, request).await?;
    let Body { shares } = body.ok_or_else(|| {
        InferError::Invalid("a GPU needs a body such as {\"shares\": [40, 60]}".to_owned())
    })?;
    if shares.len() > SHARES_MAX {
        let reason = format!("{} shares are too many for any GPU", shares.len());
        return Err(InferError::Invalid(reason).into());
    }
    let recut = frontend.service.recut(number, shares).await.map_err(|error| {
        let reason = error.to_string();
        match error {
            RecutError::Unknown { .. } => InferError::Unknown(reason),
            RecutError::Refused(_) | RecutError::Slow { .. } => InferError::Invalid(reason),
            RecutError::Failed { .. } => InferError::Internal(reason),
        }
    })?;
    Ok(value(&json!({
        "gpu": recut.gpu,
        "shares": recut.percents,
        "multiprocessors": recut.multiprocessors,
        "took_ms": recut.took.as_secs_f64() * 1e3,
    })))
}
