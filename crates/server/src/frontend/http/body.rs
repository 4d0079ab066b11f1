//! Bodies: requests read up to a limit and decompressed, responses in parts and compressed.

use std::io::{Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

use super::refusal::Refusal;
use crate::inference::InferError;

/// A way to compress a body. `deflate` is zlib's format, as HTTP has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// zlib's.
    Deflate,
    /// gzip's.
    Gzip,
}

impl Encoding {
    /// Its name in headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Deflate => "deflate",
            Self::Gzip => "gzip",
        }
    }

    /// How the client says that it compressed its request.
    fn of_request(headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        let Some(value) = headers.get(header::CONTENT_ENCODING) else { return Ok(None) };
        match value.as_bytes().trim_ascii() {
            b"" | b"identity" => Ok(None),
            b"deflate" => Ok(Some(Self::Deflate)),
            b"gzip" => Ok(Some(Self::Gzip)),
            other => Err(Refusal::Encoding(format!(
                "Content-Encoding '{}' is not supported, expected gzip, deflate or identity",
                other.escape_ascii()
            ))),
        }
    }

    /// The one that the client likes best.
    pub(crate) fn of_response(headers: &HeaderMap) -> Option<Self> {
        let accepted = headers.get(header::ACCEPT_ENCODING)?.to_str().ok()?;
        let mut best = None;
        for part in accepted.split(',') {
            let (name, weight) = part.split_once(';').unwrap_or((part, ""));
            let encoding = match name.trim() {
                "gzip" => Self::Gzip,
                "deflate" => Self::Deflate,
                _ => continue,
            };
            let weight =
                weight.trim().strip_prefix("q=").map_or(Some(1.0), |q| q.parse::<f32>().ok());
            let weight = weight.filter(|weight| *weight > 0.0);
            if let Some(weight) = weight
                && best.is_none_or(|(best, _)| weight > best)
            {
                best = Some((weight, encoding));
            }
        }
        best.map(|(_, encoding)| encoding)
    }
}

/// Bodies from here on are compressed and decompressed off the threads that serve connections.
const LONG_WORK: usize = 64 << 10;

/// The body of a request, decompressed, and never more than `limit` bytes of it.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let encoding = Encoding::of_request(headers)?;
    let body = receive(headers, body, limit).await?;
    match encoding {
        None => Ok(body),
        Some(encoding) if body.len() < LONG_WORK => decompress(&body, encoding, limit),
        Some(encoding) => {
            let work = tokio::task::spawn_blocking(move || decompress(&body, encoding, limit));
            work.await.map_err(|error| InferError::Internal(error.to_string()))?
        }
    }
}

async fn receive(headers: &HeaderMap, mut body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(Refusal::TooLarge { limit, rest: Some(body) });
    }
    let mut received = Bytes::new();
    let mut longer = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            InferError::Invalid(format!("the request's body cannot be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if received.is_empty() && longer.is_empty() {
            received = data;
        } else {
            if longer.is_empty() {
                let capacity = length.map_or(0, |length| length as usize);
                longer.reserve(capacity.max(received.len() + data.len()));
                longer.extend_from_slice(&received);
                received = Bytes::new();
            }
            longer.extend_from_slice(&data);
        }
        if received.len() + longer.len() > limit {
            return Err(Refusal::TooLarge { limit, rest: Some(body) });
        }
    }
    Ok(if longer.is_empty() { received } else { longer.freeze() })
}

fn decompress(body: &[u8], encoding: Encoding, limit: usize) -> Result<Bytes, Refusal> {
    // One byte beyond the limit is enough to know.
    let most = limit as u64 + 1;
    let mut plain = Vec::new();
    let result = match encoding {
        Encoding::Deflate => ZlibDecoder::new(body).take(most).read_to_end(&mut plain),
        Encoding::Gzip => MultiGzDecoder::new(body).take(most).read_to_end(&mut plain),
    };
    result.map_err(|error| {
        let name = encoding.name();
        InferError::Invalid(format!("the request's body is not valid {name}: {error}"))
    })?;
    if plain.len() > limit {
        return Err(Refusal::TooLarge { limit, rest: None });
    }
    Ok(Bytes::from(plain))
}

