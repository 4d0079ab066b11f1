//! Runs batches: gathers items of equal shapes into one run, and splits its outputs. Items that
//! differ only in length are padded, if the signature says how.

use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions, Session as Inner};

use super::buffer::{Buffer, Layout};
use super::{one_line, value};
use crate::{DataType, EngineError, Inputs, Outputs, Session, Signature, Tensor, TensorSpec};

/// A session on an ONNX file.
pub(super) struct OnnxSession {
    inner: Inner,
    /// Selects the outputs of the signature, in its order.
    options: RunOptions<HasSelectedOutputs>,
    signature: Signature,
    /// One for each input.
    gathers: Vec<Gather>,
    /// For each output, the axis along which it is padded, counted with the batch.
    cuts: Vec<Option<usize>>,
}

/// How one input of a batch is gathered.
struct Gather {
    /// Reused from run to run.
    buffer: Buffer,
    /// The axis along which it is padded, counted with the batch.
    axis: Option<usize>,
    /// One element of the padding.
    fill: Vec<u8>,
}

impl OnnxSession {
    /// The caller has checked that the signature fits the file.
    pub(super) fn new(inner: Inner, signature: Signature) -> Result<Self, ort::Error> {
        let names = signature.outputs.iter().map(|spec| &spec.name);
        let outputs = names.fold(OutputSelector::no_default(), OutputSelector::with);
        let options = RunOptions::new()?.with_outputs(outputs);
        let mut gathers: Vec<Gather> = signature
            .inputs
            .iter()
            .map(|_| Gather { buffer: Buffer::default(), axis: None, fill: Vec::new() })
            .collect();
        let mut cuts = vec![None; signature.outputs.len()];
        let length = signature.length.as_ref().filter(|_| signature.max_batch > 0);
        if let Some((length, padding)) = length.and_then(|of| Some((of, of.padding.as_ref()?))) {
            let behind_batch = |axis: &Option<usize>| axis.map(|axis| axis + 1);
            for (at, gather) in gathers.iter_mut().enumerate() {
                gather.axis = behind_batch(&length.inputs[at]);
                let datatype = signature.inputs[at].datatype;
                gather.fill = datatype.whole_number(padding.fill[at]).unwrap_or_default();
            }
            cuts = length.outputs.iter().map(behind_batch).collect();
        }
        Ok(Self { inner, options, signature, gathers, cuts })
    }

    /// Runs items that have equal shapes apart from their lengths. Each output holds the whole
    /// batch.
    fn run_together(
        &mut self,
        items: &[&Inputs],
        lengths: &Lengths,
    ) -> Result<Vec<Tensor>, EngineError> {
        let batched = self.signature.max_batch > 0;
        let failed = |error: ort::Error| EngineError::Run(one_line(&error));
        let mut inputs = Vec::with_capacity(self.gathers.len());
        let mut lent: Vec<&[u8]> = Vec::with_capacity(self.gathers.len());
        for (at, (spec, gather)) in self.signature.inputs.iter().zip(&mut self.gathers).enumerate()
        {
            let mut shape = items[0][at].shape.clone();
            if batched {
                shape[0] = items.len() as i64;
            }
            let axis = gather.axis.filter(|_| lengths.differ());
            if let Some(axis) = axis {
                shape[axis] = lengths.longest as i64;
            }
            let layout = |tensor: &Tensor| Layout::new(&tensor.shape, axis, lengths.longest);
            let value = match spec.datatype.size() {
                Some(size) => {
                    let parts = items.iter().map(|item| &item[at]);
                    let parts = parts.flat_map(|item| layout(item).parts(&item.data, size));
                    let data = match items {
                        [one] if is_aligned(&one[at].data, size) => &one[at].data[..],
                        _ => gather.buffer.gather(parts, &gather.fill),
                    };
                    lent.push(data);
                    value::lend(spec.datatype, &shape, data)
                }
                None => {
                    let words = items.iter().map(|item| &item[at]);
                    let words = words.flat_map(|item| layout(item).strings(item.strings()));
                    value::strings(&shape, words)
                }
            };
            inputs.push((spec.name.as_str(), value.map_err(failed)?));
        }
        let keep = self.inner.inner();
        let values = self.inner.run_with_options(inputs, &self.options).map_err(failed)?;
        values
            .into_iter()
            .zip(&self.cuts)
            .map(|((name, value), cut)| {
                let wrong = |reason| EngineError::Run(format!("output '{name}': {reason}"));
                let tensor = value::take(value, &keep, &lent).map_err(wrong)?;
                let shape = &tensor.shape;
                if batched && shape.first() != Some(&(items.len() as i64)) {
                    let size = items.len();
                    return Err(wrong(format!("its shape is {shape:?} for a batch of {size}")));
                }
                let longest = lengths.longest;
                let fits = |axis: &usize| shape.get(*axis) == Some(&(longest as i64));
                if lengths.differ() && !cut.as_ref().is_none_or(fits) {
                    return Err(wrong(format!(
                        "its shape is {shape:?} where the longest of the batch is {longest}"
                    )));
                }
                Ok(tensor)
            })
            .collect()
    }
}

