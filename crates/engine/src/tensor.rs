//! A tensor as the protocol's raw bytes, which is also what engines read: no copy on the way.

use bytes::Bytes;

use crate::DataType;

/// A tensor: row-major, little-endian. Elements of `BYTES` have their length before them, as four bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// What its elements are.
    pub datatype: DataType,
    /// How many there are along each axis; for a batched model the first axis is the batch.
    pub shape: Vec<i64>,
    /// The elements. Shared, so that a copy of a tensor is cheap.
    pub data: Bytes,
}

impl Tensor {
    /// How many elements a tensor of this shape has; `None` if an axis is negative or the product too large.
    pub fn elements(shape: &[i64]) -> Option<usize> {
        shape
            .iter()
            .try_fold(1_usize, |product, &axis| product.checked_mul(usize::try_from(axis).ok()?))
    }
}
