//! The classification extension: the largest values of an output, as `value:index[:label]`.

use std::cmp::Ordering;
use std::fmt::Write as _;

use bytes::Bytes;
use fermata_engine::{DataType, Tensor};

use super::strings::push_string;

/// The `count` largest values of each row, largest first; of the whole tensor, if it has no batch
/// axis.
pub(crate) fn classify(
    tensor: &Tensor,
    batched: bool,
    count: usize,
    labels: Option<&[String]>,
) -> Result<Tensor, String> {
    let rows = match tensor.shape.first() {
        Some(&rows) if batched => usize::try_from(rows).unwrap_or(0),
        _ => 1,
    };
    let table = Table { data: &tensor.data, rows, count, labels };
    let (classes, data) = match tensor.datatype {
        DataType::Uint8 => table.rank(u8::from_le_bytes, u8::cmp, 0),
        DataType::Uint16 => table.rank(u16::from_le_bytes, u16::cmp, 0),
        DataType::Uint32 => table.rank(u32::from_le_bytes, u32::cmp, 0),
        DataType::Uint64 => table.rank(u64::from_le_bytes, u64::cmp, 0),
        DataType::Int8 => table.rank(i8::from_le_bytes, i8::cmp, 0),
        DataType::Int16 => table.rank(i16::from_le_bytes, i16::cmp, 0),
        DataType::Int32 => table.rank(i32::from_le_bytes, i32::cmp, 0),
        DataType::Int64 => table.rank(i64::from_le_bytes, i64::cmp, 0),
        DataType::Fp32 => table.rank(f32::from_le_bytes, f32::total_cmp, DIGITS),
        DataType::Fp64 => table.rank(f64::from_le_bytes, f64::total_cmp, DIGITS),
        DataType::Bool | DataType::Fp16 | DataType::Bf16 | DataType::Bytes => {
            return Err(format!("of datatype {} cannot be classified", tensor.datatype));
        }
    }?;
    let classes = i64::try_from(classes).map_err(|error| error.to_string())?;
    let shape = if batched { vec![rows as i64, classes] } else { vec![classes] };
    Ok(Tensor { datatype: DataType::Bytes, shape, data: Bytes::from(data) })
}

/// Digits after the point, as Triton prints them.
const DIGITS: usize = 6;

struct Table<'a> {
    data: &'a [u8],
    rows: usize,
    count: usize,
    labels: Option<&'a [String]>,
}

impl Table<'_> {
    fn rank<T: Copy + std::fmt::Display, const N: usize>(
        &self,
        from_bytes: fn([u8; N]) -> T,
        compare: fn(&T, &T) -> Ordering,
        digits: usize,
    ) -> Result<(usize, Vec<u8>), String> {
        let (values, _) = self.data.as_chunks::<N>();
        let width = values.len().checked_div(self.rows).unwrap_or(0);
        let classes = self.count.min(width);
        let mut out = Vec::new();
        let mut text = String::new();
        for row in values.chunks_exact(width.max(1)).take(self.rows) {
            let mut ranked: Vec<_> =
                row.iter().map(|bytes| from_bytes(*bytes)).enumerate().collect();
            // The lower index goes first where values are equal.
            let by_value = |a: &(usize, T), b: &(usize, T)| compare(&b.1, &a.1).then(a.0.cmp(&b.0));
            if classes < ranked.len() {
                ranked.select_nth_unstable_by(classes, by_value);
                ranked.truncate(classes);
            }
            ranked.sort_unstable_by(by_value);
            for (index, value) in ranked {
                text.clear();
                write!(text, "{value:.digits$}:{index}").expect("a string can be written to");
                if let Some(label) = self.labels.and_then(|labels| labels.get(index)) {
                    text.push(':');
                    text.push_str(label);
                }
                push_string(&mut out, text.as_bytes())?;
            }
        }
        Ok((classes, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontend::strings::strings;

    fn texts(tensor: &Tensor) -> Vec<String> {
        strings(&tensor.data)
            .map(|string| String::from_utf8(string.unwrap().to_vec()).unwrap())
            .collect()
    }

    fn fp32(shape: &[i64], values: &[f32]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { datatype: DataType::Fp32, shape: shape.to_vec(), data: Bytes::from(data) }
    }

    #[test]
    fn the_largest_come_first_with_their_labels() {
        let tensor = fp32(&[2, 3], &[0.1, 0.7, 0.2, 5.0, 5.0, -1.0]);
        let labels = ["cat".to_owned(), "dog".to_owned()];
        let top = classify(&tensor, true, 2, Some(&labels)).unwrap();
        assert_eq!(top.shape, [2, 2]);
        assert_eq!(
            texts(&top),
            ["0.700000:1:dog", "0.200000:2", "5.000000:0:cat", "5.000000:1:dog"]
        );
    }

    #[test]
    fn without_a_batch_axis_all_values_are_one_row() {
        let top = classify(&fp32(&[2, 2], &[1.0, 4.0, 3.0, 2.0]), false, 9, None).unwrap();
        assert_eq!(top.shape, [4]);
        assert_eq!(texts(&top)[..2], ["4.000000:1", "3.000000:2"]);
    }

    #[test]
    fn whole_numbers_have_no_digits_after_the_point() {
        let data = Bytes::from_static(&[3, 250, 7]);
        let tensor = Tensor { datatype: DataType::Uint8, shape: vec![3], data };
        assert_eq!(texts(&classify(&tensor, false, 1, None).unwrap()), ["250:1"]);
    }

    #[test]
    fn empty_rows_and_other_datatypes_do_no_harm() {
        assert_eq!(classify(&fp32(&[2, 0], &[]), true, 3, None).unwrap().shape, [2, 0]);
        let half =
            Tensor { datatype: DataType::Fp16, shape: vec![1], data: Bytes::from_static(&[0; 2]) };
        assert!(classify(&half, false, 1, None).unwrap_err().contains("FP16"));
    }
}
