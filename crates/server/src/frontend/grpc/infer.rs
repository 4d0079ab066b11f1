//! Inference over gRPC, from message to message.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fermata_protocol::proto::infer_parameter::ParameterChoice;
use fermata_protocol::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use fermata_protocol::proto::model_infer_response::InferOutputTensor;
use fermata_protocol::proto::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse,
};
use tonic::metadata::AsciiMetadataValue;

use crate::frontend::check::{self, Delivery, Input, Model, Output, Wanted};
use crate::frontend::payload::Payload;
use crate::frontend::shared_memory::{Regions, Slot};
use crate::frontend::{Frontend, deadline};
use crate::inference::{Call, InferError};
use crate::kinds::{Application, PARAMETER};
use crate::served::Served;

/// The parameters of a request, an input or an output.
type Parameters = HashMap<String, InferParameter>;

/// What the metadata of a call say of its requests.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    /// When it came.
    pub(super) arrival: Instant,
    /// How long the client waits for its call.
    pub(super) patience: Option<Duration>,
    /// The deadline that the call's metadata ask for.
    pub(super) timeout: Option<Duration>,
    /// Who asks. Shared with the call's headers: not copied.
    pub(super) application: Option<AsciiMetadataValue>,
}

/// Answers one inference request.
pub(super) async fn infer(
    frontend: &Frontend,
    request: ModelInferRequest,
    meta: Meta,
) -> Result<ModelInferResponse, InferError> {
    let model = frontend.service.model(&request.model_name, &request.model_version)?;
    let checked = Model::from(&*model);
    let Request { id, inputs, rows, wanted, timeout, application } =
        Request::parse(checked, &frontend.regions, request)?;
    let Meta { arrival, patience, timeout: own, application: of_call } = meta;
    let timeout = deadline::sooner(timeout, own);
    let of_call = of_call.map(|name| check::header_application(checked, name.as_bytes()));
    let application = application.or(of_call.transpose()?);
    let call = Call { inputs, rows, arrival, timeout, patience, application };
    let answer = model.infer(call).await?;
    Ok(response(&model, id, check::outputs(checked, wanted, answer)?))
}

/// A request that fits its model.
#[derive(Debug)]
struct Request {
    id: String,
    inputs: Vec<fermata_engine::Tensor>,
    rows: usize,
    wanted: Vec<Wanted>,
    timeout: Option<Duration>,
    application: Option<Application>,
}

impl Request {
    fn parse(
        model: Model<'_>,
        regions: &Regions,
        mut request: ModelInferRequest,
    ) -> Result<Self, InferError> {
        let parameters = &request.parameters;
        if is_sequence(parameters) {
            return Err(check::no_sequences(model));
        }
        let timeout = whole(parameters, "timeout")
            .map_err(|reason| InferError::Invalid(format!("the request {reason}")))?
            .and_then(deadline::from_parameter);
        let mut raw = Raw::new(request.raw_input_contents);
        let given = request.inputs.iter_mut().map(|input| {
            let contents = input.contents.take();
            let shape = std::mem::take(&mut input.shape);
            let InferInputTensor { name, datatype, parameters, .. } = &*input;
            let payload = raw.payload(parameters, contents, regions).map_err(|reason| {
                InferError::Invalid(format!("input '{name}' of model '{}' {reason}", model.name))
            })?;
            Ok(Input { name, datatype, shape, payload })
        });
        let (inputs, rows) = check::inputs(model, given)?;
        raw.end()?;
        let wanted = wanted(model, regions, &request.outputs)?;
        let application = named_application(model, &request.parameters)?;
        Ok(Self { id: request.id, inputs, rows, wanted, timeout, application })
    }
}

/// `raw_input_contents`, of which each input takes one in turn.
struct Raw {
    rest: std::vec::IntoIter<Bytes>,
    any: bool,
}

impl Raw {
    fn new(contents: Vec<Bytes>) -> Self {
        Self { any: !contents.is_empty(), rest: contents.into_iter() }
    }

    fn payload(
        &mut self,
        parameters: &Parameters,
        contents: Option<InferTensorContents>,
        regions: &Regions,
    ) -> Result<Payload<'static>, String> {
        if let Some(slot) = slot(parameters, regions)? {
            if contents.is_some() {
                return Err("has both contents and shared_memory_region".to_owned());
            }
            return Ok(Payload::Shared(slot));
        }
        match contents {
            Some(_) if self.any => {
                Err("has contents, which must not be used beside raw_input_contents".to_owned())
            }
            Some(contents) => Ok(Payload::Typed(contents)),
            None if self.any => {
                let next = self.rest.next().map(Payload::Raw);
                next.ok_or_else(|| "has no data: raw_input_contents has too few entries".to_owned())
            }
            None => Ok(Payload::Missing),
        }
    }

    fn end(&self) -> Result<(), InferError> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(InferError::Invalid(format!(
                "raw_input_contents has {more} entries beyond those of the inputs"
            ))),
        }
    }
}

