//! The elements of a tensor as they came, made into the bytes that engines read.

use bytes::Bytes;
use fermata_engine::DataType;
use fermata_protocol::proto::InferTensorContents;

use super::json;
use super::shared_memory::Slot;

/// Where the elements of an input are.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// A JSON array, of valid JSON.
    Json(&'a str),
    /// Nowhere.
    Missing,
    /// In the request, as they are needed.
    Raw(Bytes),
    /// In shared memory.
    Shared(Slot),
    /// In the fields of a gRPC message.
    Typed(InferTensorContents),
}

impl Payload<'_> {
    /// The bytes of a tensor of so many elements. An error is a reason, without the name of the input.
    pub(crate) fn into_bytes(self, datatype: DataType, elements: usize) -> Result<Bytes, String> {
        let bytes = match self {
            Self::Json(text) => return json::read(text, datatype, elements),
            // Also how a client sends a tensor without elements.
            Self::Missing if elements == 0 => Bytes::new(),
            Self::Missing => return Err("has no data".to_owned()),
            Self::Raw(bytes) => bytes,
            Self::Shared(slot) => {
                // Nothing is read, nor room made for it, before the size is known to be right.
                if let Some(size) = datatype.size() {
                    same_size(elements, size, slot.byte_size)?;
                }
                slot.read().map_err(|reason| format!("cannot be read: {reason}"))?
            }
            Self::Typed(contents) => typed(contents, datatype)?,
        };
        match datatype.size() {
            Some(size) => same_size(elements, size, bytes.len() as u64)?,
            None => same_strings(elements, &bytes)?,
        }
        Ok(bytes)
    }
}

/// The strings of a `BYTES` tensor; an error where a length reaches beyond the end.
pub(crate) fn strings(mut data: &[u8]) -> impl Iterator<Item = Result<&[u8], String>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let split = data.split_first_chunk::<4>().and_then(|(length, rest)| {
            rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
        });
        let Some((string, rest)) = split else {
            let left = data.len();
            data = &[];
            return Some(Err(format!(
                "has a string whose length reaches beyond the last {left} bytes"
            )));
        };
        data = rest;
        Some(Ok(string))
    })
}

/// Appends a string to a `BYTES` tensor.
pub(crate) fn push_string(data: &mut Vec<u8>, string: &[u8]) -> Result<(), String> {
    let length = u32::try_from(string.len())
        .map_err(|_| format!("has a string of {} bytes, which is too long", string.len()))?;
    data.extend_from_slice(&length.to_le_bytes());
    data.extend_from_slice(string);
    Ok(())
}

fn same_size(elements: usize, size: usize, given: u64) -> Result<(), String> {
    let expected = elements.checked_mul(size).ok_or("has a shape too large to count")?;
    if expected as u64 == given {
        return Ok(());
    }
    Err(format!("has {given} bytes of data, expected {expected} for its shape and datatype"))
}

fn same_strings(elements: usize, data: &[u8]) -> Result<(), String> {
    let mut count = 0;
    for string in strings(data) {
        string?;
        count += 1;
    }
    if count == elements {
        return Ok(());
    }
    Err(format!("has {count} strings, expected {elements} for its shape"))
}

fn typed(contents: InferTensorContents, datatype: DataType) -> Result<Bytes, String> {
    let bytes = match datatype {
        DataType::Bool => contents.bool_contents.into_iter().map(u8::from).collect(),
        DataType::Uint8 => narrow(contents.uint_contents, datatype, u8::to_le_bytes)?,
        DataType::Uint16 => narrow(contents.uint_contents, datatype, u16::to_le_bytes)?,
        DataType::Uint32 => narrow(contents.uint_contents, datatype, u32::to_le_bytes)?,
        DataType::Uint64 => narrow(contents.uint64_contents, datatype, u64::to_le_bytes)?,
        DataType::Int8 => narrow(contents.int_contents, datatype, i8::to_le_bytes)?,
        DataType::Int16 => narrow(contents.int_contents, datatype, i16::to_le_bytes)?,
        DataType::Int32 => narrow(contents.int_contents, datatype, i32::to_le_bytes)?,
        DataType::Int64 => narrow(contents.int64_contents, datatype, i64::to_le_bytes)?,
        DataType::Fp32 => narrow(contents.fp32_contents, datatype, f32::to_le_bytes)?,
        DataType::Fp64 => narrow(contents.fp64_contents, datatype, f64::to_le_bytes)?,
        DataType::Bytes => {
            let mut data = Vec::new();
            for string in contents.bytes_contents {
                push_string(&mut data, &string)?;
            }
            data
        }
        DataType::Fp16 | DataType::Bf16 => {
            return Err(format!("of datatype {datatype} must be sent in raw_input_contents"));
        }
    };
    Ok(Bytes::from(bytes))
}

/// Elements that came wider than they are.
fn narrow<W: Copy + std::fmt::Display, T: TryFrom<W>, const N: usize>(
    elements: Vec<W>,
    datatype: DataType,
    to_bytes: fn(T) -> [u8; N],
) -> Result<Vec<u8>, String> {
    let mut data = Vec::with_capacity(elements.len() * N);
    for (index, wide) in elements.into_iter().enumerate() {
        let element = T::try_from(wide)
            .map_err(|_| format!("has element {index} = {wide}, which is not {datatype}"))?;
        data.extend_from_slice(&to_bytes(element));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_contents_become_raw_bytes() {
        let contents = InferTensorContents { int_contents: vec![1, -2], ..Default::default() };
        let bytes = Payload::Typed(contents.clone()).into_bytes(DataType::Int8, 2).unwrap();
        assert_eq!(&bytes[..], [1, 254]);
        let bytes = Payload::Typed(contents).into_bytes(DataType::Int32, 2).unwrap();
        assert_eq!(&bytes[..], [1, 0, 0, 0, 254, 255, 255, 255]);
    }

    #[test]
    fn an_element_out_of_range_is_named() {
        let contents = InferTensorContents { int_contents: vec![1, 300], ..Default::default() };
        let error = Payload::Typed(contents).into_bytes(DataType::Int8, 2).unwrap_err();
        assert_eq!(error, "has element 1 = 300, which is not INT8");
    }

    #[test]
    fn sizes_must_match() {
        let raw = Payload::Raw(Bytes::from_static(&[0; 12]));
        let error = raw.into_bytes(DataType::Fp32, 4).unwrap_err();
        assert_eq!(error, "has 12 bytes of data, expected 16 for its shape and datatype");
        assert!(Payload::Missing.into_bytes(DataType::Fp32, 1).is_err());
        assert!(Payload::Missing.into_bytes(DataType::Fp32, 0).is_ok());
        let huge = Payload::Raw(Bytes::new()).into_bytes(DataType::Fp64, usize::MAX / 2);
        assert!(huge.is_err());
    }

    #[test]
    fn strings_are_counted() {
        let data = Bytes::from_static(b"\x01\0\0\0a\0\0\0\0");
        assert!(Payload::Raw(data.clone()).into_bytes(DataType::Bytes, 2).is_ok());
        let error = Payload::Raw(data.clone()).into_bytes(DataType::Bytes, 3).unwrap_err();
        assert_eq!(error, "has 2 strings, expected 3 for its shape");
        let error = Payload::Raw(data.slice(..6)).into_bytes(DataType::Bytes, 2).unwrap_err();
        assert!(error.contains("beyond the last 1 bytes"), "{error}");
    }
}
