//! What goes into a model and what comes out.

use serde::{Deserialize, Serialize};

use crate::DataType;

/// One input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// What its elements are.
    pub datatype: DataType,
    /// Its axes without the batch; -1 where any length will do.
    pub shape: Vec<i64>,
}

/// The inputs and outputs of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The largest batch; every tensor then has the batch as an axis before those of its spec. Zero for
    /// a model that takes one request at a time, whose specs have all axes: Triton's convention.
    pub max_batch: usize,
    /// The inputs, in the order in which sessions take them.
    pub inputs: Vec<TensorSpec>,
    /// The outputs, in the order in which sessions give them.
    pub outputs: Vec<TensorSpec>,
    /// Which axes are the length of a request; `None` for a model whose requests have none.
    pub length: Option<Length>,
}

/// Which axes are the length. Axes are counted as in [`TensorSpec::shape`]: without the batch, where there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Padding {
    /// For each input of the signature, what stands behind the end; zero for a mask, so that it does not count. Strings
    /// are empty there.
    pub fill: Vec<i64>,
}
