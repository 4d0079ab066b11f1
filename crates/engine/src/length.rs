//! The length of a request: an axis that its tensors share and whose length every request chooses, such as the words
//! of a sentence. It says how long a request runs, and along it requests of other lengths can be padded to run together.

use crate::{Signature, Tensor, TensorSpec};

/// Which axes are the length. Axes are counted as in [`TensorSpec::shape`]: without the batch, where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Length {
    /// For each input of the signature, which of its axes is the length; `None` for those that have none of it. At least
    /// one has.
    pub inputs: Vec<Option<usize>>,
    /// The same for each output.
    pub outputs: Vec<Option<usize>>,
    /// The longest that is taken; a longer request is refused.
    pub longest: usize,
    /// How requests that differ in length run together; without it, they run apart.
    pub padding: Option<Padding>,
}

/// How the shorter requests of a batch are made as long as the longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// For each input of the signature, what stands behind the end; zero for a mask, so that it does not count. Strings
    /// are empty there.
    pub fill: Vec<i64>,
}

impl Length {
    /// The length of a request, from its inputs in the order of the signature; their first axis may be the batch.
    fn of(&self, batched: bool, inputs: &[Tensor]) -> Option<usize> {
        let first =
            self.inputs.iter().zip(inputs).find_map(|(axis, input)| Some(((*axis)?, input)));
        let (axis, input) = first?;
        usize::try_from(*input.shape.get(axis + usize::from(batched))?).ok()
    }
}

impl Signature {
    /// How long a request is along the length of the model; `None` for a model that has none.
    pub fn length_of(&self, inputs: &[Tensor]) -> Option<usize> {
        self.length.as_ref()?.of(self.max_batch > 0, inputs)
    }

    /// Whether a request that fits the specs has one length, and one that is taken. The error says what is wrong.
    ///
    /// A model that is not padded is not asked: it may make something of inputs that differ.
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
