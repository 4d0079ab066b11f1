//! gRPC over bare HTTP/2: messages are bytes that were encoded once.
//!
//! No tower, no codec, no retry: one request is one stream.

use std::future::poll_fn;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use http::{Request, header};
use prost::Message;
use tokio::net::TcpStream;

use super::{CallError, Code, Target};

/// An open connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    streams: SendRequest<Bytes>,
}

/// What goes over the wire for one kind of request.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    head: Request<()>,
    /// With the five bytes before it.
    message: Bytes,
}

/// gRPC's status codes that mean something here.
pub(crate) const OK: u32 = 0;
pub(crate) const INVALID_ARGUMENT: u32 = 3;
pub(crate) const DEADLINE_EXCEEDED: u32 = 4;
pub(crate) const NOT_FOUND: u32 = 5;
pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
pub(crate) const UNIMPLEMENTED: u32 = 12;
pub(crate) const UNAVAILABLE: u32 = 14;

const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

impl Prepared {
    /// A request of a method of the inference service.
    pub(crate) fn new(target: &Target, method: &str, message: &impl Message) -> Self {
        let uri = format!("http://{}/inference.GRPCInferenceService/{method}", target.authority);
        let head = Request::post(uri)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(header::USER_AGENT, concat!("fermata/", env!("CARGO_PKG_VERSION")))
            .body(())
            .expect("a target's authority makes a URI");
        let length = message.encoded_len();
        let mut bytes = BytesMut::with_capacity(5 + length);
        bytes.put_u8(0); // Not compressed.
        bytes.put_u32(u32::try_from(length).expect("a request is smaller than 4 GiB"));
        message.encode(&mut bytes).expect("a growing buffer has room");
        Self { head, message: bytes.freeze() }
    }
}

/// How a call ended: a status, and what the server says about it or the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u32,
    pub(crate) message: String,
    /// Empty unless it was wanted.
    pub(crate) body: Bytes,
}

impl Connection {
    /// Connects. Must be called on a `LocalSet`, on which the connection then lives.
    pub(crate) async fn open(target: &Target) -> Result<Self, String> {
        let stream = TcpStream::connect(target.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (streams, connection) = client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(|error| error.to_string())?;
        tokio::task::spawn_local(async move {
            // Every stream is told of the error too, and reports it.
            let _ = connection.await;
        });
        Ok(Self { streams })
    }

    /// How many requests may be in flight.
    pub(crate) fn streams_max(&self) -> usize {
        self.streams.current_max_send_streams()
    }

    /// Sends a request and waits for its end. The request is on its way when this is first polled.
    pub(crate) async fn call(&mut self, prepared: &Prepared, keep: bool) -> Result<Reply, String> {
        let plain = |error: h2::Error| error.to_string();
        poll_fn(|context| self.streams.poll_ready(context)).await.map_err(plain)?;
        let (response, mut stream) =
            self.streams.send_request(prepared.head.clone(), false).map_err(plain)?;
        stream.send_data(prepared.message.clone(), true).map_err(plain)?;
        let response = response.await.map_err(plain)?;
        let (head, mut body) = response.into_parts();
        if !head.status.is_success() {
            return Err(format!("HTTP status {}", head.status.as_u16()));
        }
        if let Some(reply) = status_of(&head.headers) {
            return Ok(reply); // An error without a message: the trailers came as headers.
        }
        let mut bytes = BytesMut::new();
        while let Some(piece) = body.data().await {
            let piece = piece.map_err(plain)?;
            // Refused only if more is released than was received.
            let _ = body.flow_control().release_capacity(piece.len());
            if keep {
                bytes.extend_from_slice(&piece);
            }
        }
        let trailers = body.trailers().await.map_err(plain)?.unwrap_or_default();
        let reply = status_of(&trailers).ok_or("the answer has no gRPC status")?;
        Ok(Reply { body: bytes.freeze(), ..reply })
    }
}

fn status_of(headers: &http::HeaderMap) -> Option<Reply> {
    let status = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message").map(|text| unescape(text.as_bytes()));
    let message = message.map(|text| fermata_files::in_one_line(&text)).unwrap_or_default();
    Some(Reply { status, message, body: Bytes::new() })
}

/// gRPC's messages are percent-encoded.
fn unescape(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One call on a connection of its own, which must succeed.
pub(crate) async fn call<M: Message + Default>(
    target: &Target,
    method: &str,
    message: &impl Message,
) -> Result<M, CallError> {
    let mut connection = Connection::open(target).await.map_err(CallError::Unreachable)?;
    let prepared = Prepared::new(target, method, message);
    let reply = connection.call(&prepared, true).await.map_err(CallError::Unreachable)?;
    if reply.status != OK {
        return Err(CallError::Refused { code: Code::Grpc(reply.status), message: reply.message });
    }
    let body = reply.body.get(5..).unwrap_or_default();
    M::decode(body)
        .map_err(|error| CallError::Unreachable(format!("it does not speak the protocol: {error}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_are_unescaped() {
        assert_eq!(super::unescape(b"100%25 full%0A%zz%4"), "100% full\n%zz%4");
    }
}
