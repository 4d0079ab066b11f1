//! The elements of a tensor as a JSON array, and back.
//!
//! Arrays may be nested in any way, as in Triton: what counts is the order of the elements and
//! their number.

use std::borrow::Cow;

use bytes::Bytes;
use fermata_engine::{DataType, Tensor};
use serde::Serialize;

use super::strings::{push_string, strings};

/// The bytes of a tensor whose elements are in an array. `text` is one valid JSON value.
pub(crate) fn read(text: &str, datatype: DataType, elements: usize) -> Result<Bytes, String> {
    let mut reader =
        Reader { tokens: Tokens { rest: text }, datatype, expected: elements, count: 0 };
    let data = match datatype {
        DataType::Bool => reader.fill(|token| match token {
            "true" => Some([1]),
            "false" => Some([0]),
            _ => None,
        }),
        DataType::Uint8 => reader.fill(|token| token.parse().ok().map(u8::to_le_bytes)),
        DataType::Uint16 => reader.fill(|token| token.parse().ok().map(u16::to_le_bytes)),
        DataType::Uint32 => reader.fill(|token| token.parse().ok().map(u32::to_le_bytes)),
        DataType::Uint64 => reader.fill(|token| token.parse().ok().map(u64::to_le_bytes)),
        DataType::Int8 => reader.fill(|token| token.parse().ok().map(i8::to_le_bytes)),
        DataType::Int16 => reader.fill(|token| token.parse().ok().map(i16::to_le_bytes)),
        DataType::Int32 => reader.fill(|token| token.parse().ok().map(i32::to_le_bytes)),
        DataType::Int64 => reader.fill(|token| token.parse().ok().map(i64::to_le_bytes)),
        DataType::Fp32 => reader.fill(|token| {
            // A finite number that does not fit is an error, not an infinity.
            not_finite(token)
                .map(|value| value as f32)
                .or_else(|| token.parse().ok().filter(|value: &f32| value.is_finite()))
                .map(f32::to_le_bytes)
        }),
        DataType::Fp64 => reader.fill(|token| {
            not_finite(token)
                .or_else(|| token.parse().ok().filter(|value: &f64| value.is_finite()))
                .map(f64::to_le_bytes)
        }),
        DataType::Bytes => reader.fill_strings(),
        DataType::Fp16 | DataType::Bf16 => {
            Err(format!("of datatype {datatype} cannot be given as JSON; send it as binary data"))
        }
    }?;
    Ok(Bytes::from(data))
}

/// Appends the elements of a tensor as a flat array.
pub(crate) fn write(tensor: &Tensor, out: &mut Vec<u8>) -> Result<(), String> {
    let data = &tensor.data[..];
    match tensor.datatype {
        DataType::Bool => write_all(data, out, |[byte]: [u8; 1]| byte != 0),
        DataType::Uint8 => write_all(data, out, u8::from_le_bytes),
        DataType::Uint16 => write_all(data, out, u16::from_le_bytes),
        DataType::Uint32 => write_all(data, out, u32::from_le_bytes),
        DataType::Uint64 => write_all(data, out, u64::from_le_bytes),
        DataType::Int8 => write_all(data, out, i8::from_le_bytes),
        DataType::Int16 => write_all(data, out, i16::from_le_bytes),
        DataType::Int32 => write_all(data, out, i32::from_le_bytes),
        DataType::Int64 => write_all(data, out, i64::from_le_bytes),
        DataType::Fp32 => list(out, data.as_chunks().0, |out, bytes| {
            let value = f32::from_le_bytes(*bytes);
            if value.is_finite() {
                value_into(out, &value)
            } else {
                word_into(out, value.into())
            }
            Ok(())
        })?,
        DataType::Fp64 => list(out, data.as_chunks().0, |out, bytes| {
            let value = f64::from_le_bytes(*bytes);
            if value.is_finite() {
                value_into(out, &value)
            } else {
                word_into(out, value)
            }
            Ok(())
        })?,
        DataType::Bytes => list(out, strings(data), |out, string| {
            let string = std::str::from_utf8(string?)
                .map_err(|_| "has a string that is not UTF-8; ask for it as binary data")?;
            value_into(out, string);
            Ok(())
        })?,
        DataType::Fp16 | DataType::Bf16 => {
            let datatype = tensor.datatype;
            return Err(format!(
                "of datatype {datatype} cannot be given as JSON; ask for it as binary data"
            ));
        }
    }
    Ok(())
}

