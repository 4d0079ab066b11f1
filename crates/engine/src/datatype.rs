//! The element types of tensors, named as the Open Inference Protocol names them.

use serde::{Deserialize, Serialize};
use std::fmt;

use half::{bf16, f16};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DataType {
    /// One byte, zero or one.
    Bool,
    /// Unsigned, 8 bits.
    Uint8,
    /// Unsigned, 16 bits.
    Uint16,
    /// Unsigned, 32 bits.
    Uint32,
    /// Unsigned, 64 bits.
    Uint64,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// IEEE half precision.
    Fp16,
    /// IEEE single precision.
    Fp32,
    /// IEEE double precision.
    Fp64,
    /// The upper half of a single: bfloat16.
    Bf16,
    /// Strings of bytes, each preceded by its length.
    Bytes,
}

impl DataType {
    /// All of them, in the order of Triton's configuration.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Fp32,
        Self::Fp64,
        Self::Bytes,
        Self::Bf16,
    ];

    /// The name in the protocol: `FP32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Bf16 => "BF16",
            Self::Bytes => "BYTES",
        }
    }

    /// The type with this name in the protocol.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|datatype| datatype.name() == name)
    }

    /// Bytes per element; `None` if elements differ in length.
    pub fn size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }

    /// The bytes of one element with this value; `None` if the type cannot hold the value, or is of
    /// strings.
    pub fn whole_number(self, value: i64) -> Option<Vec<u8>> {
        Some(match self {
            Self::Bool => u8::try_from(value).ok().filter(|&bit| bit <= 1)?.to_le_bytes().to_vec(),
            Self::Uint8 => u8::try_from(value).ok()?.to_le_bytes().to_vec(),
            Self::Uint16 => u16::try_from(value).ok()?.to_le_bytes().to_vec(),
            Self::Uint32 => u32::try_from(value).ok()?.to_le_bytes().to_vec(),
            Self::Uint64 => u64::try_from(value).ok()?.to_le_bytes().to_vec(),
            Self::Int8 => i8::try_from(value).ok()?.to_le_bytes().to_vec(),
            Self::Int16 => i16::try_from(value).ok()?.to_le_bytes().to_vec(),
            Self::Int32 => i32::try_from(value).ok()?.to_le_bytes().to_vec(),
            Self::Int64 => value.to_le_bytes().to_vec(),
            Self::Fp16 => f16::from_f64(value as f64).to_le_bytes().to_vec(),
            Self::Bf16 => bf16::from_f64(value as f64).to_le_bytes().to_vec(),
            Self::Fp32 => (value as f32).to_le_bytes().to_vec(),
            Self::Fp64 => (value as f64).to_le_bytes().to_vec(),
            Self::Bytes => return None,
        })
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back() {
        for datatype in DataType::ALL {
            assert_eq!(DataType::from_name(datatype.name()), Some(datatype));
        }
        assert_eq!(DataType::from_name("fp32"), None);
    }

    #[test]
    fn whole_numbers_are_as_long_as_an_element_and_fit() {
        for datatype in DataType::ALL {
            let one = datatype.whole_number(1);
            assert_eq!(one.map(|bytes| bytes.len()), datatype.size());
        }
        assert_eq!(DataType::Fp32.whole_number(-2).unwrap(), (-2.0_f32).to_le_bytes());
        assert_eq!(DataType::Int32.whole_number(-2).unwrap(), (-2_i32).to_le_bytes());
        assert_eq!(DataType::Uint8.whole_number(256), None);
        assert_eq!(DataType::Bool.whole_number(2), None);
    }
}
