//! What the server says of itself and its models; protocol messages as the JSON that Triton writes for them.

use std::sync::LazyLock;

use fermata_engine::TensorSpec;
use fermata_protocol::proto;
use fermata_protocol::proto::model_metadata_response::TensorMetadata;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};

use super::{EXTENSIONS, Frontend, SERVER_NAME, SERVER_VERSION};
use crate::inference::InferError;
use crate::served::Served;
use crate::service::LoadOverride;

impl Frontend {
    /// The server's metadata.
    pub(crate) fn server_metadata(&self) -> proto::ServerMetadataResponse {
        proto::ServerMetadataResponse {
            name: SERVER_NAME.to_owned(),
            version: SERVER_VERSION.to_owned(),
            extensions: EXTENSIONS.map(str::to_owned).into(),
        }
    }

    /// A model's metadata, of one version or of all.
    pub(crate) fn model_metadata(
        &self,
        name: &str,
        version: &str,
    ) -> Result<proto::ModelMetadataResponse, InferError> {
        let model = self.service.model(name, version)?;
        let versions =
            if version.is_empty() { self.versions(&model) } else { vec![version.to_owned()] };
        let max_batch = model.signature.max_batch;
        let tensors = |specs: &[TensorSpec]| {
            specs.iter().map(|spec| tensor_metadata(spec, max_batch)).collect::<Vec<_>>()
        };
        Ok(proto::ModelMetadataResponse {
            name: model.name.clone(),
            versions,
            platform: platform(&model.config),
            inputs: tensors(&model.signature.inputs),
            outputs: tensors(&model.signature.outputs),
        })
    }

    /// The repository's models, only those that are ready if `ready`.
    pub(crate) fn repository_index(
        &self,
        ready: bool,
    ) -> Vec<proto::repository_index_response::ModelIndex> {
        let index = self.service.index().into_iter();
        index
            .filter(|entry| !ready || entry.state == READY)
            .map(|entry| proto::repository_index_response::ModelIndex {
                name: entry.name,
                version: entry.version,
                state: entry.state,
                reason: entry.reason,
            })
            .collect()
    }

    fn versions(&self, model: &Served) -> Vec<String> {
        let index = self.service.index().into_iter();
        let mut versions: Vec<String> = index
            .filter(|entry| entry.name == model.name && entry.state == READY)
            .map(|entry| entry.version)
            .collect();
        // The model was served a moment ago, whatever the index says by now.
        if versions.is_empty() {
            versions.push(model.version.clone());
        }
        versions
    }
}

/// A message as JSON: fields by their names in the protocol, all of them, whole numbers as numbers.
pub(crate) fn to_json<M: Message>(message: &M, name: &str) -> Vec<u8> {
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false)
        .skip_default_fields(false);
    let mut out = Vec::new();
    DynamicMessage::decode(
        DESCRIPTORS.get_message_by_name(name).expect("the name of a message of the protocol"),
        &message.encode_to_vec()[..],
    )
    .expect("a message that was encoded can be decoded")
    .serialize_with_options(&mut serde_json::Serializer::new(&mut out), &options)
    .expect("a message can be written to memory");
    out
}

/// Puts one parameter of a request to load a model where it belongs.
pub(crate) fn load_parameter(
    into: &mut LoadOverride,
    key: &str,
    value: LoadParameter,
) -> Result<(), InferError> {
    let wrong = |expected: &str| {
        Err(InferError::Invalid(format!("load parameter '{key}' must be {expected}")))
    };
    match (key.strip_prefix("file:"), value) {
        (Some(path), LoadParameter::File(content)) => {
            into.files.insert(path.to_owned(), content);
        }
        (Some(_), LoadParameter::Text(_) | LoadParameter::Other) => {
            return wrong("the bytes of a file");
        }
        (None, LoadParameter::Text(config)) if key == "config" => into.config = Some(config),
        (None, _) if key == "config" => return wrong("a JSON text"),
        (None, _) => {
            return Err(InferError::Invalid(format!(
                "unknown load parameter '{key}', expected 'config' or 'file:<path>'"
            )));
        }
    }
    Ok(())
}

/// The value of a parameter of a request to load a model.
pub(crate) enum LoadParameter {
    /// The content of a file.
    File(bytes::Bytes),
    /// Neither.
    Other,
    /// A text.
    Text(String),
}

/// The state of a version that is served.
const READY: &str = "READY";

static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(proto::DESCRIPTORS).expect("the build wrote the descriptors")
});

fn tensor_metadata(spec: &TensorSpec, max_batch: usize) -> TensorMetadata {
    let batch = (max_batch > 0).then_some(-1);
    TensorMetadata {
        name: spec.name.clone(),
        datatype: spec.datatype.name().to_owned(),
        shape: batch.into_iter().chain(spec.shape.iter().copied()).collect(),
    }
}

fn platform(config: &proto::ModelConfig) -> String {
    match (config.platform.as_str(), config.backend.as_str()) {
        ("" | "emulated", "emulated") => "fermata_emulated".to_owned(),
        ("", "onnxruntime") => "onnxruntime_onnx".to_owned(),
        ("", backend) => backend.to_owned(),
        (platform, _) => platform.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_as_triton_writes_them() {
        let response = proto::ModelStatisticsResponse {
            model_stats: vec![proto::ModelStatistics {
                name: "m".to_owned(),
                inference_count: 3,
                ..Default::default()
            }],
        };
        let json = to_json(&response, "inference.ModelStatisticsResponse");
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let model = &json["model_stats"][0];
        assert_eq!(model["inference_count"], 3);
        assert_eq!(model["last_inference"], 0);
        assert_eq!(model["batch_stats"], serde_json::json!([]));
    }

    #[test]
    fn configurations_have_names_for_their_datatypes() {
        let config = proto::ModelConfig {
            name: "m".to_owned(),
            max_batch_size: 8,
            input: vec![proto::ModelInput {
                name: "IN".to_owned(),
                data_type: proto::DataType::TypeFp32.into(),
                dims: vec![-1, 2],
                ..Default::default()
            }],
            ..Default::default()
        };
        let json: serde_json::Value =
            serde_json::from_slice(&to_json(&config, "inference.ModelConfig")).unwrap();
        assert_eq!(json["max_batch_size"], 8);
        assert_eq!(json["input"][0]["data_type"], "TYPE_FP32");
        assert_eq!(json["input"][0]["dims"], serde_json::json!([-1, 2]));
    }

    #[test]
    fn load_parameters_find_their_place() {
        let mut files = LoadOverride::default();
        let content = bytes::Bytes::from_static(b"onnx");
        load_parameter(&mut files, "file:1/model.onnx", LoadParameter::File(content)).unwrap();
        load_parameter(&mut files, "config", LoadParameter::Text("{}".to_owned())).unwrap();
        assert_eq!(files.config.as_deref(), Some("{}"));
        assert!(files.files.contains_key("1/model.onnx"));
        for (key, value) in [
            ("file:a", LoadParameter::Text(String::new())),
            ("config", LoadParameter::Other),
            ("confg", LoadParameter::Text(String::new())),
        ] {
            let error = load_parameter(&mut files, key, value).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}