/// Puts quotes around `NaN` and infinities, which JSON does not have, but which Triton and its
/// clients write. `None` if there are none.
pub(crate) fn quote_not_finite(body: &[u8]) -> Option<Vec<u8>> {
    const WORDS: [&[u8]; 5] = [b"NaN", b"Infinity", b"-Infinity", b"Inf", b"-Inf"];
    let mut quoted = Vec::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        match byte {
            b'"' => at += string_length(&body[at..]).unwrap_or(body.len() - at),
            b'N' | b'I' | b'-' => {
                let word = WORDS.into_iter().find(|word| body[at..].starts_with(word));
                let length = word.map_or(1, <[u8]>::len);
                if let Some(word) = word {
                    quoted.extend_from_slice(&body[copied..at]);
                    quoted.push(b'"');
                    quoted.extend_from_slice(word);
                    quoted.push(b'"');
                    copied = at + length;
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    (copied > 0).then(|| {
        quoted.extend_from_slice(&body[copied..]);
        quoted
    })
}

/// Appends a value as JSON.
pub(crate) fn value_into<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("numbers and strings can be written to memory");
}

fn word_into(out: &mut Vec<u8>, value: f64) {
    let word = match value {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    };
    out.extend_from_slice(word.as_bytes());
}

fn not_finite(token: &str) -> Option<f64> {
    match token {
        r#""NaN""# => Some(f64::NAN),
        r#""Infinity""# | r#""Inf""# => Some(f64::INFINITY),
        r#""-Infinity""# | r#""-Inf""# => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn write_all<T: Serialize, const N: usize>(
    data: &[u8],
    out: &mut Vec<u8>,
    from_bytes: fn([u8; N]) -> T,
) {
    let _ = list(out, data.as_chunks().0, |out, bytes| {
        value_into(out, &from_bytes(*bytes));
        Ok(())
    });
}

fn list<T>(
    out: &mut Vec<u8>,
    elements: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T) -> Result<(), String>,
) -> Result<(), String> {
    out.push(b'[');
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, element)?;
    }
    out.push(b']');
    Ok(())
}

/// Takes elements, no more than expected.
struct Reader<'a> {
    tokens: Tokens<'a>,
    datatype: DataType,
    expected: usize,
    count: usize,
}

impl<'a> Reader<'a> {
    fn fill<const N: usize>(
        &mut self,
        parse: impl Fn(&str) -> Option<[u8; N]>,
    ) -> Result<Vec<u8>, String> {
        // A shape may promise anything; an element takes a byte of text at least.
        let mut data = Vec::with_capacity(self.expected.min(self.tokens.rest.len()) * N);
        while let Some(token) = self.next()? {
            let element = parse(token).ok_or_else(|| self.not_an_element(token))?;
            data.extend_from_slice(&element);
        }
        self.all()?;
        Ok(data)
    }

    fn fill_strings(&mut self) -> Result<Vec<u8>, String> {
        let mut data = Vec::with_capacity(self.tokens.rest.len());
        while let Some(token) = self.next()? {
            let inner = token.strip_prefix('"').and_then(|token| token.strip_suffix('"'));
            let inner = inner.ok_or_else(|| self.not_an_element(token))?;
            if inner.contains('\\') {
                let string: Cow<'_, str> =
                    serde_json::from_str(token).map_err(|_| self.not_an_element(token))?;
                push_string(&mut data, string.as_bytes())?;
            } else {
                push_string(&mut data, inner.as_bytes())?;
            }
        }
        self.all()?;
        Ok(data)
    }

    fn next(&mut self) -> Result<Option<&'a str>, String> {
        let Some(token) = self.tokens.next() else { return Ok(None) };
        if token == "{" {
            return Err("has an object in its data, expected an array of elements".to_owned());
        }
        if self.count == self.expected {
            let expected = self.expected;
            return Err(format!("has more than the {expected} elements of its shape"));
        }
        self.count += 1;
        Ok(Some(token))
    }

    fn all(&self) -> Result<(), String> {
        let (count, expected) = (self.count, self.expected);
        if count == expected {
            return Ok(());
        }
        Err(format!("has {count} elements, expected {expected} for its shape"))
    }

    fn not_an_element(&self, token: &str) -> String {
        const SHOWN: usize = 40;
        let shown = token.char_indices().nth(SHOWN).map_or(token, |(end, _)| &token[..end]);
        format!("has element {} = {shown}, which is not {}", self.count - 1, self.datatype)
    }
}

