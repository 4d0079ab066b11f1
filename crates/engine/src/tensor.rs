//! A tensor as the protocol's raw bytes. Engines read the same bytes, so that nothing is copied on
//! the way.

use bytes::{Bytes, BytesMut};

use crate::DataType;

/// A tensor: row-major, little-endian. Elements of `BYTES` are preceded by their length, in four
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The type of its elements.
    pub datatype: DataType,
    /// How many elements there are along each axis. The first axis of a batched model is the batch.
    pub shape: Vec<i64>,
    /// The elements. They are shared, so that cloning a tensor is cheap.
    pub data: Bytes,
}

/// Bytes of the length that precedes each element of `BYTES`.
const PREFIX: usize = 4;

impl Tensor {
    /// How many elements a tensor of this shape has; `None` if an axis is negative or the product
    /// is too large.
    pub fn elements(shape: &[i64]) -> Option<usize> {
        shape
            .iter()
            .try_fold(1_usize, |product, &axis| product.checked_mul(usize::try_from(axis).ok()?))
    }

    /// A tensor of zeros; of empty strings for `BYTES`. `None` if an axis is negative or the
    /// product is too large.
    pub fn zeros(datatype: DataType, shape: Vec<i64>) -> Option<Self> {
        let length = Self::elements(&shape)?.checked_mul(datatype.size().unwrap_or(PREFIX))?;
        Some(Self { datatype, shape, data: vec![0; length].into() })
    }

    /// Whether the data is exactly as long as shape and type require. The error says what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        let elements = Self::elements(&self.shape)
            .ok_or_else(|| format!("shape {:?} is negative or too large", self.shape))?;
        match self.datatype.size() {
            Some(size) => {
                let expected = elements
                    .checked_mul(size)
                    .ok_or_else(|| format!("shape {:?} is too large", self.shape))?;
                if self.data.len() == expected {
                    return Ok(());
                }
                let (given, shape, datatype) = (self.data.len(), &self.shape, self.datatype);
                Err(format!("{given} bytes where {datatype} {shape:?} takes {expected}"))
            }
            None => {
                let end = skip_strings(&self.data, 0, elements)?;
                if end == self.data.len() {
                    return Ok(());
                }
                let rest = self.data.len() - end;
                Err(format!("{rest} bytes left after the {elements} elements of {:?}", self.shape))
            }
        }
    }

    /// The strings of a tensor of `BYTES`, up to the first that exceeds the data.
    pub fn strings(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at + PREFIX;
            at = string_end(&self.data, at)?;
            Some(&self.data[start..at])
        })
    }

    /// Splits the tensor into its `n` rows along the first axis, without copying. The first axis of
    /// each is one.
    ///
    /// # Panics
    ///
    /// If the first axis is not `n`, or the tensor would not pass [`Tensor::validate`].
    pub fn rows(&self, n: usize) -> Vec<Self> {
        let axis = self.shape.first().copied();
        assert_eq!(axis, i64::try_from(n).ok(), "the first axis is the number of rows");
        if n == 1 {
            return vec![self.clone()];
        }
        let mut shape = self.shape.clone();
        shape[0] = 1;
        let elements = Self::elements(&shape).expect("a part of a valid shape is valid");
        let mut at = 0;
        (0..n)
            .map(|_| {
                let end = match self.datatype.size() {
                    Some(size) => at + elements * size,
                    None => skip_strings(&self.data, at, elements).expect("the data is valid"),
                };
                let data = self.data.slice(at..end);
                at = end;
                Self { datatype: self.datatype, shape: shape.clone(), data }
            })
            .collect()
    }

    /// The first `length` elements along an axis. Nothing is copied if all axes before it are one.
    ///
    /// # Panics
    ///
    /// If the axis is shorter, or the tensor would not pass [`Tensor::validate`].
    pub(crate) fn shortened(&self, axis: usize, length: usize) -> Self {
        let mut shape = self.shape.clone();
        shape[axis] = i64::try_from(length).expect("no axis is that long");
        assert!(shape[axis] <= self.shape[axis], "the axis is as long");
        let elements = |shape| Self::elements(shape).expect("a part of a valid shape is valid");
        let outer = elements(&shape[..axis]);
        let (kept, whole) = (elements(&shape[axis..]), elements(&self.shape[axis..]));
        let mut end = 0;
        let mut ranges = (0..outer).map(|_| {
            let start = end;
            let after = |count| match self.datatype.size() {
                Some(size) => start + count * size,
                None => skip_strings(&self.data, start, count).expect("the data is valid"),
            };
            end = after(whole);
            start..after(kept)
        });
        let data = match outer {
            1 => self.data.slice(ranges.next().expect("there is one")),
            _ => ranges.flat_map(|range| self.data[range].iter().copied()).collect(),
        };
        Self { datatype: self.datatype, shape, data }
    }

    /// Joins tensors along the first axis. A single tensor is shared, not copied. The error says
    /// which tensors do not fit together.
    pub fn concat(parts: &[Self]) -> Result<Self, String> {
        let Some((first, others)) = parts.split_first() else {
            return Err("there is nothing to join".to_owned());
        };
        if others.is_empty() {
            return Ok(first.clone());
        }
        let mut rows = 0_i64;
        let mut length = 0_usize;
        for part in parts {
            let fits = part.datatype == first.datatype
                && !part.shape.is_empty()
                && part.shape.get(1..) == first.shape.get(1..);
            if !fits {
                let (one, other) = (first.describe(), part.describe());
                return Err(format!("{one} and {other} cannot be joined along the first axis"));
            }
            let too_long = || "the parts are too long to be joined".to_owned();
            rows = rows.checked_add(part.shape[0]).ok_or_else(too_long)?;
            length = length.checked_add(part.data.len()).ok_or_else(too_long)?;
        }
        let mut data = BytesMut::with_capacity(length);
        parts.iter().for_each(|part| data.extend_from_slice(&part.data));
        let mut shape = first.shape.clone();
        shape[0] = rows;
        Ok(Self { datatype: first.datatype, shape, data: data.freeze() })
    }

    /// Type and shape, for error messages.
    pub(crate) fn describe(&self) -> String {
        format!("{} {:?}", self.datatype, self.shape)
    }
}

