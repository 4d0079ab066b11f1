//! HTTP/REST.

mod admin;
mod body;
mod gpus;
mod infer;
mod refusal;
mod request;
mod shortcut;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Router, ServiceExt};
use fermata_protocol::proto;
use prost::Message;
use serde::Deserialize;
use tokio::net::TcpListener;

use self::refusal::{Refusal, error_response};
use self::shortcut::Shortcut;
use super::{Frontend, describe};
use crate::inference::InferError;

/// All routes of the protocol.
pub fn router(frontend: Arc<Frontend>) -> Router {
    let model = Router::new()
        .route("/", get(model_metadata))
        .route("/ready", get(model_ready))
        .route("/config", get(model_config))
        .route("/stats", get(model_statistics))
        .route("/infer", post(model_infer))
        .route("/trace/setting", get(admin::model_trace).post(admin::change_model_trace));
    let repository = Router::new()
        .route("/index", post(admin::index))
        .route("/models/{model}/load", post(admin::load))
        .route("/models/{model}/unload", post(admin::unload));
    Router::new()
        .route("/v2", get(server_metadata))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/stats", get(all_statistics))
        .nest("/v2/models/{model}", model.clone())
        .nest("/v2/models/{model}/versions/{version}", model)
        .nest("/v2/repository", repository.clone())
        .nest("/v2/repository/{repository}", repository)
        .merge(admin::shared_memory())
        .route("/v2/fermata/gpus", get(gpus::list))
        .route("/v2/fermata/gpus/{gpu}/shares", post(gpus::recut))
        .route("/v2/trace/setting", get(admin::trace).post(admin::change_trace))
        .route("/v2/logging", get(admin::log).post(admin::change_log))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .with_state(frontend)
}

/// Serves the protocol, and `others` beside it, until `shutdown` is ready; then takes no more connections, and
/// returns when the requests that were begun have been answered.
pub async fn serve(
    listener: TcpListener,
    frontend: Arc<Frontend>,
    others: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection waits before it sends");
        }
    });
    let router = router(frontend.clone()).merge(others);
    let service = Shortcut { frontend, router }.into_make_service();
    if let Err(error) = axum::serve(listener, service).with_graceful_shutdown(shutdown).await {
        tracing::error!(%error, "HTTP is no longer served");
    }
}

/// What the routes below share.
type Shared = State<Arc<Frontend>>;

/// The result of a route.
type Reply = Result<Response, Refusal>;

/// The model of a path, and its version, where the path has one.
#[derive(Deserialize)]
struct ModelPath {
    model: String,
    #[serde(default)]
    version: String,
}

async fn server_metadata(State(frontend): Shared) -> Response {
    message(&frontend.server_metadata(), "inference.ServerMetadataResponse")
}

async fn live() -> StatusCode {
    StatusCode::OK
}

async fn ready(State(frontend): Shared) -> Response {
    if frontend.service.is_ready() {
        return StatusCode::OK.into_response();
    }
    Refusal::Infer(InferError::Unavailable("the server is not ready".to_owned())).into_response()
}

async fn model_metadata(State(frontend): Shared, Path(path): Path<ModelPath>) -> Reply {
    let metadata = frontend.model_metadata(&path.model, &path.version)?;
    Ok(message(&metadata, "inference.ModelMetadataResponse"))
}

async fn model_ready(State(frontend): Shared, Path(path): Path<ModelPath>) -> Reply {
    frontend.service.model(&path.model, &path.version)?;
    Ok(StatusCode::OK.into_response())
}

async fn model_config(State(frontend): Shared, Path(path): Path<ModelPath>) -> Reply {
    let model = frontend.service.model(&path.model, &path.version)?;
    Ok(message(&model.config, "inference.ModelConfig"))
}

async fn model_statistics(State(frontend): Shared, Path(path): Path<ModelPath>) -> Reply {
    statistics(&frontend, &path.model, &path.version)
}

async fn all_statistics(State(frontend): Shared) -> Reply {
    statistics(&frontend, "", "")
}

fn statistics(frontend: &Frontend, name: &str, version: &str) -> Reply {
    let model_stats = frontend.service.statistics(name, version)?;
    let response = proto::ModelStatisticsResponse { model_stats };
    Ok(message(&response, "inference.ModelStatisticsResponse"))
}

async fn model_infer(
    State(frontend): Shared,
    Path(path): Path<ModelPath>,
    request: Request,
) -> Reply {
    let (parts, body) = request.into_parts();
    infer::infer(&frontend, &path.model, &path.version, &parts.headers, body).await
}

async fn not_found(method: Method, uri: Uri) -> Response {
    let text = format!("there is no {method} {}", uri.path());
    error_response(StatusCode::NOT_FOUND, &text, None).map(Body::from)
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    let text = format!("method {method} is not allowed for {}", uri.path());
    error_response(StatusCode::METHOD_NOT_ALLOWED, &text, None).map(Body::from)
}

fn message<M: Message>(message: &M, name: &str) -> Response {
    json_response(describe::to_json(message, name))
}

fn json_response(json: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(json));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