/// The scalars of a JSON text, strings with their quotes, and `{`, at which no one goes on.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let begin = self
            .rest
            .bytes()
            .position(|byte| !matches!(byte, b'[' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r'))?;
        let rest = &self.rest[begin..];
        let length = match rest.as_bytes()[0] {
            b'{' => 1,
            b'"' => string_length(rest.as_bytes()).unwrap_or(rest.len()),
            _ => rest
                .bytes()
                .position(|byte| matches!(byte, b'[' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r'))
                .unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(length);
        self.rest = rest;
        Some(token)
    }
}

/// The length with its quotes of the string at the beginning of a text; `None` if it does not end.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round(text: &str, datatype: DataType, elements: usize) -> Result<String, String> {
        let data = read(text, datatype, elements)?;
        let mut out = Vec::new();
        write(&Tensor { datatype, shape: vec![elements as i64], data }, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn nested_arrays_are_flattened() {
        assert_eq!(round("[[1, 2],\n[3,4]]", DataType::Int32, 4).unwrap(), "[1,2,3,4]");
        assert_eq!(round("[ ]", DataType::Int32, 0).unwrap(), "[]");
        assert_eq!(round("7", DataType::Uint8, 1).unwrap(), "[7]");
    }

    #[test]
    fn every_datatype_goes_both_ways() {
        assert_eq!(round("[true,false]", DataType::Bool, 2).unwrap(), "[true,false]");
        assert_eq!(round("[0,255]", DataType::Uint8, 2).unwrap(), "[0,255]");
        assert_eq!(round("[65535]", DataType::Uint16, 1).unwrap(), "[65535]");
        assert_eq!(round("[4294967295]", DataType::Uint32, 1).unwrap(), "[4294967295]");
        let largest = "[18446744073709551615]";
        assert_eq!(round(largest, DataType::Uint64, 1).unwrap(), largest);
        assert_eq!(round("[-128]", DataType::Int8, 1).unwrap(), "[-128]");
        assert_eq!(round("[-32768]", DataType::Int16, 1).unwrap(), "[-32768]");
        assert_eq!(round("[-1]", DataType::Int64, 1).unwrap(), "[-1]");
        assert_eq!(round("[0.1,1,-2e3]", DataType::Fp32, 3).unwrap(), "[0.1,1.0,-2000.0]");
        assert_eq!(round("[0.1]", DataType::Fp64, 1).unwrap(), "[0.1]");
        let strings = r#"["a\"\\b","é","",","]"#;
        assert_eq!(round(strings, DataType::Bytes, 4).unwrap(), strings);
    }

    #[test]
    fn half_precision_is_binary_only() {
        let error = read("[1]", DataType::Fp16, 1).unwrap_err();
        assert!(error.contains("FP16") && error.contains("binary"), "{error}");
        assert!(read("[1]", DataType::Bf16, 1).unwrap_err().contains("BF16"));
    }

    #[test]
    fn what_is_not_an_element_is_named() {
        let message = |text, datatype| read(text, datatype, 2).unwrap_err();
        assert_eq!(message("[1,2.5]", DataType::Int32), "has element 1 = 2.5, which is not INT32");
        assert_eq!(message("[1,256]", DataType::Uint8), "has element 1 = 256, which is not UINT8");
        assert_eq!(message("[1,1e39]", DataType::Fp32), "has element 1 = 1e39, which is not FP32");
        assert_eq!(message("[true,1]", DataType::Bool), "has element 1 = 1, which is not BOOL");
        assert_eq!(message("[\"a\",1]", DataType::Bytes), "has element 1 = 1, which is not BYTES");
        assert_eq!(message("[null,1]", DataType::Fp32), "has element 0 = null, which is not FP32");
        assert_eq!(message("[1,2,3]", DataType::Fp32), "has more than the 2 elements of its shape");
        assert_eq!(message("[1]", DataType::Fp32), "has 1 elements, expected 2 for its shape");
        assert!(message("[{\"a\":1}]", DataType::Fp32).contains("object"));
    }

    #[test]
    fn numbers_that_are_not_finite_survive() {
        let quoted = quote_not_finite(br#"{"a":"NaN","data":[NaN,-Infinity,Inf,-1]}"#).unwrap();
        assert_eq!(quoted, br#"{"a":"NaN","data":["NaN","-Infinity","Inf",-1]}"#);
        assert_eq!(quote_not_finite(br#"{"a":"NaN\"NaN",-1"#), None);
        let text = r#"["NaN","-Infinity","Inf"]"#;
        assert_eq!(round(text, DataType::Fp32, 3).unwrap(), "[NaN,-Infinity,Infinity]");
        assert_eq!(round(text, DataType::Fp64, 3).unwrap(), "[NaN,-Infinity,Infinity]");
    }

    #[test]
    fn a_promised_shape_costs_nothing() {
        assert!(read("[1]", DataType::Fp64, usize::MAX).is_err());
    }

    proptest! {
        #[test]
        fn numbers_go_both_ways(values in proptest::collection::vec(any::<f32>(), 0..20)) {
            let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let shape = vec![values.len() as i64];
            let tensor = Tensor { datatype: DataType::Fp32, shape, data: Bytes::from(data) };
            let mut text = Vec::new();
            write(&tensor, &mut text).unwrap();
            let text = quote_not_finite(&text).unwrap_or(text);
            let text = std::str::from_utf8(&text).unwrap();
            let again = read(text, DataType::Fp32, values.len()).unwrap();
            for (value, bytes) in values.iter().zip(again.as_chunks().0) {
                let read = f32::from_le_bytes(*bytes);
                prop_assert!(read == *value || (read.is_nan() && value.is_nan()));
            }
        }

        #[test]
        fn strings_go_both_ways(values in proptest::collection::vec(any::<String>(), 0..10)) {
            let text = serde_json::to_string(&values).unwrap();
            prop_assert_eq!(round(&text, DataType::Bytes, values.len()).unwrap(), text);
        }

        #[test]
        fn no_text_panics(
            text in any::<String>(),
            which in 0..DataType::ALL.len(),
            count in 0_usize..5,
        ) {
            let _ = read(&text, DataType::ALL[which], count);
            let _ = quote_not_finite(text.as_bytes());
        }
    }
}
