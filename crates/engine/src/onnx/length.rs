//! Finds the length of a file's requests: the one free axis of its inputs, apart from the batch.
//!
//! Whether requests may be padded along it is another question. If a mask says which elements
//! count, padding changes nothing, provided that the outputs can be cut back. Without a mask, only
//! the configuration of the model can allow padding.

use super::specs::{Axes, Specs};
use crate::{DataType, Length, Padding, TensorSpec};

/// The length of requests for this file. Axes are counted as in the file: with the batch.
pub(super) fn find(file: &Specs) -> Option<Length> {
    let first = |spec: &TensorSpec| spec.shape.first() == Some(&-1);
    let skip = usize::from(file.inputs.iter().all(first));
    let mut symbol: Option<Symbol> = None;
    let mut inputs = Vec::with_capacity(file.inputs.len());
    for (spec, axes) in file.inputs.iter().zip(&file.axes.inputs) {
        inputs.push(match free(spec, skip).as_slice() {
            [] => None,
            &[at] => {
                let other = Symbol::new(axes, at);
                if *symbol.get_or_insert_with(|| other.clone()) != other {
                    return None;
                }
                Some(at)
            }
            _ => return None,
        });
    }
    let symbol = symbol?;
    let outputs = file.outputs.iter().zip(&file.axes.outputs);
    let outputs: Option<Vec<_>> =
        outputs.map(|(spec, axes)| on_output(spec, axes, skip, &symbol)).collect();
    let masked =
        file.inputs.iter().zip(&inputs).any(|(spec, axis)| axis.is_some() && is_mask(spec));
    let padding = outputs.is_some() && masked;
    Some(Length {
        padding: padding.then(|| Padding { fill: vec![0; inputs.len()] }),
        outputs: outputs.unwrap_or_else(|| vec![None; file.outputs.len()]),
        inputs,
        longest: usize::MAX,
    })
}

/// The identity of an axis: its name in the file, or its index if it has no name.
#[derive(Clone, PartialEq, Eq)]
enum Symbol {
    Name(String),
    Index(usize),
}

impl Symbol {
    fn new(axes: &Axes, at: usize) -> Self {
        match axes.get(at).filter(|name| !name.is_empty()) {
            Some(name) => Self::Name(name.clone()),
            None => Self::Index(at),
        }
    }
}

/// The free axes of a tensor, after the skipped ones.
fn free(spec: &TensorSpec, skip: usize) -> Vec<usize> {
    (skip..spec.shape.len()).filter(|&at| spec.shape[at] == -1).collect()
}

/// Which axis of an output is the length, if any; `None` if the file does not tell.
fn on_output(
    spec: &TensorSpec,
    axes: &Axes,
    skip: usize,
    symbol: &Symbol,
) -> Option<Option<usize>> {
    match free(spec, skip).as_slice() {
        // The library reports an unknown number of axes as none.
        [] => (!spec.shape.is_empty()).then_some(None),
        &[at] => (Symbol::new(axes, at) == *symbol).then_some(Some(at)),
        _ => None,
    }
}

/// Whether zeros in this input keep elements from counting. Masks of floating-point numbers are
/// excluded, because models may add them to scores, where zero counts. Masks of the padding are
/// excluded, because they are one where nothing is.
fn is_mask(spec: &TensorSpec) -> bool {
    let name = spec.name.to_ascii_lowercase();
    let whole = !matches!(
        spec.datatype,
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 | DataType::Bytes
    );
    whole && name.contains("mask") && !name.contains("pad")
}

#[cfg(test)]
mod tests {
    use super::super::specs::AxisNames;
    use super::*;

    /// A tensor by its name, type and axes. An axis is a number, `?` for a free one without a name,
    /// or a name.
    type Declared<'a> = (&'a str, DataType, &'a str);

    fn side(declared: &[Declared<'_>]) -> (Vec<TensorSpec>, Vec<Axes>) {
        let one = |&(name, datatype, axes): &Declared<'_>| {
            let words: Vec<&str> = axes.split_whitespace().collect();
            let shape = words.iter().map(|word| word.parse().unwrap_or(-1)).collect();
            let named = |word: &&str| match word.parse::<i64>().is_ok() || *word == "?" {
                true => String::new(),
                false => (*word).to_owned(),
            };
            let spec = TensorSpec { name: name.to_owned(), datatype, shape };
            (spec, words.iter().map(named).collect())
        };
        declared.iter().map(one).unzip()
    }

    fn find_in(inputs: &[Declared<'_>], outputs: &[Declared<'_>]) -> Option<Length> {
        let ((inputs, input_axes), (outputs, output_axes)) = (side(inputs), side(outputs));
        let axes = AxisNames { inputs: input_axes, outputs: output_axes };
        find(&Specs { inputs, outputs, axes })
    }

    const I: DataType = DataType::Int64;
    const F: DataType = DataType::Fp32;

    #[test]
    fn an_encoder_with_a_mask_is_padded() {
        let inputs = [("ids", I, "batch words"), ("attention_mask", I, "batch words")];
        let outputs = [("hidden", F, "batch words 384"), ("pooled", F, "batch 384")];
        let length = find_in(&inputs, &outputs).unwrap();
        assert_eq!(length.inputs, [Some(1), Some(1)]);
        assert_eq!(length.outputs, [Some(1), None]);
        assert_eq!(length.padding, Some(Padding { fill: vec![0, 0] }));
        let unnamed = [("ids", I, "? ?"), ("mask", DataType::Bool, "? ?"), ("style", F, "? 4")];
        let length = find_in(&unnamed, &[("y", F, "? ?")]).unwrap();
        assert_eq!((length.inputs, length.outputs), (vec![Some(1), Some(1), None], vec![Some(1)]));
        assert!(length.padding.is_some());
    }

    #[test]
    fn without_a_mask_that_zeros_it_is_not_padded() {
        for (name, datatype) in [("types", I), ("mask", F), ("src_key_padding_mask", I)] {
            let inputs = [("ids", I, "batch words"), (name, datatype, "batch words")];
            let length = find_in(&inputs, &[("y", F, "batch 3")]).unwrap();
            assert_eq!((length.inputs, length.padding), (vec![Some(1); 2], None), "{name}");
        }
    }

    #[test]
    fn outputs_that_cannot_be_told_are_not_cut() {
        let inputs = [("ids", I, "batch words"), ("mask", I, "batch words")];
        for axes in ["batch other", "batch words words", "batch ? 3", ""] {
            let length = find_in(&inputs, &[("y", F, axes)]).unwrap();
            assert_eq!((length.outputs, length.padding), (vec![None], None), "{axes}");
        }
    }

    #[test]
    fn axes_that_differ_are_no_length() {
        assert_eq!(find_in(&[("x", F, "batch 3 high wide")], &[]), None);
        assert_eq!(find_in(&[("a", I, "batch one"), ("mask", I, "batch two")], &[]), None);
        assert_eq!(find_in(&[("a", I, "? ?"), ("mask", I, "? 3 ?")], &[]), None);
        assert_eq!(find_in(&[("x", F, "batch 16")], &[]), None);
        assert_eq!(find_in(&[], &[]), None);
        let fixed = find_in(&[("x", F, "1 length")], &[("y", F, "1 length")]).unwrap();
        assert_eq!(fixed.inputs, [Some(1)]);
    }
}
