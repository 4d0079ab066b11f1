//! What a client is told in place of what it asked for.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::time::Sleep;

use crate::frontend::deadline::whole_seconds;
use crate::frontend::json;
use crate::inference::InferError;

/// Why a request over HTTP has no answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// For a reason that is the same in any protocol.
    Infer(InferError),
    /// It comes in a coding that is not known.
    Encoding(String),
    /// It is larger than it may be. What of it was not received yet is `rest`.
    TooLarge {
        /// The most bytes that a request may have.
        limit: usize,
        /// What is still to come.
        rest: Option<Body>,
    },
}

impl From<InferError> for Refusal {
    fn from(error: InferError) -> Self {
        Self::Infer(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Infer(error) => infer_error(&error),
            Self::Encoding(message) => {
                error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message, None).map(Body::from)
            }
            Self::TooLarge { limit, rest } => {
                let message = format!("the request is larger than the {limit} bytes it may have");
                let response = error_response(StatusCode::PAYLOAD_TOO_LARGE, &message, None);
                match rest {
                    None => response.map(Body::from),
                    Some(rest) => {
                        let mut response =
                            response.map(|message| Body::new(Apology::new(message, rest)));
                        let close = HeaderValue::from_static("close");
                        response.headers_mut().insert(header::CONNECTION, close);
                        response
                    }
                }
            }
        }
    }
}

/// The status of an error, in Triton's choice where Triton has one.
fn status(error: &InferError) -> StatusCode {
    match error {
        InferError::Cancelled => StatusCode::from_u16(499).expect("499 is a status"),
        InferError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        InferError::Invalid(_) | InferError::TooLong(_) => StatusCode::BAD_REQUEST,
        InferError::Missed => StatusCode::GATEWAY_TIMEOUT,
        InferError::Shed { .. } | InferError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        InferError::Unknown(_) => StatusCode::NOT_FOUND,
        InferError::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
    }
}

fn infer_error(error: &InferError) -> Response {
    let reason = match error {
        InferError::Shed { reason, .. } => Some(reason.word()),
        _ => None,
    };
    let mut response = error_response(status(error), &error.to_string(), reason).map(Body::from);
    if let InferError::Shed { retry_after, .. } = error {
        let seconds = whole_seconds(*retry_after);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The protocol's error object.
pub(crate) fn error_response(
    status: StatusCode,
    message: &str,
    reason: Option<&str>,
) -> Response<Bytes> {
    let mut body = Vec::with_capacity(message.len() + 32);
    body.extend_from_slice(b"{\"error\":");
    json::value_into(&mut body, message);
    if let Some(reason) = reason {
        body.extend_from_slice(b",\"reason\":");
        json::value_into(&mut body, reason);
    }
    body.push(b'}');
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The body of an early error: the message at once, and its end when the client has sent the rest
/// of its request, which is thrown away. A client that reads no answer before it has sent
/// everything would see a broken connection otherwise, in place of the message.
struct Apology {
    message: Option<Bytes>,
    rest: Body,
    /// So many bytes more are taken.
    patience: u64,
    until: Pin<Box<Sleep>>,
}

impl Apology {
    /// Beyond what a client sends by mistake; those who send more may see the connection break.
    const PATIENCE: u64 = 4 << 30;
    const PATIENCE_TIME: Duration = Duration::from_secs(30);

    fn new(message: Bytes, rest: Body) -> Self {
        let until = Box::pin(tokio::time::sleep(Self::PATIENCE_TIME));
        Self { message: Some(message), rest, patience: Self::PATIENCE, until }
    }
}

impl HttpBody for Apology {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        loop {
            if self.until.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            let Some(Ok(frame)) = ready!(Pin::new(&mut self.rest).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            let Some(patience) = self.patience.checked_sub(length) else {
                return Poll::Ready(None);
            };
            self.patience = patience;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::Shed;

    #[test]
    fn a_shed_request_is_told_when_to_come_back() {
        let retry_after = Duration::from_millis(1200);
        let response = infer_error(&InferError::Shed { reason: Shed::Overload, retry_after });
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    }

    #[test]
    fn errors_are_json() {
        let response = error_response(StatusCode::BAD_REQUEST, "no \"x\"", Some("late"));
        assert_eq!(&response.body()[..], br#"{"error":"no \"x\"","reason":"late"}"#);
    }
}