/// Where the string that begins at `at` ends; `None` if the data ends before it.
fn string_end(data: &[u8], at: usize) -> Option<usize> {
    let start = at.checked_add(PREFIX)?;
    let prefix = data.get(at..start)?.try_into().ok()?;
    let end = start.checked_add(u32::from_le_bytes(prefix) as usize)?;
    (end <= data.len()).then_some(end)
}

/// Where `count` strings that begin at `at` end.
fn skip_strings(data: &[u8], at: usize, count: usize) -> Result<usize, String> {
    let mut end = at;
    for index in 0..count {
        end = string_end(data, end)
            .ok_or_else(|| format!("the data ends in element {index} of {count}"))?;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(datatype: DataType, shape: &[i64], data: impl Into<Bytes>) -> Tensor {
        Tensor { datatype, shape: shape.to_vec(), data: data.into() }
    }

    fn strings(shape: &[i64], strings: &[&str]) -> Tensor {
        let mut data = Vec::new();
        for string in strings {
            data.extend_from_slice(&(string.len() as u32).to_le_bytes());
            data.extend_from_slice(string.as_bytes());
        }
        tensor(DataType::Bytes, shape, data)
    }

    #[test]
    fn data_must_fit_the_shape() {
        assert_eq!(tensor(DataType::Fp32, &[1, 2], vec![0; 8]).validate(), Ok(()));
        assert_eq!(tensor(DataType::Fp32, &[], vec![0; 4]).validate(), Ok(()));
        assert_eq!(tensor(DataType::Fp32, &[0, 2], vec![]).validate(), Ok(()));
        let message = tensor(DataType::Fp32, &[1, 2], vec![0; 7]).validate().unwrap_err();
        assert_eq!(message, "7 bytes where FP32 [1, 2] takes 8");
    }

    #[test]
    fn hostile_shapes_are_refused() {
        for shape in [&[-1][..], &[i64::MIN], &[i64::MAX, 3], &[i64::MAX, i64::MAX, 0]] {
            for datatype in DataType::ALL {
                tensor(datatype, shape, vec![0; 8]).validate().unwrap_err();
            }
        }
        // The number of elements fits in a word; the number of bytes does not.
        tensor(DataType::Fp64, &[i64::MAX], vec![0; 8]).validate().unwrap_err();
        tensor(DataType::Bytes, &[i64::MAX], vec![0; 8]).validate().unwrap_err();
        assert_eq!(Tensor::zeros(DataType::Fp64, vec![i64::MAX]), None);
    }

    #[test]
    fn strings_must_fill_the_data() {
        let pair = strings(&[2], &["ab", ""]);
        assert_eq!(pair.validate(), Ok(()));
        assert_eq!(pair.strings().collect::<Vec<_>>(), [&b"ab"[..], b""]);
        let message = Tensor { shape: vec![1], ..pair.clone() }.validate().unwrap_err();
        assert_eq!(message, "4 bytes left after the 1 elements of [1]");
        let message = Tensor { shape: vec![3], ..pair.clone() }.validate().unwrap_err();
        assert_eq!(message, "the data ends in element 2 of 3");
        tensor(DataType::Bytes, &[1], vec![255, 255, 255, 255, 0]).validate().unwrap_err();
        tensor(DataType::Bytes, &[1], vec![1, 0, 0]).validate().unwrap_err();
    }

    #[test]
    fn rows_share_the_data_and_join_again() {
        let numbers = tensor(DataType::Int16, &[3, 2], (0..12).collect::<Vec<u8>>());
        let words = strings(&[3, 1], &["a", "", "long"]);
        for whole in [numbers, words] {
            let rows = whole.rows(3);
            assert!(rows.iter().all(|row| row.shape[0] == 1 && row.validate() == Ok(())));
            assert_eq!(rows[0].data.as_ptr(), whole.data.as_ptr());
            assert_eq!(Tensor::concat(&rows), Ok(whole));
        }
    }

    #[test]
    fn a_tensor_is_cut_along_an_axis() {
        let numbers = tensor(DataType::Int16, &[1, 3, 2], (0..12).collect::<Vec<u8>>());
        let cut = numbers.shortened(1, 2);
        assert_eq!(cut, tensor(DataType::Int16, &[1, 2, 2], (0..8).collect::<Vec<u8>>()));
        assert_eq!(cut.data.as_ptr(), numbers.data.as_ptr(), "it was copied");
        let inner = tensor(DataType::Int16, &[1, 3, 1], vec![0, 1, 4, 5, 8, 9]);
        assert_eq!(numbers.shortened(2, 1), inner);
        let words = strings(&[2, 2], &["a", "bc", "", "def"]);
        assert_eq!(words.shortened(1, 1), strings(&[2, 1], &["a", ""]));
        assert_eq!(words.shortened(0, 1), strings(&[1, 2], &["a", "bc"]));
        assert_eq!(words.shortened(1, 0), strings(&[2, 0], &[]));
    }

    #[test]
    fn one_part_is_not_copied_and_misfits_are_named() {
        let one = tensor(DataType::Uint8, &[1, 2], vec![1, 2]);
        assert_eq!(
            Tensor::concat(std::slice::from_ref(&one)).unwrap().data.as_ptr(),
            one.data.as_ptr()
        );
        let other = tensor(DataType::Uint8, &[1, 1], vec![1]);
        assert_eq!(
            Tensor::concat(&[one, other]).unwrap_err(),
            "UINT8 [1, 2] and UINT8 [1, 1] cannot be joined along the first axis"
        );
        Tensor::concat(&[]).unwrap_err();
        let scalar = tensor(DataType::Uint8, &[], vec![1]);
        Tensor::concat(&[scalar.clone(), scalar]).unwrap_err();
    }

    #[test]
    fn zeros_of_strings_are_empty_strings() {
        let zeros = Tensor::zeros(DataType::Bytes, vec![2, 1]).unwrap();
        assert_eq!(zeros.validate(), Ok(()));
        assert!(zeros.strings().all(<[u8]>::is_empty));
    }
}