impl Session for OnnxSession {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        let batched = self.signature.max_batch > 0;
        for inputs in batch {
            check_inputs(&self.signature.inputs, batched, inputs).map_err(EngineError::Run)?;
            self.signature.check_length(inputs).map_err(EngineError::Run)?;
        }
        let mut results: Vec<Outputs> =
            batch.iter().map(|_| Vec::with_capacity(self.signature.outputs.len())).collect();
        let axes: Vec<Option<usize>> = self.gathers.iter().map(|gather| gather.axis).collect();
        for group in groups(batch, &axes, self.signature.max_batch.max(1)) {
            let items: Vec<&Inputs> = group.iter().map(|&at| &batch[at]).collect();
            let lengths = Lengths::of(&items, &axes);
            let outputs = self.run_together(&items, &lengths)?;
            for (output, cut) in outputs.into_iter().zip(&self.cuts) {
                let rows = if batched { output.rows(items.len()) } else { vec![output] };
                for (at, row) in rows.into_iter().enumerate() {
                    let row = match cut.filter(|_| lengths.differ()) {
                        Some(axis) => row.shortened(axis, lengths.each[at]),
                        None => row,
                    };
                    results[group[at]].push(row);
                }
            }
        }
        Ok(results)
    }
}

/// How long the items of a run are along the axis on which they are padded.
#[derive(Default)]
struct Lengths {
    /// The length of each item; empty for a model without padding.
    each: Vec<usize>,
    longest: usize,
}

impl Lengths {
    /// Reads the lengths from the first input that has the axis. The other inputs of an item have
    /// the same length.
    fn of(items: &[&Inputs], axes: &[Option<usize>]) -> Self {
        let first = axes.iter().enumerate().find_map(|(at, axis)| Some((at, (*axis)?)));
        let Some((at, axis)) = first else { return Self::default() };
        let each: Vec<usize> = items.iter().map(|item| item[at].shape[axis] as usize).collect();
        let longest = each.iter().copied().max().unwrap_or(0);
        Self { each, longest }
    }

    /// Whether any item needs padding.
    fn differ(&self) -> bool {
        self.each.iter().any(|&length| length != self.longest)
    }
}

/// Groups the items that can run together: at most `limit` items, whose shapes differ only along
/// the padded axes.
fn groups(batch: &[Inputs], axes: &[Option<usize>], limit: usize) -> Vec<Vec<usize>> {
    let same = |(axis, (one, other)): (&Option<usize>, (&Tensor, &Tensor))| {
        let mut both = one.shape.iter().zip(&other.shape).enumerate();
        one.shape.len() == other.shape.len()
            && both.all(|(at, (one, other))| *axis == Some(at) || one == other)
    };
    let same_shapes =
        |one: usize, other: usize| axes.iter().zip(batch[one].iter().zip(&batch[other])).all(same);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in 0..batch.len() {
        match groups.iter_mut().find(|group| group.len() < limit && same_shapes(group[0], at)) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Whether one item fits the signature. The library reads as much memory as the shape says, so this
/// is checked here again, even if the server has checked it.
pub(crate) fn check_inputs(
    specs: &[TensorSpec],
    batched: bool,
    inputs: &Inputs,
) -> Result<(), String> {
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
        // The library's compiled code is undefined for other values.
        if spec.datatype == DataType::Bool && tensor.data.iter().any(|&byte| byte > 1) {
            return wrong("a BOOL is neither 0 nor 1".to_owned());
        }
    }
    Ok(())
}

fn is_aligned(data: &[u8], size: usize) -> bool {
    data.as_ptr().addr().is_multiple_of(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_of_equal_shapes_and_within_the_limit() {
        let item = |length: i64| vec![Tensor::zeros(DataType::Fp32, vec![1, length]).unwrap()];
        let batch = [2, 3, 2, 2, 3].map(item);
        assert_eq!(groups(&batch, &[None], 8), [vec![0, 2, 3], vec![1, 4]]);
        assert_eq!(groups(&batch, &[None], 2), [vec![0, 2], vec![1, 4], vec![3]]);
        assert_eq!(groups(&batch[..2], &[None], 1), [vec![0], vec![1]]);
        assert_eq!(groups(&batch, &[Some(1)], 3), [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(groups(&batch, &[Some(0)], 8), [vec![0, 2, 3], vec![1, 4]]);
    }

    #[test]
    fn equal_lengths_are_not_padded() {
        let item = |length: i64| vec![Tensor::zeros(DataType::Fp32, vec![1, length]).unwrap()];
        let batch = [2, 2, 3].map(item);
        let all: Vec<&Inputs> = batch.iter().collect();
        assert!(!Lengths::of(&all[..2], &[Some(1)]).differ());
        assert!(Lengths::of(&all, &[Some(1)]).differ());
        assert!(!Lengths::of(&all, &[None]).differ());
    }
}
