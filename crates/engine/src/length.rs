//! The length of a request: an axis that its tensors share and whose length every request chooses,
//! such as the words of a sentence. It determines how long a request runs, and along it requests of
//! different lengths can be padded to run together.

use crate::{Length, Padding, Signature, Tensor, TensorSpec};

impl Signature {
    /// This signature with the length of `whole`, of which it is a part: fewer outputs, another
    /// order, fixed axes, the batch among the axes or not. There is no length if the axis of an
    /// input is fixed.
    pub fn with_length_of(mut self, whole: &Self) -> Self {
        self.length = whole.length.as_ref().and_then(|length| {
            let place = |specs: &[TensorSpec], spec: &TensorSpec| {
                specs.iter().position(|has| has.name == spec.name)
            };
            // If the batch is no axis of the spec, all other axes have an index that is lower by
            // one.
            let (more, less) = (usize::from(whole.max_batch > 0), usize::from(self.max_batch > 0));
            let axis = |axis: Option<usize>, spec: &TensorSpec| {
                let here = (axis? + more).checked_sub(less)?;
                (spec.shape.get(here) == Some(&-1)).then_some(here)
            };
            let mut inputs = Vec::with_capacity(self.inputs.len());
            let mut fill = Vec::with_capacity(self.inputs.len());
            for spec in &self.inputs {
                let at = place(&whole.inputs, spec)?;
                let here = axis(length.inputs[at], spec);
                if here.is_some() != length.inputs[at].is_some() {
                    return None;
                }
                inputs.push(here);
                fill.push(length.padding.as_ref().map_or(0, |padding| padding.fill[at]));
            }
            let mut padding = length.padding.as_ref().map(|_| Padding { fill });
            let mut outputs = Vec::with_capacity(self.outputs.len());
            for spec in &self.outputs {
                let before = place(&whole.outputs, spec).and_then(|at| length.outputs[at]);
                let here = axis(before, spec);
                if here.is_some() != before.is_some() {
                    // The output could not be cut back.
                    padding = None;
                }
                outputs.push(here);
            }
            Some(Length { inputs, outputs, longest: length.longest, padding })
        });
        self
    }

    /// Whether the length fits this signature. The error says what does not.
    pub(crate) fn validate_length(&self) -> Result<(), String> {
        let Some(length) = &self.length else { return Ok(()) };
        let sides =
            [("input", &self.inputs, &length.inputs), ("output", &self.outputs, &length.outputs)];
        for (side, specs, axes) in sides {
            if specs.len() != axes.len() {
                let (covered, all) = (axes.len(), specs.len());
                return Err(format!("the length covers {covered} of {all} {side}s"));
            }
            for (spec, axis) in specs.iter().zip(axes) {
                if axis.is_some_and(|axis| spec.shape.get(axis) != Some(&-1)) {
                    let TensorSpec { name, shape, .. } = spec;
                    return Err(format!(
                        "the length of {side} '{name}' is no free axis of {shape:?}"
                    ));
                }
            }
        }
        let Some(padding) = &length.padding else { return Ok(()) };
        if self.inputs.len() != padding.fill.len() {
            let (covered, all) = (padding.fill.len(), self.inputs.len());
            return Err(format!("the padding covers {covered} of {all} inputs"));
        }
        for (spec, &fill) in self.inputs.iter().zip(&padding.fill) {
            let TensorSpec { name, datatype, .. } = spec;
            // Strings are padded with empty ones, written as zero.
            let zero = fill == 0 && datatype.size().is_none();
            if !zero && datatype.whole_number(fill).is_none() {
                return Err(format!("input '{name}' is {datatype}, which {fill} is not"));
            }
        }
        Ok(())
    }

    /// How long a request is along the length of the model; `None` for a model without a length.
    pub fn length_of(&self, inputs: &[Tensor]) -> Option<usize> {
        let length = self.length.as_ref()?;
        let mut both = length.inputs.iter().zip(inputs);
        let (axis, input) = both.find_map(|(axis, input)| Some(((*axis)?, input)))?;
        let batched = usize::from(self.max_batch > 0);
        usize::try_from(*input.shape.get(axis + batched)?).ok()
    }

