//! The inputs and outputs of a model: their types, axes and lengths.

use serde::{Deserialize, Serialize};

use crate::DataType;

/// One input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub datatype: DataType,
    /// Its axes without the batch; -1 if an axis may have any length.
    pub shape: Vec<i64>,
}

/// The inputs and outputs of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The largest batch. Every tensor then has the batch as its first axis, before those of its
    /// spec. Zero for a model that takes one request at a time, and whose specs have all axes:
    /// Triton's convention.
    pub max_batch: usize,
    /// The inputs, in the order in which sessions take them.
    pub inputs: Vec<TensorSpec>,
    /// The outputs, in the order in which sessions return them.
    pub outputs: Vec<TensorSpec>,
    /// Which axes are the length of a request; `None` if requests have no length.
    pub length: Option<Length>,
}

/// Which axes are the length of a request. Axes are counted as in [`TensorSpec::shape`]: without
/// the batch, if there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Length {
    /// For each input of the signature, the index of the axis that is the length; `None` for inputs
    /// without it. At least one input has it.
    pub inputs: Vec<Option<usize>>,
    /// The same for each output.
    pub outputs: Vec<Option<usize>>,
    /// The longest request that is accepted.
    pub longest: usize,
    /// How requests of different lengths run together; without it, they run apart.
    pub padding: Option<Padding>,
}

/// How the shorter requests of a batch are padded to the longest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Padding {
    /// For each input of the signature, the value behind the end: zero for a mask, so that the
    /// padding does not count. For strings it is zero too, and stands for the empty string.
    pub fill: Vec<i64>,
}
