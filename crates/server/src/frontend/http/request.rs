//! An inference request over HTTP: JSON, and after it the bytes of binary tensors.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use fermata_engine::Tensor;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::frontend::check::{self, Delivery, Input, Model, Wanted};
use crate::frontend::payload::Payload;
use crate::frontend::shared_memory::Regions;
use crate::frontend::{deadline, json};
use crate::inference::InferError;

/// A request that fits its model.
#[derive(Debug)]
pub(crate) struct Request {
    /// The client's name for it; empty if it has none.
    pub(crate) id: String,
    /// All inputs, in the order of the signature.
    pub(crate) inputs: Vec<Tensor>,
    /// How many rows each input has.
    pub(crate) rows: usize,
    /// The outputs to send.
    pub(crate) wanted: Vec<Wanted>,
    /// How long the client will wait.
    pub(crate) timeout: Option<Duration>,
}

impl Request {
    /// Reads a body whose first `json_length` bytes are JSON; all of it, if `None`.
    pub(crate) fn parse(
        model: Model<'_>,
        regions: &Regions,
        body: &Bytes,
        json_length: Option<usize>,
    ) -> Result<Self, InferError> {
        let json_length = json_length.unwrap_or(body.len());
        if json_length > body.len() {
            return Err(InferError::Invalid(format!(
                "Inference-Header-Content-Length is {json_length}, but the body has {} bytes",
                body.len()
            )));
        }
        let text = &body[..json_length];
        let binary = body.slice(json_length..);
        match serde_json::from_slice(text) {
            Ok(head) => Self::from_head(model, regions, head, binary),
            Err(_) => match json::quote_not_finite(text) {
                None => Err(explain(text)),
                Some(quoted) => {
                    let head = serde_json::from_slice(&quoted).map_err(|_| explain(&quoted))?;
                    Self::from_head(model, regions, head, binary)
                }
            },
        }
    }

    fn from_head(
        model: Model<'_>,
        regions: &Regions,
        mut head: Head<'_>,
        binary: Bytes,
    ) -> Result<Self, InferError> {
        if head.parameters.is_sequence() {
            return Err(check::no_sequences(model));
        }
        let mut binary = Binary { rest: binary };
        let given = head.inputs.iter_mut().map(|input| {
            let shape = std::mem::take(&mut input.shape);
            let input = &*input;
            let payload = binary.payload(input, regions).map_err(|reason| {
                InferError::Invalid(format!(
                    "input '{}' of model '{}' {reason}",
                    input.name, model.name
                ))
            })?;
            Ok(Input { name: &input.name, datatype: &input.datatype, shape, payload })
        });
        let (inputs, rows) = check::inputs(model, given)?;
        if !binary.rest.is_empty() {
            return Err(InferError::Invalid(format!(
                "the request has {} bytes of binary data beyond those of its inputs",
                binary.rest.len()
            )));
        }
        let wanted = wanted(model, regions, &head)?;
        let timeout = head.parameters.timeout.and_then(deadline::from_parameter);
        Ok(Self { id: head.id.into_owned(), inputs, rows, wanted, timeout })
    }
}

/// The JSON. Keys that are not here are ignored, as Triton does.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    parameters: RequestParameters<'a>,
    #[serde(borrow)]
    inputs: Vec<InputHead<'a>>,
    #[serde(borrow, default)]
    outputs: Vec<OutputHead<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RequestParameters<'a> {
    binary_data_output: bool,
    #[serde(borrow)]
    sequence_id: Option<&'a RawValue>,
    sequence_start: bool,
    sequence_end: bool,
    /// Microseconds.
    timeout: Option<u64>,
}

impl RequestParameters<'_> {
    fn is_sequence(&self) -> bool {
        let named = self.sequence_id.is_some_and(|id| !matches!(id.get(), "0" | "\"\""));
        named || self.sequence_start || self.sequence_end
    }
}