    /// Whether a request that fits the specs has one length, and no more than the longest. The
    /// error says what is wrong.
    ///
    /// Without padding, inputs may differ in length: the model may have a use for that.
    pub fn check_length(&self, inputs: &[Tensor]) -> Result<(), String> {
        let Some(length) = &self.length else { return Ok(()) };
        let batched = usize::from(self.max_batch > 0);
        let mut first: Option<(&TensorSpec, i64)> = None;
        for ((spec, axis), input) in self.inputs.iter().zip(&length.inputs).zip(inputs) {
            let Some(axis) = axis else { continue };
            let Some(&is) = input.shape.get(axis + batched) else { continue };
            let name = &spec.name;
            if usize::try_from(is).is_ok_and(|is| is > length.longest) {
                let longest = length.longest;
                return Err(format!("input '{name}' has length {is}, the longest is {longest}"));
            }
            if length.padding.is_none() {
                continue;
            }
            if is == 0 {
                return Err(format!("input '{name}' has length 0"));
            }
            let (other, expected) = first.get_or_insert((spec, is));
            if *expected != is {
                let other = &other.name;
                return Err(format!(
                    "input '{name}' has length {is}, input '{other}' has {expected}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataType;

    fn spec(name: &str, shape: &[i64]) -> TensorSpec {
        TensorSpec { name: name.to_owned(), datatype: DataType::Int64, shape: shape.to_vec() }
    }

    fn request(lengths: &[i64]) -> Vec<Tensor> {
        let one = |&length| Tensor::zeros(DataType::Int64, vec![1, length]).unwrap();
        lengths.iter().map(one).collect()
    }

    fn encoder() -> Signature {
        Signature {
            max_batch: 8,
            inputs: vec![spec("ids", &[-1]), spec("mask", &[-1])],
            outputs: vec![spec("hidden", &[-1, 4]), spec("pooled", &[4])],
            length: Some(Length {
                inputs: vec![Some(0), Some(0)],
                outputs: vec![Some(0), None],
                longest: 512,
                padding: Some(Padding { fill: vec![7, 0] }),
            }),
        }
    }

    #[test]
    fn a_request_has_one_length() {
        let encoder = encoder();
        assert_eq!(encoder.length_of(&request(&[5, 5])), Some(5));
        assert_eq!(encoder.length_of(&[]), None);
        let wrong = |lengths: &[i64]| encoder.check_length(&request(lengths)).unwrap_err();
        assert_eq!(encoder.check_length(&request(&[512, 512])), Ok(()));
        assert_eq!(wrong(&[5, 4]), "input 'mask' has length 4, input 'ids' has 5");
        assert_eq!(wrong(&[513, 513]), "input 'ids' has length 513, the longest is 512");
        assert_eq!(wrong(&[0, 0]), "input 'ids' has length 0");
        let mut apart = encoder.clone();
        apart.length.as_mut().unwrap().padding = None;
        assert_eq!(apart.check_length(&request(&[5, 4])), Ok(()));
        let none = Signature { length: None, ..encoder };
        assert_eq!((none.length_of(&request(&[5, 5])), none.check_length(&[])), (None, Ok(())));
    }

    #[test]
    fn a_part_of_a_signature_keeps_the_length() {
        let whole = encoder();
        let part = Signature {
            max_batch: 0,
            inputs: vec![spec("mask", &[-1, -1]), spec("ids", &[-1, -1])],
            outputs: vec![spec("pooled", &[-1, 4])],
            length: None,
        };
        let length = part.clone().with_length_of(&whole).length.unwrap();
        assert_eq!((length.inputs, length.outputs), (vec![Some(1), Some(1)], vec![None]));
        assert_eq!(length.padding, Some(Padding { fill: vec![0, 7] }));
        let back = whole.clone().with_length_of(&part.with_length_of(&whole));
        assert_eq!(back.length.unwrap().inputs, [Some(0), Some(0)]);

        let fixed = Signature { inputs: vec![spec("ids", &[-1]), spec("mask", &[9])], ..encoder() };
        assert_eq!(fixed.with_length_of(&whole).length, None);
        let uncut = Signature { outputs: vec![spec("hidden", &[9, 4])], ..encoder() };
        assert_eq!(uncut.with_length_of(&whole).length.unwrap().padding, None);
    }

    #[test]
    fn a_length_of_another_signature_is_refused() {
        assert_eq!(encoder().validate_length(), Ok(()));
        let wrong = |change: &dyn Fn(&mut Length)| {
            let mut signature = encoder();
            change(signature.length.as_mut().unwrap());
            signature.validate_length().unwrap_err()
        };
        assert_eq!(
            wrong(&|length| length.outputs = vec![Some(1), None]),
            "the length of output 'hidden' is no free axis of [-1, 4]"
        );
        assert_eq!(wrong(&|length| length.inputs = vec![None]), "the length covers 1 of 2 inputs");
        assert_eq!(
            wrong(&|length| length.padding = Some(Padding { fill: vec![] })),
            "the padding covers 0 of 2 inputs"
        );
        let mut truth = encoder();
        truth.inputs[0].datatype = DataType::Bool;
        assert_eq!(truth.validate_length().unwrap_err(), "input 'ids' is BOOL, which 7 is not");
        truth.inputs[0].datatype = DataType::Bytes;
        truth.validate_length().unwrap_err();
        truth.length.as_mut().unwrap().padding = Some(Padding { fill: vec![0, 0] });
        assert_eq!(truth.validate_length(), Ok(()));
    }
}
