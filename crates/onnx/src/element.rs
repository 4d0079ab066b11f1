//! What the elements of a tensor are.

use std::fmt;

use crate::proto::DataType;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Floating point of two bytes.
    Fp16,
    /// Floating point of four bytes.
    Fp32,
    /// An integer of eight bytes.
    Int64,
    /// A byte.
    Uint8,
}

impl Element {
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Fp16 => DataType::Float16,
            Self::Fp32 => DataType::Float,
            Self::Int64 => DataType::Int64,
            Self::Uint8 => DataType::Uint8,
        }
    }
}

/// As in the Open Inference Protocol.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fp16 => "FP16",
            Self::Fp32 => "FP32",
            Self::Int64 => "INT64",
            Self::Uint8 => "UINT8",
        })
    }
}
