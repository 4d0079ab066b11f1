//! Repository, shared memory and settings over HTTP: seldom asked, so plainly written.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use fermata_repository::LoadOverride;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ModelPath, Reply, Shared, body, json_response};
use crate::frontend::Frontend;
use crate::frontend::describe::{LoadParameter, load_parameter};
use crate::frontend::settings::{Log, LogValue, TraceValues};
use crate::frontend::shared_memory::no_cuda;
use crate::inference::InferError;

/// The routes of system and CUDA shared memory.
pub(super) fn shared_memory() -> Router<Arc<Frontend>> {
    let system = "/v2/systemsharedmemory";
    let cuda = "/v2/cudasharedmemory";
    Router::new()
        .route(&format!("{system}/status"), get(system_status))
        .route(&format!("{system}/region/{{region}}/status"), get(system_status))
        .route(&format!("{system}/region/{{region}}/register"), post(system_register))
        .route(&format!("{system}/unregister"), post(system_unregister))
        .route(&format!("{system}/region/{{region}}/unregister"), post(system_unregister))
        .route(&format!("{cuda}/status"), get(cuda_status))
        .route(&format!("{cuda}/region/{{region}}/status"), get(cuda_status))
        .route(&format!("{cuda}/region/{{region}}/register"), post(cuda_register))
        .route(&format!("{cuda}/unregister"), post(cuda_unregister))
        .route(&format!("{cuda}/region/{{region}}/unregister"), post(cuda_unregister))
}

pub(super) async fn index(State(frontend): Shared, request: Request) -> Reply {
    #[derive(Default, Deserialize)]
    struct Body {
        #[serde(default)]
        ready: bool,
    }
    let Body { ready } = read(&frontend, request).await?;
    let entries: Vec<Value> = frontend
        .repository_index(ready)
        .into_iter()
        .map(|entry| {
            // Triton leaves out what is empty.
            let fields = [
                ("name", entry.name),
                ("version", entry.version),
                ("state", entry.state),
                ("reason", entry.reason),
            ];
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(key, value)| (key.to_owned(), Value::String(value)))
                .collect()
        })
        .collect();
    Ok(value(&Value::Array(entries)))
}

pub(super) async fn load(
    State(frontend): Shared,
    Path(path): Path<ModelPath>,
    request: Request,
) -> Reply {
    #[derive(Default, Deserialize)]
    struct Body {
        #[serde(default)]
        parameters: BTreeMap<String, Value>,
    }
    let Body { parameters } = read(&frontend, request).await?;
    let mut files = LoadOverride::default();
    for (key, value) in parameters {
        let value = match value {
            Value::String(text) if key.starts_with("file:") => {
                let content = BASE64_STANDARD.decode(text).map_err(|error| {
                    InferError::Invalid(format!("load parameter '{key}' is not base64: {error}"))
                })?;
                LoadParameter::File(Bytes::from(content))
            }
            Value::String(text) => LoadParameter::Text(text),
            _ => LoadParameter::Other,
        };
        load_parameter(&mut files, &key, value)?;
    }
    frontend.service.load(&path.model, files).await?;
    Ok(StatusCode::OK.into_response())
}

pub(super) async fn unload(
    State(frontend): Shared,
    Path(path): Path<ModelPath>,
    request: Request,
) -> Reply {
    // The only parameter, unload_dependents, is for ensembles, which are not served.
    let _: Value = read(&frontend, request).await?;
    frontend.service.unload(&path.model).await?;
    Ok(StatusCode::OK.into_response())
}

pub(super) async fn trace(State(frontend): Shared) -> Response {
    trace_response(frontend.settings.trace(""))
}

pub(super) async fn change_trace(State(frontend): Shared, request: Request) -> Reply {
    let changes = trace_changes(read(&frontend, request).await?)?;
    Ok(trace_response(frontend.settings.change_trace("", changes)?))
}

pub(super) async fn model_trace(State(frontend): Shared, Path(path): Path<ModelPath>) -> Reply {
    frontend.service.model(&path.model, "")?;
    Ok(trace_response(frontend.settings.trace(&path.model)))
}

pub(super) async fn change_model_trace(
    State(frontend): Shared,
    Path(path): Path<ModelPath>,
    request: Request,
) -> Reply {
    frontend.service.model(&path.model, "")?;
    let changes = trace_changes(read(&frontend, request).await?)?;
    Ok(trace_response(frontend.settings.change_trace(&path.model, changes)?))
}

pub(super) async fn log(State(frontend): Shared) -> Response {
    log_response(frontend.settings.log())
}