/// The parts of a body as one compressed part.
pub(crate) async fn compress(parts: Vec<Bytes>, encoding: Encoding) -> Result<Bytes, InferError> {
    let length: usize = parts.iter().map(Bytes::len).sum();
    let work = move || {
        // Writing to memory does not fail.
        let written: std::io::Result<Vec<u8>> = match encoding {
            Encoding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                parts
                    .iter()
                    .try_for_each(|part| encoder.write_all(part))
                    .and_then(|()| encoder.finish())
            }
            Encoding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                parts
                    .iter()
                    .try_for_each(|part| encoder.write_all(part))
                    .and_then(|()| encoder.finish())
            }
        };
        written.map(Bytes::from).map_err(|error| InferError::Internal(error.to_string()))
    };
    if length < LONG_WORK {
        return work();
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| InferError::Internal(error.to_string()))?
}

/// A body of known length in several parts, which are not copied together.
pub(crate) struct Parts {
    parts: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl Parts {
    /// A body of these.
    pub(crate) fn new(parts: Vec<Bytes>) -> Self {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Self { parts: parts.into_iter(), left }
    }
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let part = self.parts.find(|part| !part.is_empty());
        self.left -= part.as_ref().map_or(0, Bytes::len) as u64;
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn the_client_chooses_the_encoding() {
        let choice = |value| Encoding::of_response(&headers(header::ACCEPT_ENCODING, value));
        assert_eq!(choice("gzip, deflate"), Some(Encoding::Gzip));
        assert_eq!(choice("gzip;q=0.5, deflate"), Some(Encoding::Deflate));
        assert_eq!(choice("gzip;q=0, br"), None);
        assert_eq!(choice("identity"), None);
        assert_eq!(choice("gzip;q=x"), None);
    }

    #[tokio::test]
    async fn what_is_compressed_is_decompressed() {
        for (encoding, name) in [(Encoding::Gzip, "gzip"), (Encoding::Deflate, "deflate")] {
            for length in [3, LONG_WORK * 2] {
                let parts = vec![Bytes::from(vec![7; length]), Bytes::from_static(b"end")];
                let packed = compress(parts, encoding).await.unwrap();
                let headers = headers(header::CONTENT_ENCODING, name);
                let plain = read(&headers, Body::from(packed), 1 << 20).await.unwrap();
                assert_eq!(plain.len(), length + 3);
                assert_eq!(&plain[length..], b"end");
            }
        }
    }

    #[tokio::test]
    async fn a_bomb_is_stopped_at_the_limit() {
        let packed = compress(vec![Bytes::from(vec![0; 10 << 20])], Encoding::Gzip).await.unwrap();
        assert!(packed.len() < 100_000);
        let headers = headers(header::CONTENT_ENCODING, "gzip");
        let refusal = read(&headers, Body::from(packed), 1 << 20).await.unwrap_err();
        assert!(matches!(refusal, Refusal::TooLarge { limit: 1_048_576, rest: None }));
    }

    #[tokio::test]
    async fn a_long_body_is_refused_before_and_while_it_comes() {
        let announced = headers(header::CONTENT_LENGTH, "11");
        let refusal = read(&announced, Body::from("hello world"), 10).await.unwrap_err();
        assert!(matches!(refusal, Refusal::TooLarge { .. }));
        let streamed = Body::new(Parts::new(vec![Bytes::from_static(b"hello "); 2]));
        let refusal = read(&HeaderMap::new(), streamed, 10).await.unwrap_err();
        assert!(matches!(refusal, Refusal::TooLarge { .. }));
    }

    #[tokio::test]
    async fn parts_are_put_together() {
        let parts = vec![Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"bc")];
        let body = read(&HeaderMap::new(), Body::new(Parts::new(parts)), 10).await.unwrap();
        assert_eq!(&body[..], b"abc");
    }

    #[tokio::test]
    async fn broken_and_unknown_encodings_are_named() {
        let broken = read(&headers(header::CONTENT_ENCODING, "gzip"), Body::from("x"), 10).await;
        let Err(Refusal::Infer(error)) = broken else { panic!("{broken:?}") };
        assert!(error.to_string().contains("not valid gzip"), "{error}");
        let unknown = read(&headers(header::CONTENT_ENCODING, "br"), Body::from("x"), 10).await;
        assert!(matches!(unknown, Err(Refusal::Encoding(message)) if message.contains("'br'")));
    }
}