#[derive(Deserialize)]
struct InputHead<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<i64>,
    #[serde(default)]
    parameters: InputParameters,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct InputParameters {
    binary_data_size: Option<usize>,
    shared_memory_region: Option<String>,
    shared_memory_offset: u64,
    shared_memory_byte_size: Option<u64>,
}

#[derive(Deserialize)]
struct OutputHead<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    parameters: OutputParameters,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OutputParameters {
    binary_data: Option<bool>,
    classification: usize,
    shared_memory_region: Option<String>,
    shared_memory_offset: u64,
    shared_memory_byte_size: Option<u64>,
}

/// The bytes after the JSON, of which each binary input takes its part in turn.
struct Binary {
    rest: Bytes,
}

impl Binary {
    fn payload<'a>(
        &mut self,
        input: &InputHead<'a>,
        regions: &Regions,
    ) -> Result<Payload<'a>, String> {
        let parameters = &input.parameters;
        let sources = [
            input.data.is_some(),
            parameters.binary_data_size.is_some(),
            parameters.shared_memory_region.is_some(),
        ];
        if sources.into_iter().filter(|given| *given).count() > 1 {
            return Err(
                "must have one of data, binary_data_size and shared_memory_region, not more"
                    .to_owned(),
            );
        }
        if let Some(data) = input.data {
            return Ok(Payload::Json(data.get()));
        }
        if let Some(size) = parameters.binary_data_size {
            let left = self.rest.len();
            if size > left {
                return Err(format!("has binary_data_size {size}, but only {left} bytes are left"));
            }
            return Ok(Payload::Raw(self.rest.split_to(size)));
        }
        if let Some(region) = &parameters.shared_memory_region {
            let size = parameters
                .shared_memory_byte_size
                .ok_or("has shared_memory_region without shared_memory_byte_size")?;
            return Ok(Payload::Shared(regions.slot(
                region,
                parameters.shared_memory_offset,
                size,
            )?));
        }
        Ok(Payload::Missing)
    }
}

fn wanted(model: Model<'_>, regions: &Regions, head: &Head<'_>) -> Result<Vec<Wanted>, InferError> {
    let delivery = |binary| if binary { Delivery::Binary } else { Delivery::Json };
    let by_default = head.parameters.binary_data_output;
    if head.outputs.is_empty() {
        let all = 0..model.signature.outputs.len();
        return Ok(all
            .map(|output| Wanted { output, classes: 0, delivery: delivery(by_default) })
            .collect());
    }
    let mut wanted = Vec::with_capacity(head.outputs.len());
    for OutputHead { name, parameters } in &head.outputs {
        let output = check::output(model, &wanted, name)?;
        let problem = |reason: &str| check::output_problem(model, name, reason);
        let delivery = match &parameters.shared_memory_region {
            None => delivery(parameters.binary_data.unwrap_or(by_default)),
            Some(_) if parameters.classification > 0 => {
                return Err(problem("cannot have both classification and shared_memory_region"));
            }
            Some(_) if parameters.binary_data == Some(true) => {
                return Err(problem("cannot have both binary_data and shared_memory_region"));
            }
            Some(region) => {
                let size = parameters.shared_memory_byte_size.ok_or_else(|| {
                    problem("has shared_memory_region without shared_memory_byte_size")
                })?;
                let slot = regions.slot(region, parameters.shared_memory_offset, size);
                Delivery::Shared(
                    slot.map_err(|reason| problem(&format!("cannot be placed: {reason}")))?,
                )
            }
        };
        wanted.push(Wanted { output, classes: parameters.classification, delivery });
    }
    Ok(wanted)
}

/// Reads what could not be read once more, to say where in it the mistake is.
fn explain(text: &[u8]) -> InferError {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let error = match serde_path_to_error::deserialize::<_, Head<'_>>(&mut reader) {
        Err(error) if error.path().iter().next().is_some() => {
            format!("at '{}': {}", error.path(), error.inner())
        }
        Err(error) => error.inner().to_string(),
        Ok(_) => reader.end().err().map_or_else(String::new, |error| error.to_string()),
    };
    InferError::Invalid(format!("the request's JSON cannot be read: {error}"))
}
