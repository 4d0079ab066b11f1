//! What a model takes: asked of the server.

use std::time::Duration;

use fermata_engine::{DataType, TensorSpec};
use fermata_server::proto;
use serde::Deserialize;

use crate::client::{CallError, Protocol, Target, grpc, http};
use crate::input::InputError;

/// How long a server may take to say what it has.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct RawModel {
    #[serde(default)]
    inputs: Vec<RawTensor>,
}

#[derive(Deserialize)]
struct RawTensor {
    name: String,
    datatype: String,
    shape: Vec<i64>,
}

/// The inputs of a model; all axes, with the batch.
pub(super) async fn inputs(target: &Target, model: &str) -> Result<Vec<TensorSpec>, InputError> {
    let refuse = |name, reason| InputError::Argument { name, reason };
    let tensors = ask(target, model).await.map_err(|error| match error {
        CallError::Refused { ref message, .. } => refuse(
            "MODEL",
            format!(
                "'{model}' is not served by {target}: {message} (`fermata models` lists what is)"
            ),
        ),
        CallError::Unreachable(_) => refuse("URL", error.at(target)),
    })?;
    if tensors.is_empty() {
        return Err(refuse("MODEL", format!("{target} names no inputs of '{model}'")));
    }
    let spec = |tensor: RawTensor| match DataType::from_name(&tensor.datatype) {
        Some(datatype) => Ok(TensorSpec { name: tensor.name, datatype, shape: tensor.shape }),
        None => {
            let RawTensor { name, datatype, .. } = tensor;
            Err(refuse(
                "MODEL",
                format!("input '{name}' of '{model}' is of an unknown datatype '{datatype}'"),
            ))
        }
    };
    tensors.into_iter().map(spec).collect()
}

async fn ask(target: &Target, model: &str) -> Result<Vec<RawTensor>, CallError> {
    match target.protocol {
        Protocol::Grpc => {
            let request =
                proto::ModelMetadataRequest { name: model.to_owned(), version: String::new() };
            let call =
                grpc::call::<proto::ModelMetadataResponse>(target, "ModelMetadata", &request);
            let response = tokio::time::timeout(PATIENCE, call).await.map_err(|_| {
                CallError::Unreachable(format!("no answer within {} s", PATIENCE.as_secs()))
            })??;
            let tensor = |tensor: proto::model_metadata_response::TensorMetadata| RawTensor {
                name: tensor.name,
                datatype: tensor.datatype,
                shape: tensor.shape,
            };
            Ok(response.inputs.into_iter().map(tensor).collect())
        }
        Protocol::Http => {
            let path = format!("/v2/models/{}", http::escape(model));
            let body = http::call(target, "GET", &path, "", PATIENCE).await?;
            let model: RawModel = serde_json::from_slice(&body).map_err(|error| {
                CallError::Unreachable(format!("it does not speak the protocol: {error}"))
            })?;
            Ok(model.inputs)
        }
    }
}