pub(super) async fn change_log(State(frontend): Shared, request: Request) -> Reply {
    let changes: BTreeMap<String, Value> = read(&frontend, request).await?;
    let mut values = Vec::new();
    for (key, value) in changes {
        let value = match value {
            Value::Null => continue,
            Value::Bool(on) => LogValue::Bool(on),
            Value::String(text) => LogValue::Text(text),
            Value::Number(number) => {
                let level = number.as_u64().and_then(|number| u32::try_from(number).ok());
                LogValue::Number(level.ok_or_else(|| {
                    InferError::Invalid(format!("log setting '{key}' cannot be {number}"))
                })?)
            }
            value => return Err(wrong_setting("log", &key, &value).into()),
        };
        values.push((key, value));
    }
    Ok(log_response(frontend.settings.change_log(values.into_iter())?))
}

/// The region of a path, where the path has one.
#[derive(Deserialize)]
struct RegionPath {
    #[serde(default)]
    region: String,
}

async fn system_status(State(frontend): Shared, Path(path): Path<RegionPath>) -> Reply {
    let regions = frontend.regions.status(&path.region).map_err(InferError::Unknown)?;
    let regions: Vec<Value> = regions
        .into_iter()
        .map(|(name, region)| {
            json!({
                "name": name,
                "key": region.key,
                "offset": region.offset,
                "byte_size": region.byte_size,
            })
        })
        .collect();
    Ok(value(&Value::Array(regions)))
}

async fn system_register(
    State(frontend): Shared,
    Path(path): Path<RegionPath>,
    request: Request,
) -> Reply {
    #[derive(Deserialize)]
    struct Body {
        key: String,
        #[serde(default)]
        offset: u64,
        byte_size: u64,
    }
    let body: Option<Body> = read(&frontend, request).await?;
    let Body { key, offset, byte_size } = body.ok_or_else(|| {
        InferError::Invalid(format!(
            "shared memory region '{}' needs a body with key and byte_size",
            path.region
        ))
    })?;
    let registered = frontend.regions.register(&path.region, &key, offset, byte_size);
    registered.map_err(InferError::Invalid)?;
    Ok(StatusCode::OK.into_response())
}

async fn system_unregister(State(frontend): Shared, Path(path): Path<RegionPath>) -> StatusCode {
    frontend.regions.unregister(&path.region);
    StatusCode::OK
}

async fn cuda_status(Path(path): Path<RegionPath>) -> Reply {
    if path.region.is_empty() {
        return Ok(value(&json!([])));
    }
    Err(InferError::Unknown(format!(
        "CUDA shared memory region '{}' is not registered",
        path.region
    ))
    .into())
}

async fn cuda_register(Path(path): Path<RegionPath>) -> Reply {
    Err(no_cuda(&path.region).into())
}

async fn cuda_unregister() -> StatusCode {
    StatusCode::OK
}

/// The JSON of a request; the default, if its body is empty.
pub(super) async fn read<T: DeserializeOwned + Default>(
    frontend: &Frontend,
    request: Request,
) -> Result<T, super::Refusal> {
    let (parts, body) = request.into_parts();
    let body = body::read(&parts.headers, body, frontend.limits.request_bytes).await?;
    if body.is_empty() {
        return Ok(T::default());
    }
    let mut reader = serde_json::Deserializer::from_slice(&body);
    let parsed = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| format!("at '{}': {}", error.path(), error.inner()));
    let parsed = parsed.and_then(|parsed| match reader.end() {
        Ok(()) => Ok(parsed),
        Err(error) => Err(error.to_string()),
    });
    let wrong = |error| InferError::Invalid(format!("the request's JSON cannot be read {error}"));
    Ok(parsed.map_err(wrong)?)
}

fn trace_changes(
    changes: BTreeMap<String, Value>,
) -> Result<impl Iterator<Item = (String, Vec<String>)>, InferError> {
    let mut out = Vec::new();
    for (key, value) in changes {
        let values = match &value {
            Value::Null => Some(Vec::new()),
            Value::String(text) => Some(vec![text.clone()]),
            Value::Number(number) => Some(vec![number.to_string()]),
            Value::Array(values) => {
                values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
            }
            Value::Bool(_) | Value::Object(_) => None,
        };
        let values = values.ok_or_else(|| wrong_setting("trace", &key, &value))?;
        out.push((key, values));
    }
    Ok(out.into_iter())
}

fn wrong_setting(kind: &str, key: &str, value: &Value) -> InferError {
    InferError::Invalid(format!("{kind} setting '{key}' cannot be {value}"))
}

fn trace_response(values: TraceValues) -> Response {
    let fields = values.into_iter().map(|(key, mut values)| {
        let value = match values.pop() {
            Some(one) if values.is_empty() && key != "trace_level" => Value::String(one),
            last => values.into_iter().chain(last).map(Value::String).collect(),
        };
        (key, value)
    });
    value(&Value::Object(fields.collect()))
}

fn log_response(log: Log) -> Response {
    value(&json!({
        "log_file": "",
        "log_info": log.info,
        "log_warning": log.warning,
        "log_error": log.error,
        "log_verbose_level": log.verbose_level,
        "log_format": log.format,
    }))
}

pub(super) fn value(value: &Value) -> Response {
    json_response(value.to_string().into_bytes())
}
