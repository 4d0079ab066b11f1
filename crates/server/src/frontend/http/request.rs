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
use crate::kinds::Application;

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
    /// Who asks, where its parameters say so.
    pub(crate) application: Option<Application>,
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
        let application = head.parameters.application.as_deref();
        let application = application.map(|name| check::application(model, name)).transpose()?;
        Ok(Self { id: head.id.into_owned(), inputs, rows, wanted, timeout, application })
    }
}

/// The JSON. Keys that are not here are ignored, as Triton does.
#[derive(Deserialize)]
#[serde(expecting = "an object with inputs")]
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
#[serde(default, expecting = "an object of parameters")]
struct RequestParameters<'a> {
    binary_data_output: bool,
    #[serde(borrow)]
    sequence_id: Option<&'a RawValue>,
    sequence_start: bool,
    sequence_end: bool,
    /// Microseconds.
    timeout: Option<u64>,
    #[serde(borrow)]
    application: Option<Cow<'a, str>>,
}

impl RequestParameters<'_> {
    fn is_sequence(&self) -> bool {
        let named = self.sequence_id.is_some_and(|id| !matches!(id.get(), "0" | "\"\""));
        named || self.sequence_start || self.sequence_end
    }
}

#[derive(Deserialize)]
#[serde(expecting = "an object with name, datatype, shape and data")]
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
#[serde(default, expecting = "an object of parameters")]
struct InputParameters {
    binary_data_size: Option<usize>,
    shared_memory_region: Option<String>,
    shared_memory_offset: u64,
    shared_memory_byte_size: Option<u64>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with the name of an output")]
struct OutputHead<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    parameters: OutputParameters,
}

#[derive(Default, Deserialize)]
#[serde(default, expecting = "an object of parameters")]
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
            let slot = regions.slot(region, parameters.shared_memory_offset, size);
            return slot.map(Payload::Shared).map_err(|reason| format!("cannot be read: {reason}"));
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

#[cfg(test)]
mod tests {
    use fermata_engine::DataType;
    use proptest::prelude::*;

    use super::*;
    use crate::frontend::fixture::Fixture;

    fn parse(fixture: &Fixture, body: &[u8], length: Option<usize>) -> Result<Request, InferError> {
        let body = Bytes::copy_from_slice(body);
        Request::parse(fixture.model(), &Regions::default(), &body, length)
    }

    fn message(fixture: &Fixture, body: &str) -> String {
        parse(fixture, body.as_bytes(), None).unwrap_err().to_string()
    }

    /// JSON and then the bytes of an FP32[2].
    fn binary(json: &str) -> (Vec<u8>, Option<usize>) {
        let mut body = json.as_bytes().to_vec();
        body.extend_from_slice(&[0, 0, 128, 63, 0, 0, 0, 64]);
        (body, Some(json.len()))
    }

