//! A request against the signature of its model: names, datatypes, shapes and sizes.
//!
//! Every message names the model and the tensor, what is expected and what was given.

use std::collections::BTreeMap;
use std::fmt;

use fermata_engine::{DataType, Signature, Tensor, TensorSpec};

use super::classify::classify;
use super::payload::Payload;
use super::shared_memory::Slot;
use crate::inference::{Answer, InferError};
use crate::kinds::{Application, HEADER, Tags};
use crate::served::Served;

/// What of a model a request is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// What goes in and what comes out.
    pub(crate) signature: &'a Signature,
    /// The names of classes by output.
    pub(crate) labels: &'a BTreeMap<String, Vec<String>>,
    /// The applications that ask for it.
    pub(crate) tags: &'a Tags,
}

impl<'a> From<&'a Served> for Model<'a> {
    fn from(served: &'a Served) -> Self {
        let Served { name, signature, labels, .. } = served;
        Self { name, signature, labels, tags: served.online().kinds().tags() }
    }
}

/// An input as the client gave it.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// The protocol's name of what its elements are.
    pub(crate) datatype: &'a str,
    /// All axes, also the batch.
    pub(crate) shape: Vec<i64>,
    /// Its elements.
    pub(crate) payload: Payload<'a>,
}

/// An output that the client asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Its place in the signature.
    pub(crate) output: usize,
    /// So many classes in place of the values; the values, if 0.
    pub(crate) classes: usize,
    /// How the client gets it.
    pub(crate) delivery: Delivery,
}

/// How an output reaches the client.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// As raw bytes in the response.
    Binary,
    /// As a JSON array in the response.
    Json,
    /// In shared memory; the response only says so.
    Shared(Slot),
}

/// An output that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its values.
    pub(crate) tensor: Tensor,
    /// How the client gets it. What goes to shared memory is there already.
    pub(crate) delivery: Delivery,
}

/// The inputs in the order of the signature, and the rows that each of them has.
pub(crate) fn inputs<'a>(
    model: Model<'_>,
    given: impl Iterator<Item = Result<Input<'a>, InferError>>,
) -> Result<(Vec<Tensor>, usize), InferError> {
    let specs = &model.signature.inputs;
    let mut tensors: Vec<Option<Tensor>> = vec![None; specs.len()];
    let mut batch = None;
    for input in given {
        let input = input?;
        let name = input.name;
        let problem =
            |reason: &str| invalid(format!("input '{name}' of model '{}' {reason}", model.name));
        let Some(index) = specs.iter().position(|spec| spec.name == name) else {
            return Err(invalid(format!(
                "unknown input '{name}' for model '{}', which has {}",
                model.name,
                Names(specs)
            )));
        };
        if tensors[index].is_some() {
            return Err(problem("is given twice"));
        }
        let spec = &specs[index];
        if input.datatype != spec.datatype.name() {
            return Err(problem(&match DataType::from_name(input.datatype) {
                Some(given) => format!("has datatype {given}, expected {}", spec.datatype),
                None => {
                    format!("has unknown datatype '{}', expected {}", input.datatype, spec.datatype)
                }
            }));
        }
        let rows = rows(model, spec, &input.shape).map_err(|reason| problem(&reason))?;
        if *batch.get_or_insert(rows) != rows {
            let others = batch.unwrap_or(rows);
            return Err(problem(&format!("has a batch of {rows}, other inputs have {others}")));
        }
        let elements = Tensor::elements(&input.shape)
            .ok_or_else(|| problem("has a shape too large to count"))?;
        let data =
            input.payload.into_bytes(spec.datatype, elements).map_err(|reason| problem(&reason))?;
        tensors[index] = Some(Tensor { datatype: spec.datatype, shape: input.shape, data });
    }
    let tensors = tensors.into_iter().zip(specs).map(|(tensor, spec)| {
        let missing = || format!("input '{}' of model '{}' is missing", spec.name, model.name);
        tensor.ok_or_else(|| invalid(missing()))
    });
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    // Here, and not where the batch runs: there it would fail the others.
    let wrong = |reason| invalid(format!("model '{}': {reason}", model.name));
    model.signature.check_length(&tensors).map_err(wrong)?;
    Ok((tensors, batch.unwrap_or(1)))
}

/// The place of an output in the signature, which must not be among those that are `wanted`
/// already.
pub(crate) fn output(model: Model<'_>, wanted: &[Wanted], name: &str) -> Result<usize, InferError> {
    let specs = &model.signature.outputs;
    let Some(index) = specs.iter().position(|spec| spec.name == name) else {
        return Err(invalid(format!(
            "unknown output '{name}' for model '{}', which has {}",
            model.name,
            Names(specs)
        )));
    };
    if wanted.iter().any(|wanted| wanted.output == index) {
        return Err(output_problem(model, name, "is asked for twice"));
    }
    Ok(index)
}

