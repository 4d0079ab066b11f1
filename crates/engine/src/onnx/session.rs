//! Runs batches: items of equal shapes are gathered into one run, and its outputs are shared out.

use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions, Session as Inner};

use super::{one_line, value};
use crate::{DataType, EngineError, Inputs, Outputs, Session, Signature, Tensor, TensorSpec};

/// An ONNX model made ready.
pub(super) struct OnnxSession {
    inner: Inner,
    /// Asks for the outputs of the signature, in its order.
    options: RunOptions<HasSelectedOutputs>,
    signature: Signature,
    /// Where an input is gathered, one for each; kept from run to run.
    buffers: Vec<Buffer>,
}

impl OnnxSession {
    /// The signature was found to fit the file.
    pub(super) fn new(inner: Inner, signature: Signature) -> Result<Self, ort::Error> {
        let names = signature.outputs.iter().map(|spec| &spec.name);
        let outputs = names.fold(OutputSelector::no_default(), OutputSelector::with);
        let options = RunOptions::new()?.with_outputs(outputs);
        let buffers = signature.inputs.iter().map(|_| Buffer::default()).collect();
        Ok(Self { inner, options, signature, buffers })
    }

    /// One run of the model, of items that have equal shapes: its outputs, the whole batch in each.
    fn run_together(&mut self, items: &[&Inputs]) -> Result<Vec<Tensor>, EngineError> {
        let batched = self.signature.max_batch > 0;
        let failed = |error: ort::Error| EngineError::Run(one_line(&error));
        let mut inputs = Vec::with_capacity(self.buffers.len());
        let mut lent: Vec<&[u8]> = Vec::with_capacity(self.buffers.len());
        for (at, (spec, buffer)) in self.signature.inputs.iter().zip(&mut self.buffers).enumerate()
        {
            let mut shape = items[0][at].shape.clone();
            if batched {
                shape[0] = items.len() as i64;
            }
            let value = match spec.datatype.size() {
                Some(size) => {
                    let data = match items {
                        [one] if is_aligned(&one[at].data, size) => &one[at].data[..],
                        _ => buffer.gather(items.iter().map(|item| &item[at].data[..])),
                    };
                    lent.push(data);
                    value::lend(spec.datatype, &shape, data)
                }
                None => value::strings(&shape, items.iter().flat_map(|item| item[at].strings())),
            };
            inputs.push((spec.name.as_str(), value.map_err(failed)?));
        }
        let keep = self.inner.inner();
        let values = self.inner.run_with_options(inputs, &self.options).map_err(failed)?;
        values
            .into_iter()
            .map(|(name, value)| {
                let wrong = |reason| EngineError::Run(format!("output '{name}': {reason}"));
                let tensor = value::take(value, &keep, &lent).map_err(wrong)?;
                let rows = tensor.shape.first().copied();
                if batched && rows != Some(items.len() as i64) {
                    let (shape, size) = (&tensor.shape, items.len());
                    return Err(wrong(format!("its shape is {shape:?} for a batch of {size}")));
                }
                Ok(tensor)
            })
            .collect()
    }
}

impl Session for OnnxSession {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        let batched = self.signature.max_batch > 0;
        batch
            .iter()
            .try_for_each(|inputs| check_inputs(&self.signature.inputs, batched, inputs))
            .map_err(EngineError::Run)?;
        let mut results: Vec<Outputs> =
            batch.iter().map(|_| Vec::with_capacity(self.signature.outputs.len())).collect();
        for group in groups(batch, self.signature.max_batch.max(1)) {
            let items: Vec<&Inputs> = group.iter().map(|&at| &batch[at]).collect();
            for output in self.run_together(&items)? {
                let rows = if batched { output.rows(items.len()) } else { vec![output] };
                group.iter().zip(rows).for_each(|(&at, row)| results[at].push(row));
            }
        }
        Ok(results)
    }
}

