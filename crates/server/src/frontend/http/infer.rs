//! Inference over HTTP, from headers to headers.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;

use super::body::{self, Encoding, Parts};
use super::refusal::Refusal;
use super::request::Request;
use crate::frontend::check::{self, Delivery, Model, Output};
use crate::frontend::{Frontend, deadline, json};
use crate::inference::{Call, InferError};
use crate::kinds::{self, Application};
use crate::served::Served;

/// The header, both ways, that says how much of a body is JSON where binary tensors follow.
static JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// Tensors from here on are sent from where they are; shorter ones are cheaper to copy.
const LARGE: usize = 4 << 10;

/// Responses below this are not compressed: they fit a packet anyway.
const WORTH_COMPRESSING: usize = 1 << 10;

/// Answers one inference request.
pub(crate) async fn infer(
    frontend: &Frontend,
    name: &str,
    version: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let arrival = Instant::now();
    let body = body::read(headers, body, frontend.limits.request_bytes).await?;
    let model = frontend.service.model(name, version)?;
    let checked = Model::from(&*model);
    let request = Request::parse(checked, &frontend.regions, &body, json_length(headers)?)?;
    // Inputs keep the parts of the body that they need.
    drop(body);
    let timeout = deadline::sooner(request.timeout, header_timeout(headers)?);
    let Request { id, inputs, rows, wanted, application, .. } = request;
    let application = application.or(header_application(checked, headers)?);
    let call = Call { inputs, rows, arrival, timeout, patience: None, application };
    let answer = model.infer(call).await?;
    let outputs = check::outputs(checked, wanted, answer)?;
    respond(&model, &id, outputs, Encoding::of_response(headers)).await
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, InferError> {
    let Some(value) = headers.get(&JSON_LENGTH) else { return Ok(None) };
    match value.to_str().ok().and_then(|value| value.trim().parse().ok()) {
        Some(0) => Err(InferError::Unsupported(
            "Inference-Header-Content-Length is 0: requests without JSON are not supported"
                .to_owned(),
        )),
        Some(length) => Ok(Some(length)),
        None => Err(InferError::Invalid(format!(
            "Inference-Header-Content-Length is '{}', expected a number of bytes",
            value.as_bytes().escape_ascii()
        ))),
    }
}

fn header_timeout(headers: &HeaderMap) -> Result<Option<Duration>, InferError> {
    let value = headers.get(deadline::HEADER);
    value
        .map(|value| deadline::from_header(value.as_bytes()))
        .transpose()
        .map_err(InferError::Invalid)
}

fn header_application(
    model: Model<'_>,
    headers: &HeaderMap,
) -> Result<Option<Application>, InferError> {
    let value = headers.get(kinds::HEADER);
    value.map(|value| check::header_application(model, value.as_bytes())).transpose()
}

async fn respond(
    model: &Served,
    id: &str,
    outputs: Vec<Output<'_>>,
    encoding: Option<Encoding>,
) -> Result<Response, Refusal> {
    let Written { mut parts, json_length } = write(model, id, outputs)?;
    let mut headers = HeaderMap::with_capacity(4);
    match json_length {
        None => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Some(length) => {
            headers.insert(JSON_LENGTH.clone(), HeaderValue::from(length));
            headers
                .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        }
    }
    let length: usize = parts.iter().map(Bytes::len).sum();
    if let Some(encoding) = encoding.filter(|_| length >= WORTH_COMPRESSING) {
        parts = vec![body::compress(parts, encoding).await?];
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding.name()));
    }
    let body = match <[Bytes; 1]>::try_from(parts) {
        Ok([part]) => Body::from(part),
        Err(parts) => Body::new(Parts::new(parts)),
    };
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    Ok(response)
}

/// The body of a response.
#[derive(Debug)]
struct Written {
    parts: Vec<Bytes>,
    /// How much of it is JSON, if other bytes follow.
    json_length: Option<usize>,
}

fn write(model: &Served, id: &str, outputs: Vec<Output<'_>>) -> Result<Written, InferError> {
    let mut out = Vec::with_capacity(capacity(&outputs));
    out.push(b'{');
    if !id.is_empty() {
        out.extend_from_slice(b"\"id\":");
        json::value_into(&mut out, id);
        out.push(b',');
    }
    out.extend_from_slice(b"\"model_name\":");
    json::value_into(&mut out, &model.name);
    out.extend_from_slice(b",\"model_version\":");
    json::value_into(&mut out, &model.version);
    out.extend_from_slice(b",\"outputs\":[");
    for (index, output) in outputs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_output(model, output, &mut out)?;
    }
    out.extend_from_slice(b"]}");
    let json_length = out.len();
    let mut parts = Vec::new();
    let mut any_binary = false;
    for Output { tensor, delivery, .. } in outputs {
        if !matches!(delivery, Delivery::Binary) {
            continue;
        }
        any_binary = true;
        if tensor.data.len() < LARGE {
            out.extend_from_slice(&tensor.data);
        } else {
            parts.push(Bytes::from(std::mem::take(&mut out)));
            parts.push(tensor.data);
        }
    }
    if !out.is_empty() {
        parts.push(Bytes::from(out));
    }
    Ok(Written { parts, json_length: any_binary.then_some(json_length) })
}

fn write_output(model: &Served, output: &Output<'_>, out: &mut Vec<u8>) -> Result<(), InferError> {
    let Output { name, tensor, delivery } = output;
    out.extend_from_slice(b"{\"name\":");
    json::value_into(out, name);
    out.extend_from_slice(b",\"datatype\":\"");
    out.extend_from_slice(tensor.datatype.name().as_bytes());
    out.extend_from_slice(b"\",\"shape\":");
    json::value_into(out, &tensor.shape);
    match delivery {
        Delivery::Binary => {
            out.extend_from_slice(b",\"parameters\":{\"binary_data_size\":");
            json::value_into(out, &tensor.data.len());
            out.push(b'}');
        }
        Delivery::Json => {
            out.extend_from_slice(b",\"data\":");
            json::write(tensor, out)
                .map_err(|reason| check::output_problem(model.into(), name, &reason))?;
        }
        Delivery::Shared(slot) => {
            out.extend_from_slice(b",\"parameters\":{\"shared_memory_region\":");
            json::value_into(out, &slot.name);
            out.extend_from_slice(b",\"shared_memory_offset\":");
            json::value_into(out, &slot.offset);
            out.extend_from_slice(b",\"shared_memory_byte_size\":");
            json::value_into(out, &tensor.data.len());
            out.push(b'}');
        }
    }
    out.push(b'}');
    Ok(())
}

/// About as many bytes as the first part will have.
fn capacity(outputs: &[Output<'_>]) -> usize {
    const HEAD: usize = 128;
    let size = |output: &Output<'_>| match output.delivery {
        Delivery::Binary if output.tensor.data.len() < LARGE => HEAD + output.tensor.data.len(),
        Delivery::Json => HEAD + output.tensor.data.len() * 4,
        Delivery::Binary | Delivery::Shared(_) => HEAD,
    };
    HEAD + outputs.iter().map(size).sum::<usize>()
}