/// What the client gets for `wanted`, with shared memory written.
pub(crate) fn outputs(
    model: Model<'_>,
    wanted: Vec<Wanted>,
    answer: Answer,
) -> Result<Vec<Output<'_>>, InferError> {
    let batched = model.signature.max_batch > 0;
    let mut outputs = Vec::with_capacity(wanted.len());
    for Wanted { output, classes, delivery } in wanted {
        let name = model.signature.outputs[output].name.as_str();
        let tensor = answer.outputs.get(output).ok_or_else(|| {
            InferError::Internal(format!("model '{}' gave no output '{name}'", model.name))
        })?;
        let problem = |reason: String| output_problem(model, name, &reason);
        let tensor = if classes > 0 {
            let labels = model.labels.get(name).map(Vec::as_slice);
            classify(tensor, batched, classes, labels).map_err(problem)?
        } else {
            tensor.clone()
        };
        if let Delivery::Shared(slot) = &delivery {
            slot.write(&tensor.data).map_err(problem)?;
        }
        outputs.push(Output { name, tensor, delivery });
    }
    Ok(outputs)
}

/// That something is wrong with an output.
pub(crate) fn output_problem(model: Model<'_>, name: &str, reason: &str) -> InferError {
    invalid(format!("output '{name}' of model '{}' {reason}", model.name))
}

/// The application that a header or the metadata name.
pub(crate) fn header_application(model: Model<'_>, name: &[u8]) -> Result<Application, InferError> {
    let name = std::str::from_utf8(name)
        .map_err(|_| invalid(format!("{HEADER} is '{}', expected text", name.escape_ascii())))?;
    application(model, name)
}

/// The application of this name.
pub(crate) fn application(model: Model<'_>, name: &str) -> Result<Application, InferError> {
    model.tags.find(model.name, name).map_err(invalid)
}

/// That requests which belong together are not supported.
pub(crate) fn no_sequences(model: Model<'_>) -> InferError {
    InferError::Unsupported(format!(
        "model '{}' takes no sequences: parameters sequence_id, sequence_start and sequence_end \
         are \
         not supported",
        model.name
    ))
}

fn invalid(message: String) -> InferError {
    InferError::Invalid(message)
}

/// How many rows an input of this shape has.
fn rows(model: Model<'_>, spec: &TensorSpec, shape: &[i64]) -> Result<usize, String> {
    let max = model.signature.max_batch;
    if max == 0 {
        return if fits(shape, &spec.shape) {
            Ok(1)
        } else {
            Err(format!("has shape {}, expected {}", Shape(shape), Shape(&spec.shape)))
        };
    }
    let Some((&batch, rest)) = shape.split_first().filter(|(_, rest)| fits(rest, &spec.shape))
    else {
        let expected: Vec<i64> = std::iter::once(-1).chain(spec.shape.iter().copied()).collect();
        return Err(format!("has shape {}, expected {}", Shape(shape), Shape(&expected)));
    };
    debug_assert_eq!(rest.len(), spec.shape.len());
    usize::try_from(batch).ok().filter(|batch| (1..=max).contains(batch)).ok_or_else(|| {
        format!("has a batch of {batch} in shape {}, expected 1 to {max}", Shape(shape))
    })
}

fn fits(shape: &[i64], spec: &[i64]) -> bool {
    shape.len() == spec.len()
        && shape
            .iter()
            .zip(spec)
            .all(|(&axis, &expected)| axis >= 0 && (axis == expected || expected < 0))
}

struct Shape<'a>(&'a [i64]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, axis) in self.0.iter().enumerate() {
            write!(f, "{}{axis}", if index > 0 { "," } else { "" })?;
        }
        f.write_str("]")
    }
}

struct Names<'a>(&'a [TensorSpec]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, spec) in self.0.iter().enumerate() {
            write!(f, "{}'{}'", if index > 0 { ", " } else { "" }, spec.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::frontend::fixture::Fixture;

    fn input<'a>(name: &'a str, datatype: &'a str, shape: &[i64], bytes: usize) -> Input<'a> {
        let payload = Payload::Raw(Bytes::from(vec![0; bytes]));
        Input { name, datatype, shape: shape.to_vec(), payload }
    }

    fn text(rows: i64) -> Input<'static> {
        let bytes = usize::try_from(rows).unwrap() * 4;
        input("TEXT", "BYTES", &[rows, 1], bytes)
    }

    fn check(fixture: &Fixture, given: Vec<Input<'_>>) -> Result<(Vec<Tensor>, usize), String> {
        let checked = inputs(fixture.model(), given.into_iter().map(Ok));
        checked.map_err(|error| {
            assert!(matches!(error, InferError::Invalid(_)), "{error:?}");
            error.to_string()
        })
    }

