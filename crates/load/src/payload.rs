//! The requests, ready to be written: made once, sent again and again.

use bytes::{BufMut, Bytes, BytesMut};
use fermata_engine::TensorSpec;
use fermata_protocol::proto;
use fermata_protocol::proto::infer_parameter::ParameterChoice;
use serde_json::json;

use super::draw::{Drawn, Input};
use super::metadata::Tensors;
use super::plan::ModelPlan;
use super::shared_memory::{Place, Places, Region};
use crate::client::grpc::Prepared;
use crate::client::{Protocol, Target, http};

/// All models' requests, each in several variants.
#[derive(Clone, Debug)]
pub(super) enum Requests {
    Grpc(Vec<Vec<Prepared>>),
    Http(Vec<Vec<Bytes>>),
}

/// Writes the requests of models as they go over the wire.
pub(super) fn write(
    target: &Target,
    models: &[(ModelPlan, Tensors)],
    drawn: &[Drawn<'_>],
    region: Option<&Region>,
    send_timeout: bool,
) -> Requests {
    let request = |model: usize, variant: usize| Request {
        model: &models[model].0.name,
        inputs: &drawn[model].variants[variant],
        outputs: drawn[model].outputs,
        shared: region.map(|region| (region.name.as_str(), region.places(model, variant))),
        timeout_us: models[model].0.slo.filter(|_| send_timeout).map(|slo| slo.as_micros() as u64),
    };
    let variants = |model: usize| 0..drawn[model].variants.len();
    match target.protocol {
        Protocol::Grpc => {
            let write =
                |model| variants(model).map(|at| request(model, at).over_grpc(target)).collect();
            Requests::Grpc((0..models.len()).map(write).collect())
        }
        Protocol::Http => {
            let write =
                |model| variants(model).map(|at| request(model, at).over_http(target)).collect();
            Requests::Http((0..models.len()).map(write).collect())
        }
    }
}

/// One request, in whatever protocol.
struct Request<'a> {
    model: &'a str,
    inputs: &'a [Input<'a>],
    outputs: &'a [TensorSpec],
    /// Where its tensors are, if not in the request: in which region, and where there.
    shared: Option<(&'a str, &'a Places)>,
    timeout_us: Option<u64>,
}

impl Request<'_> {
    /// Outputs that are wanted in shared memory, with their places.
    fn shared_outputs(&self) -> impl Iterator<Item = (&str, &str, &Place)> {
        let shared = self.shared.into_iter();
        shared.flat_map(|(region, places)| {
            let named = self.outputs.iter().zip(&places.outputs);
            named.map(move |(spec, place)| (spec.name.as_str(), region, place))
        })
    }

    fn over_http(&self, target: &Target) -> Bytes {
        let of_place = |region: &str, place: &Place| {
            json!({
                "shared_memory_region": region,
                "shared_memory_offset": place.offset,
                "shared_memory_byte_size": place.bytes,
            })
        };
        let describe = |(at, Input { name, tensor }): (usize, &Input<'_>)| {
            let parameters = match self.shared {
                Some((region, places)) => of_place(region, &places.inputs[at]),
                None => json!({ "binary_data_size": tensor.data.len() }),
            };
            json!({
                "name": name,
                "shape": tensor.shape,
                "datatype": tensor.datatype.name(),
                "parameters": parameters,
            })
        };
        let mut parameters = json!({ "binary_data_output": true });
        if let Some(timeout) = self.timeout_us {
            parameters["timeout"] = json!(timeout);
        }
        let inputs: Vec<_> = self.inputs.iter().enumerate().map(describe).collect();
        let mut header = json!({ "inputs": inputs, "parameters": parameters });
        let outputs: Vec<_> = self
            .shared_outputs()
            .map(|(name, region, place)| {
                let parameters = of_place(region, place);
                json!({ "name": name, "parameters": parameters })
            })
            .collect();
        if !outputs.is_empty() {
            header["outputs"] = json!(outputs);
        }
        let header = header.to_string();
        let binary: usize = self.in_the_request().map(|data| data.len()).sum();
        let head = format!(
            "POST {}/v2/models/{}/infer HTTP/1.1\r\nHost: {}\r\nUser-Agent: fermata/{}\r\n\
             Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {}\r\n\
             Content-Length: {}\r\n\r\n",
            target.prefix,
            http::escape(self.model),
            target.authority,
            env!("CARGO_PKG_VERSION"),
            header.len(),
            header.len() + binary,
        );
        let mut bytes = BytesMut::with_capacity(head.len() + header.len() + binary);
        bytes.put_slice(head.as_bytes());
        bytes.put_slice(header.as_bytes());
        self.in_the_request().for_each(|data| bytes.put_slice(data));
        bytes.freeze()
    }

    fn over_grpc(&self, target: &Target) -> Prepared {
        use proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
        let describe = |(at, Input { name, tensor }): (usize, &Input<'_>)| {
            let place = self.shared.map(|(region, places)| of_place(region, &places.inputs[at]));
            InferInputTensor {
                name: (*name).to_owned(),
                datatype: tensor.datatype.name().to_owned(),
                shape: tensor.shape.clone(),
                parameters: place.into_iter().flatten().collect(),
                ..InferInputTensor::default()
            }
        };
        let output = |(name, region, place): (&str, &str, &Place)| InferRequestedOutputTensor {
            name: name.to_owned(),
            parameters: of_place(region, place).into_iter().collect(),
        };
        let timeout = self.timeout_us.map(|timeout| number("timeout", timeout));
        let message = proto::ModelInferRequest {
            model_name: self.model.to_owned(),
            parameters: timeout.into_iter().collect(),
            inputs: self.inputs.iter().enumerate().map(describe).collect(),
            outputs: self.shared_outputs().map(output).collect(),
            raw_input_contents: self.in_the_request().cloned().collect(),
            ..proto::ModelInferRequest::default()
        };
        Prepared::new(target, "ModelInfer", &message)
    }

    /// The contents that go over the wire.
    fn in_the_request(&self) -> impl Iterator<Item = &Bytes> {
        let inputs = if self.shared.is_some() { &[] } else { self.inputs };
        inputs.iter().map(|input| &input.tensor.data)
    }
}

/// gRPC's parameters of a tensor in shared memory.
fn of_place(region: &str, place: &Place) -> [(String, proto::InferParameter); 3] {
    let name = ParameterChoice::StringParam(region.to_owned());
    let name = proto::InferParameter { parameter_choice: Some(name) };
    [
        ("shared_memory_region".to_owned(), name),
        number("shared_memory_offset", place.offset),
        number("shared_memory_byte_size", place.bytes),
    ]
}

fn number(key: &str, value: u64) -> (String, proto::InferParameter) {
    let choice = ParameterChoice::Int64Param(value as i64);
    (key.to_owned(), proto::InferParameter { parameter_choice: Some(choice) })
}
