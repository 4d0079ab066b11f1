//! What a model takes and gives: asked of the server.

use std::time::Duration;

use fermata_engine::{DataType, TensorSpec};
use fermata_files::InputError;
use fermata_protocol::proto;
use serde::Deserialize;

use crate::client::{CallError, Protocol, Target, grpc, http};

/// How long a server may take to say what it has.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct RawModel {
    #[serde(default)]
    inputs: Vec<RawTensor>,
    #[serde(default)]
    outputs: Vec<RawTensor>,
}

/// The tensors of a model; all axes, with the batch.
#[derive(Clone, Debug)]
pub(super) struct Tensors {
    pub(super) inputs: Vec<TensorSpec>,
    pub(super) outputs: Vec<TensorSpec>,
}

#[derive(Deserialize)]
struct RawTensor {
    name: String,
    datatype: String,
    shape: Vec<i64>,
}

/// What a model takes and gives.
pub(super) async fn tensors(target: &Target, model: &str) -> Result<Tensors, InputError> {
    let refuse = |name, reason| InputError::Argument { name, reason };
    let RawModel { inputs, outputs } = ask(target, model).await.map_err(|error| match error {
        CallError::Refused { ref message, .. } => refuse(
            "MODEL",
            format!(
                "'{model}' is not served by {target}: {message} (`fermata models` lists what is)"
            ),
        ),
        CallError::Unreachable(_) => refuse("URL", error.at(target)),
    })?;
    if inputs.is_empty() {
        return Err(refuse("MODEL", format!("{target} names no inputs of '{model}'")));
    }
    let spec = |tensor: RawTensor| match DataType::from_name(&tensor.datatype) {
        Some(datatype) => Ok(TensorSpec { name: tensor.name, datatype, shape: tensor.shape }),
        None => {
            let RawTensor { name, datatype, .. } = tensor;
            Err(refuse(
                "MODEL",
                format!("'{name}' of '{model}' is of an unknown datatype '{datatype}'"),
            ))
        }
    };
    Ok(Tensors {
        inputs: inputs.into_iter().map(spec).collect::<Result<_, _>>()?,
        outputs: outputs.into_iter().map(spec).collect::<Result<_, _>>()?,
    })
}

async fn ask(target: &Target, model: &str) -> Result<RawModel, CallError> {
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
            Ok(RawModel {
                inputs: response.inputs.into_iter().map(tensor).collect(),
                outputs: response.outputs.into_iter().map(tensor).collect(),
            })
        }
        Protocol::Http => {
            let path = format!("/v2/models/{}", http::escape(model));
            let body = http::call(target, "GET", &path, "", PATIENCE).await?;
            serde_json::from_slice(&body).map_err(|error| {
                CallError::Unreachable(format!("it does not speak the protocol: {error}"))
            })
        }
    }
}
