//! The strings of a `BYTES` tensor: each is its length in four bytes, and then its own bytes.

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