    const BINARY: &str = r#"{"id":"7","inputs":[{"name":"IN","shape":[2],"datatype":"FP32",
        "parameters":{"binary_data_size":8}}],
        "parameters":{"binary_data_output":true,"timeout":900},
        "outputs":[{"name":"OUT","parameters":{"binary_data":false}},
        {"name":"TEXT_OUT","parameters":{"classification":3}}]}"#;

    const PLAIN: &str =
        r#"{"inputs":[{"data":[1,2.0],"name":"IN","datatype":"FP32","shape":[2]}]}"#;

    #[test]
    fn binary_inputs_are_slices_of_the_body() {
        let (body, length) = binary(BINARY);
        let body = Bytes::from(body);
        let fixture = Fixture::unbatched();
        let request = Request::parse(fixture.model(), &Regions::default(), &body, length).unwrap();
        assert_eq!(request.id, "7");
        assert_eq!(request.timeout, Some(Duration::from_micros(900)));
        let data = &request.inputs[0].data;
        assert_eq!(data.as_ptr(), body[length.unwrap()..].as_ptr());
        assert!(matches!(request.wanted[0].delivery, Delivery::Json));
        assert!(matches!(request.wanted[1].delivery, Delivery::Binary));
        assert_eq!(request.wanted[1].classes, 3);
    }

    #[test]
    fn json_and_binary_say_the_same() {
        let fixture = Fixture::unbatched();
        let (body, length) = binary(BINARY);
        let one = parse(&fixture, &body, length).unwrap();
        let other = parse(&fixture, PLAIN.as_bytes(), None).unwrap();
        assert_eq!(one.inputs, other.inputs);
        assert_eq!(other.wanted.len(), 2);
        assert_eq!(other.timeout, None);
    }

    #[test]
    fn numbers_that_are_not_finite_are_taken() {
        let body = PLAIN.replace("2.0", "NaN");
        let request = parse(&Fixture::unbatched(), body.as_bytes(), None).unwrap();
        let (values, _) = request.inputs[0].data.as_chunks();
        assert!(f32::from_le_bytes(values[1]).is_nan());
    }

    #[test]
    fn lengths_that_do_not_fit_are_named() {
        let fixture = Fixture::unbatched();
        let (body, length) = binary(BINARY);
        let long = parse(&fixture, &body, Some(body.len() + 1)).unwrap_err().to_string();
        assert!(long.contains("Inference-Header-Content-Length is"), "{long}");
        let short = parse(&fixture, &body[..body.len() - 1], length).unwrap_err().to_string();
        assert!(short.contains("'IN'") && short.contains("only 7 bytes are left"), "{short}");
        let mut more = body.clone();
        more.push(0);
        let more = parse(&fixture, &more, length).unwrap_err().to_string();
        assert!(more.contains("1 bytes of binary data beyond"), "{more}");
    }

    #[test]
    fn a_mistake_in_the_json_is_found_by_its_key() {
        let fixture = Fixture::unbatched();
        let cases = [
            ("", "the request's JSON cannot be read: EOF"),
            ("{", "EOF while parsing"),
            ("[]", "expected an object with inputs"),
            ("{}", "missing field `inputs`"),
            (r#"{"inputs":3}"#, "at 'inputs': invalid type"),
            (
                r#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[2.5]}]}"#,
                "at 'inputs[0].shape[0]'",
            ),
            (r#"{"inputs":[{"name":"IN","datatype":"FP32"}]}"#, "missing field `shape`"),
            (r#"{"inputs":[],"parameters":{"timeout":"soon"}}"#, "at 'parameters.timeout'"),
            (r#"{"inputs":[]} x"#, "trailing characters"),
        ];
        for (body, expected) in cases {
            let message = message(&fixture, body);
            assert!(message.contains(expected), "{body}: {message}");
        }
    }

    #[test]
    fn sequences_are_refused() {
        let fixture = Fixture::unbatched();
        let with = |parameters: &str| {
            let body = PLAIN.replacen('{', &format!(r#"{{"parameters":{{{parameters}}},"#), 1);
            parse(&fixture, body.as_bytes(), None)
        };
        for parameters in [r#""sequence_id":5"#, r#""sequence_id":"a""#, r#""sequence_start":true"#]
        {
            let error = with(parameters).unwrap_err();
            assert!(matches!(error, InferError::Unsupported(_)), "{parameters}: {error}");
        }
        assert!(with(r#""sequence_id":0,"sequence_start":false,"priority":3,"mine":[1]"#).is_ok());
    }

    #[test]
    fn one_source_of_data_is_enough() {
        let fixture = Fixture::unbatched();
        let both = PLAIN.replace(r#""data""#, r#""parameters":{"binary_data_size":0},"data""#);
        assert!(message(&fixture, &both).contains("one of data, binary_data_size"));
        let none = PLAIN.replace(r#""data":[1,2.0],"#, "");
        assert_eq!(message(&fixture, &none), "input 'IN' of model 'm' has no data");
        let parameters = r#""parameters":{"shared_memory_region":"r","shared_memory_byte_size":8}"#;
        let shared = PLAIN.replace(r#""data":[1,2.0]"#, parameters);
        assert!(message(&fixture, &shared).contains("region 'r' is not registered"));
        let unsized_region = shared.replace(r#","shared_memory_byte_size":8"#, "");
        assert!(message(&fixture, &unsized_region).contains("without shared_memory_byte_size"));
    }

    #[test]
    fn an_application_is_a_name() {
        let fixture = Fixture::unbatched();
        let with = |parameters: &str| {
            format!(
                r#"{{"inputs":[{{"name":"IN","shape":[2],"datatype":"FP32","data":[1,2]}}],
                "parameters":{{{parameters}}}}}"#
            )
        };
        let named = |parameters| {
            parse(&fixture, with(parameters).as_bytes(), None).map(|request| request.application)
        };
        assert_eq!(named("").unwrap(), None);
        let chat = named(r#""application":"chat""#).unwrap();
        assert!(chat.is_some() && chat == named(r#""application":"ch\u0061t""#).unwrap());
        assert_ne!(named(r#""application":"search""#).unwrap(), chat);
        assert!(named(r#""application":"""#).unwrap_err().to_string().contains("1 to 64 bytes"));
        assert!(named(r#""application":7"#).unwrap_err().to_string().contains("application"));
    }

    proptest! {
        #[test]
        fn no_body_panics(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            length in 0_usize..250,
        ) {
            let fixture = Fixture::batched();
            let _ = parse(&fixture, &body, None);
            let _ = parse(&fixture, &body, Some(length));
        }

        #[test]
        fn no_mutation_panics_or_lets_a_wrong_size_through(
            plain in any::<bool>(),
            which in 0..DataType::ALL.len(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let datatype = DataType::ALL[which];
            let fixture = Fixture::of(datatype);
            let (text, outputs) = if plain { (PLAIN, "") } else { (BINARY, "") };
            let text = text.replace("FP32", datatype.name()).replace("TEXT_OUT", outputs);
            let (mut body, mut length) = binary(&text);
            if plain {
                body.truncate(text.len());
                length = None;
            }
            for (index, byte) in changes {
                let index = index.index(body.len());
                body[index] = byte;
            }
            if let Some(cut) = cut {
                body.truncate(cut.index(body.len()));
            }
            if let Ok(request) = parse(&fixture, &body, length) {
                let tensor = &request.inputs[0];
                let elements = Tensor::elements(&tensor.shape).unwrap();
                match datatype.size() {
                    Some(size) => prop_assert_eq!(tensor.data.len(), elements * size),
                    None => prop_assert!(tensor.data.len() >= elements * 4),
                }
            }
        }
    }
}
