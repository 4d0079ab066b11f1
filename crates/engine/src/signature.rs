//! What goes into a model and what comes out.

use crate::{DataType, Length};
use serde::{Deserialize, Serialize};

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