fn wanted(
    model: Model<'_>,
    regions: &Regions,
    outputs: &[InferRequestedOutputTensor],
) -> Result<Vec<Wanted>, InferError> {
    if outputs.is_empty() {
        let all = 0..model.signature.outputs.len();
        let wanted = |output| Wanted { output, classes: 0, delivery: Delivery::Binary };
        return Ok(all.map(wanted).collect());
    }
    let mut wanted = Vec::with_capacity(outputs.len());
    for InferRequestedOutputTensor { name, parameters } in outputs {
        let output = check::output(model, &wanted, name)?;
        let problem = |reason: String| check::output_problem(model, name, &reason);
        let classes = whole(parameters, "classification").map_err(problem)?.unwrap_or(0);
        let slot = slot(parameters, regions).map_err(problem)?;
        if classes > 0 && slot.is_some() {
            let reason = "cannot have both classification and shared_memory_region";
            return Err(problem(reason.to_owned()));
        }
        let classes = usize::try_from(classes).unwrap_or(usize::MAX);
        let delivery = slot.map_or(Delivery::Binary, Delivery::Shared);
        wanted.push(Wanted { output, classes, delivery });
    }
    Ok(wanted)
}

/// The place in shared memory that a tensor's parameters name.
fn slot(parameters: &Parameters, regions: &Regions) -> Result<Option<Slot>, String> {
    let Some(region) = parameters.get("shared_memory_region") else { return Ok(None) };
    let Some(ParameterChoice::StringParam(region)) = &region.parameter_choice else {
        return Err("has a parameter shared_memory_region that is not a string".to_owned());
    };
    let size = whole(parameters, "shared_memory_byte_size")?
        .ok_or("has shared_memory_region without shared_memory_byte_size")?;
    let offset = whole(parameters, "shared_memory_offset")?.unwrap_or(0);
    let slot = regions.slot(region, offset, size);
    slot.map(Some).map_err(|reason| format!("has no place: {reason}"))
}

/// A parameter that is a whole number, not negative.
fn whole(parameters: &Parameters, key: &str) -> Result<Option<u64>, String> {
    let Some(parameter) = parameters.get(key) else { return Ok(None) };
    let value = match parameter.parameter_choice {
        Some(ParameterChoice::Int64Param(value)) => u64::try_from(value).ok(),
        Some(ParameterChoice::Uint64Param(value)) => Some(value),
        _ => None,
    };
    value
        .map(Some)
        .ok_or_else(|| format!("has a parameter {key} that is not a whole number from 0"))
}

fn named_application(
    model: Model<'_>,
    parameters: &Parameters,
) -> Result<Option<Application>, InferError> {
    let Some(parameter) = parameters.get(PARAMETER) else { return Ok(None) };
    let Some(ParameterChoice::StringParam(name)) = &parameter.parameter_choice else {
        let reason = format!("the request has a parameter {PARAMETER} that is not a string");
        return Err(InferError::Invalid(reason));
    };
    check::application(model, name).map(Some)
}

fn is_sequence(parameters: &Parameters) -> bool {
    let set = |key| parameters.get(key).and_then(|value| value.parameter_choice.as_ref());
    let named = match set("sequence_id") {
        None | Some(ParameterChoice::Int64Param(0) | ParameterChoice::Uint64Param(0)) => false,
        Some(ParameterChoice::StringParam(id)) => !id.is_empty(),
        Some(_) => true,
    };
    let on = |key| matches!(set(key), Some(ParameterChoice::BoolParam(true)));
    named || on("sequence_start") || on("sequence_end")
}