/// The items that can run together: of equal shapes, and no more than `limit`.
fn groups(batch: &[Inputs], limit: usize) -> Vec<Vec<usize>> {
    let same_shapes = |one: usize, other: usize| {
        batch[one].iter().zip(&batch[other]).all(|(one, other)| one.shape == other.shape)
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in 0..batch.len() {
        match groups.iter_mut().find(|group| group.len() < limit && same_shapes(group[0], at)) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Whether one item is what the signature says. The library reads as much memory as the shape says, so this
/// is asked here, whoever may have asked before.
fn check_inputs(specs: &[TensorSpec], batched: bool, inputs: &Inputs) -> Result<(), String> {
    if inputs.len() != specs.len() {
        return Err(format!("{} inputs where the model takes {}", inputs.len(), specs.len()));
    }
    for (spec, tensor) in specs.iter().zip(inputs) {
        let wrong = |reason: String| Err(format!("input '{}': {reason}", spec.name));
        let axes = match tensor.shape.as_slice() {
            [1, rest @ ..] if batched => Some(rest),
            _ if batched => None,
            all => Some(all),
        };
        let fits = |axes: &[i64]| {
            axes.len() == spec.shape.len()
                && axes.iter().zip(&spec.shape).all(|(&is, &may)| may == -1 || is == may)
        };
        if tensor.datatype != spec.datatype || !axes.is_some_and(fits) {
            let with = if batched { " behind a batch of 1" } else { "" };
            let (is, datatype, shape) = (tensor.describe(), spec.datatype, &spec.shape);
            return wrong(format!("{is} where the model takes {datatype} {shape:?}{with}"));
        }
        if let Err(reason) = tensor.validate() {
            return wrong(reason);
        }
        // What the library's compiled code does with other values is anybody's guess.
        if spec.datatype == DataType::Bool && tensor.data.iter().any(|&byte| byte > 1) {
            return wrong("a BOOL is neither 0 nor 1".to_owned());
        }
    }
    Ok(())
}

fn is_aligned(data: &[u8], size: usize) -> bool {
    data.as_ptr().addr().is_multiple_of(size)
}

/// Memory that is used again.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
}

/// The alignment of a gathered input: a line of the cache, and enough for every type.
const ALIGNMENT: usize = 64;

impl Buffer {
    /// The parts one after another, aligned.
    fn gather<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]> + Clone) -> &[u8] {
        let length = parts.clone().map(<[u8]>::len).sum::<usize>();
        if self.bytes.len() < length + ALIGNMENT {
            // Not `resize`, which would copy what is about to be overwritten.
            self.bytes = vec![0; length + ALIGNMENT];
        }
        let start = self.bytes.as_ptr().align_offset(ALIGNMENT);
        let gathered = &mut self.bytes[start..start + length];
        let mut rest = &mut *gathered;
        for part in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        gathered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_gathers_aligned_and_is_used_again() {
        let mut buffer = Buffer::default();
        let gathered = buffer.gather([&b"abc"[..], b"", b"de"].into_iter());
        assert_eq!(gathered, b"abcde");
        assert!(gathered.as_ptr().addr().is_multiple_of(ALIGNMENT));
        let place = gathered.as_ptr();
        assert_eq!(buffer.gather([&b"xy"[..]].into_iter()).as_ptr(), place);
    }

    #[test]
    fn groups_are_of_equal_shapes_and_within_the_limit() {
        let item = |length: i64| vec![Tensor::zeros(DataType::Fp32, vec![1, length]).unwrap()];
        let batch = [2, 3, 2, 2, 3].map(item);
        assert_eq!(groups(&batch, 8), [vec![0, 2, 3], vec![1, 4]]);
        assert_eq!(groups(&batch, 2), [vec![0, 2], vec![1, 4], vec![3]]);
        assert_eq!(groups(&batch[..2], 1), [vec![0], vec![1]]);
    }
}
