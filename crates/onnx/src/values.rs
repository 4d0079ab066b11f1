//! The elements of weights and constants, which are drawn when they are written.

use std::io::{self, Write};

use half::f16;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use rand::RngCore;
use rand_pcg::Pcg64Mcg;

use crate::proto::{DataType, RAW_DATA_TAG, TensorProto};

/// How many elements are drawn at a time: small enough for the cache, and large enough that writing
/// them costs little.
const CHUNK: usize = 16_384;

/// A weight or a constant: all that a file says of it, and a rule for its elements.
#[derive(Clone, Debug)]
pub(crate) struct Initializer {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Values,
}

/// What the elements are.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// These numbers.
    Floats(Vec<f32>),
    /// These integers.
    Integers(Vec<i64>),
    /// This number, everywhere.
    Same(f32),
    /// Drawn evenly from `mean - bound` to `mean + bound`.
    Uniform { mean: f32, bound: f32 },
}

impl Values {
    /// Around zero, with this standard deviation.
    pub(crate) fn deviation(deviation: f32) -> Self {
        Self::Uniform { mean: 0.0, bound: deviation * 3f32.sqrt() }
    }
}

impl Initializer {
    /// How many elements it has.
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The bytes of its elements.
    pub(crate) fn bytes(&self) -> usize {
        self.elements() * width(self.data_type)
    }

    /// The bytes of its message.
    pub(crate) fn encoded_len(&self) -> usize {
        let bytes = self.bytes();
        self.head().encoded_len() + key_len(RAW_DATA_TAG) + encoded_len_varint(bytes as u64) + bytes
    }

    /// Writes its message.
    pub(crate) fn encode(&self, random: &mut Pcg64Mcg, out: &mut impl Write) -> io::Result<()> {
        let mut buffer = self.head().encode_to_vec();
        encode_key(RAW_DATA_TAG, WireType::LengthDelimited, &mut buffer);
        encode_varint(self.bytes() as u64, &mut buffer);
        out.write_all(&buffer)?;
        match &self.values {
            Values::Floats(values) => {
                assert_eq!(
                    values.len(),
                    self.elements(),
                    "{}: as many as its shape has",
                    self.name
                );
                self.write_floats(out, values.iter().copied())
            }
            Values::Integers(values) => {
                assert_eq!(
                    values.len(),
                    self.elements(),
                    "{}: as many as its shape has",
                    self.name
                );
                assert_eq!(self.data_type, DataType::Int64, "{}: integers of one kind", self.name);
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                out.write_all(&bytes)
            }
            Values::Same(value) => {
                self.write_floats(out, std::iter::repeat_n(*value, self.elements()))
            }
            Values::Uniform { mean, bound } => {
                let draw = || mean + bound * unit(random.next_u32());
                self.write_floats(out, std::iter::repeat_with(draw).take(self.elements()))
            }
        }
    }

    /// Its message without the elements.
    fn head(&self) -> TensorProto {
        TensorProto {
            dims: self.shape.iter().map(|&axis| axis as i64).collect(),
            data_type: self.data_type.into(),
            name: self.name.clone(),
            raw_data: Vec::new(),
        }
    }

    fn write_floats(
        &self,
        out: &mut impl Write,
        mut values: impl Iterator<Item = f32>,
    ) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(CHUNK * width(self.data_type));
        loop {
            let chunk = values.by_ref().take(CHUNK);
            match self.data_type {
                DataType::Float => chunk.for_each(|value| buffer.extend(value.to_le_bytes())),
                DataType::Float16 => {
                    chunk.for_each(|value| buffer.extend(f16::from_f32(value).to_le_bytes()));
                }
                other => panic!("{}: numbers are not written as {other:?}", self.name),
            }
            if buffer.is_empty() {
                return Ok(());
            }
            out.write_all(&buffer)?;
            buffer.clear();
        }
    }
}

/// A number from -1 to 1 out of random bits: as many as a float keeps.
fn unit(bits: u32) -> f32 {
    const STEPS: f32 = (1 << 23) as f32;
    (bits >> 8) as f32 / STEPS - 1.0
}

/// The bytes of an element.
fn width(data_type: DataType) -> usize {
    match data_type {
        DataType::Float => 4,
        DataType::Float16 => 2,
        DataType::Int64 => 8,
        DataType::Uint8 => 1,
        DataType::Undefined => panic!("elements have a type"),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn written(data_type: DataType, shape: &[usize], values: Values) -> TensorProto {
        let initializer =
            Initializer { name: "w".to_owned(), data_type, shape: shape.to_vec(), values };
        let mut bytes = Vec::new();
        initializer.encode(&mut Pcg64Mcg::seed_from_u64(1), &mut bytes).expect("memory takes it");
        assert_eq!(bytes.len(), initializer.encoded_len());
        TensorProto::decode(&*bytes).expect("it is a message")
    }

    #[test]
    fn what_is_written_in_pieces_is_one_message() {
        let shape = [3, CHUNK, 1];
        let tensor = written(DataType::Float, &shape, Values::deviation(0.5));
        assert_eq!((tensor.dims.as_slice(), tensor.name.as_str()), (&[3, 16_384, 1][..], "w"));
        let (values, rest) = tensor.raw_data.as_chunks();
        assert!(rest.is_empty());
        let values: Vec<f64> =
            values.iter().map(|value| f64::from(f32::from_le_bytes(*value))).collect();
        assert_eq!(values.len(), 3 * CHUNK);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.01 && (square.sqrt() - 0.5).abs() < 0.01, "{mean} {square}");
    }

    #[test]
    fn the_halves_of_a_seed_are_its_floats_rounded() {
        let floats = written(DataType::Float, &[100], Values::deviation(1.0)).raw_data;
        let halves = written(DataType::Float16, &[100], Values::deviation(1.0)).raw_data;
        let rounded: Vec<u8> = floats
            .as_chunks()
            .0
            .iter()
            .flat_map(|value| f16::from_f32(f32::from_le_bytes(*value)).to_le_bytes())
            .collect();
        assert_eq!(halves, rounded);
    }

    #[test]
    fn constants_are_written_as_given() {
        let tensor = written(DataType::Int64, &[2], Values::Integers(vec![0, -1]));
        assert_eq!(tensor.raw_data, [0i64.to_le_bytes(), (-1i64).to_le_bytes()].concat());
        let tensor = written(DataType::Float, &[], Values::Floats(vec![6.0]));
        assert_eq!((tensor.raw_data, tensor.dims), (6f32.to_le_bytes().to_vec(), vec![]));
        let tensor = written(DataType::Float16, &[2], Values::Same(1.0));
        assert_eq!(tensor.raw_data, [0x00, 0x3c, 0x00, 0x3c]);
    }
}