fn response(model: &Served, id: String, outputs: Vec<Output<'_>>) -> ModelInferResponse {
    let mut response = ModelInferResponse {
        model_name: model.name.clone(),
        model_version: model.version.clone(),
        id,
        outputs: Vec::with_capacity(outputs.len()),
        raw_output_contents: Vec::with_capacity(outputs.len()),
        ..Default::default()
    };
    for Output { name, tensor, delivery } in outputs {
        let mut parameters = Parameters::new();
        let mut data = tensor.data;
        if let Delivery::Shared(slot) = delivery {
            let size = data.len() as u64;
            // An empty entry keeps the others at the places of their outputs.
            data = Bytes::new();
            let mut put = |key: &str, choice| {
                parameters
                    .insert(key.to_owned(), InferParameter { parameter_choice: Some(choice) });
            };
            put("shared_memory_region", ParameterChoice::StringParam(slot.name));
            put("shared_memory_offset", ParameterChoice::Int64Param(slot.offset.cast_signed()));
            put("shared_memory_byte_size", ParameterChoice::Int64Param(size.cast_signed()));
        }
        response.outputs.push(InferOutputTensor {
            name: name.to_owned(),
            datatype: tensor.datatype.name().to_owned(),
            shape: tensor.shape,
            parameters,
            contents: None,
        });
        response.raw_output_contents.push(data);
    }
    response
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::frontend::fixture::Fixture;

    fn request() -> ModelInferRequest {
        let input = InferInputTensor {
            name: "IN".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![2],
            ..Default::default()
        };
        ModelInferRequest {
            id: "7".to_owned(),
            inputs: vec![input],
            raw_input_contents: vec![Bytes::from_static(&[0; 8])],
            ..Default::default()
        }
    }

    fn parse(request: ModelInferRequest) -> Result<Request, InferError> {
        Request::parse(Fixture::unbatched().model(), &Regions::default(), request)
    }

    fn parameter(choice: ParameterChoice) -> InferParameter {
        InferParameter { parameter_choice: Some(choice) }
    }

    #[test]
    fn raw_and_typed_contents_are_read() {
        let parsed = parse(request()).unwrap();
        assert_eq!((parsed.id.as_str(), parsed.rows, parsed.wanted.len()), ("7", 1, 2));
        let mut typed = request();
        typed.raw_input_contents.clear();
        let fp32_contents = vec![0.0, 0.0];
        typed.inputs[0].contents =
            Some(InferTensorContents { fp32_contents, ..Default::default() });
        assert_eq!(parse(typed).unwrap().inputs, parsed.inputs);
    }

    #[test]
    fn contents_that_do_not_fit_are_named() {
        let message = |change: fn(&mut ModelInferRequest)| {
            let mut request = request();
            change(&mut request);
            parse(request).unwrap_err().to_string()
        };
        let both = message(|request| request.inputs[0].contents = Some(Default::default()));
        assert!(both.contains("'IN'") && both.contains("beside raw_input_contents"), "{both}");
        let more = message(|request| request.raw_input_contents.push(Bytes::new()));
        assert!(more.contains("1 entries beyond"), "{more}");
        let none = message(|request| request.raw_input_contents.clear());
        assert_eq!(none, "input 'IN' of model 'm' has no data");
        let short = message(|request| request.raw_input_contents[0].truncate(7));
        assert!(short.contains("has 7 bytes of data, expected 8"), "{short}");
    }

    #[test]
    fn parameters_are_read() {
        let mut with = request();
        with.parameters.insert("timeout".to_owned(), parameter(ParameterChoice::Int64Param(900)));
        with.parameters.insert("priority".to_owned(), parameter(ParameterChoice::Uint64Param(1)));
        assert_eq!(parse(with.clone()).unwrap().timeout, Some(Duration::from_micros(900)));
        with.parameters.insert("timeout".to_owned(), parameter(ParameterChoice::Int64Param(-1)));
        assert!(parse(with.clone()).unwrap_err().to_string().contains("timeout"));
        with.parameters.clear();
        let id = parameter(ParameterChoice::StringParam("a".to_owned()));
        with.parameters.insert("sequence_id".to_owned(), id);
        assert!(matches!(parse(with), Err(InferError::Unsupported(_))));
    }

    #[test]
    fn shared_memory_must_be_registered() {
        let mut shared = request();
        shared.raw_input_contents.clear();
        let region = parameter(ParameterChoice::StringParam("r".to_owned()));
        let parameters = &mut shared.inputs[0].parameters;
        parameters.insert("shared_memory_region".to_owned(), region);
        let unsized_region = parse(shared.clone()).unwrap_err().to_string();
        assert!(unsized_region.contains("without shared_memory_byte_size"), "{unsized_region}");
        let parameters = &mut shared.inputs[0].parameters;
        let size = parameter(ParameterChoice::Int64Param(8));
        parameters.insert("shared_memory_byte_size".to_owned(), size);
        assert!(parse(shared).unwrap_err().to_string().contains("'r' is not registered"));
    }

    proptest! {
        #[test]
        fn no_message_panics(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut bytes = request().encode_to_vec();
            for (index, byte) in changes {
                let index = index.index(bytes.len());
                bytes[index] = byte;
            }
            if let Ok(request) = ModelInferRequest::decode(&bytes[..])
                && let Ok(parsed) = parse(request)
            {
                prop_assert_eq!(parsed.inputs[0].data.len(), 8);
            }
        }
    }
}