    #[test]
    fn inputs_are_put_in_the_order_of_the_signature() {
        let given = vec![text(3), input("IN", "FP32", &[3, 2], 24)];
        let (tensors, rows) = check(&Fixture::batched(), given).unwrap();
        assert_eq!(rows, 3);
        assert_eq!(tensors[0].datatype, DataType::Fp32);
        assert_eq!(tensors[1].shape, [3, 1]);
    }

    #[test]
    fn every_mistake_is_named() {
        let batched = Fixture::batched();
        let fine = || input("IN", "FP32", &[1, 2], 8);
        let cases: [(Vec<Input<'_>>, &str); 12] = [
            (vec![fine()], "input 'TEXT' of model 'm' is missing"),
            (vec![], "input 'IN' of model 'm' is missing"),
            (vec![fine(), fine()], "input 'IN' of model 'm' is given twice"),
            (
                vec![input("In", "FP32", &[1, 2], 8)],
                "unknown input 'In' for model 'm', which has 'IN', 'TEXT'",
            ),
            (
                vec![input("IN", "FP64", &[1, 2], 16)],
                "input 'IN' of model 'm' has datatype FP64, expected FP32",
            ),
            (
                vec![input("IN", "float", &[1, 2], 8)],
                "input 'IN' of model 'm' has unknown datatype 'float', expected FP32",
            ),
            (
                vec![input("IN", "FP32", &[1, 3], 12)],
                "input 'IN' of model 'm' has shape [1,3], expected [-1,2]",
            ),
            (
                vec![input("IN", "FP32", &[2], 8)],
                "input 'IN' of model 'm' has shape [2], expected [-1,2]",
            ),
            (
                vec![input("IN", "FP32", &[9, 2], 72)],
                "input 'IN' of model 'm' has a batch of 9 in shape [9,2], expected 1 to 8",
            ),
            (
                vec![input("IN", "FP32", &[0, 2], 0)],
                "input 'IN' of model 'm' has a batch of 0 in shape [0,2], expected 1 to 8",
            ),
            (
                vec![fine(), text(2)],
                "input 'TEXT' of model 'm' has a batch of 2, other inputs have 1",
            ),
            (
                vec![input("IN", "FP32", &[1, 2], 9)],
                "input 'IN' of model 'm' has 9 bytes of data, expected 8 for its shape and \
                 datatype",
            ),
        ];
        for (given, message) in cases {
            assert_eq!(check(&batched, given).unwrap_err(), message);
        }
    }

    #[test]
    fn inputs_of_one_request_are_equally_long() {
        let fixture = Fixture::encoder();
        let ids = |length: i64| input("ids", "INT64", &[1, length], 8 * length as usize);
        let mask = |length: i64| input("mask", "INT64", &[1, length], 8 * length as usize);
        assert_eq!(check(&fixture, vec![mask(3), ids(3)]).unwrap().1, 1);
        assert_eq!(
            check(&fixture, vec![ids(3), mask(4)]).unwrap_err(),
            "model 'm': input 'mask' has length 4, input 'ids' has 3"
        );
        assert_eq!(
            check(&fixture, vec![ids(9), mask(9)]).unwrap_err(),
            "model 'm': input 'ids' has length 9, the longest is 8"
        );
        assert_eq!(
            check(&fixture, vec![ids(3)]).unwrap_err(),
            "input 'mask' of model 'm' is missing"
        );
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        let any = Fixture::of(DataType::Fp64);
        for shape in [&[-1_i64][..], &[i64::MIN], &[], &[1, 1], &[i64::MAX]] {
            assert!(check(&any, vec![input("IN", "FP64", shape, 8)]).is_err(), "{shape:?}");
        }
        assert!(check(&any, vec![input("IN", "FP64", &[0], 0)]).is_ok());
    }

    #[test]
    fn a_model_without_a_batch_axis_has_the_shape_of_its_spec() {
        let unbatched = Fixture::unbatched();
        let (_, rows) = check(&unbatched, vec![input("IN", "FP32", &[2], 8)]).unwrap();
        assert_eq!(rows, 1);
        let error = check(&unbatched, vec![input("IN", "FP32", &[1, 2], 8)]).unwrap_err();
        assert_eq!(error, "input 'IN' of model 'm' has shape [1,2], expected [2]");
    }

    #[test]
    fn outputs_are_found_once() {
        let fixture = Fixture::batched();
        let model = fixture.model();
        assert_eq!(output(model, &[], "TEXT_OUT"), Ok(1));
        let wanted = [Wanted { output: 1, classes: 0, delivery: Delivery::Json }];
        let twice = output(model, &wanted, "TEXT_OUT").unwrap_err();
        assert_eq!(twice.to_string(), "output 'TEXT_OUT' of model 'm' is asked for twice");
        let unknown = output(model, &[], "X").unwrap_err().to_string();
        assert_eq!(unknown, "unknown output 'X' for model 'm', which has 'OUT', 'TEXT_OUT'");
    }
}
