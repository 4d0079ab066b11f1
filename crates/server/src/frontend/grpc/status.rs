//! Errors as gRPC has them.

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::frontend::deadline::whole_seconds;
use crate::inference::InferError;

/// The status of an error.
pub(super) fn status(error: InferError) -> Status {
    let code = match &error {
        InferError::Cancelled => Code::Cancelled,
        InferError::Internal(_) => Code::Internal,
        InferError::Invalid(_) | InferError::TooLong(_) => Code::InvalidArgument,
        InferError::Missed => Code::DeadlineExceeded,
        InferError::Shed { .. } => Code::ResourceExhausted,
        InferError::Unavailable(_) => Code::Unavailable,
        InferError::Unknown(_) => Code::NotFound,
        InferError::Unsupported(_) => Code::Unimplemented,
    };
    let mut status = Status::new(code, error.to_string());
    if let InferError::Shed { reason, retry_after } = error {
        let metadata = status.metadata_mut();
        metadata.insert("fermata-reason", MetadataValue::from_static(reason.word()));
        metadata.insert("retry-after", MetadataValue::from(whole_seconds(retry_after)));
    }
    status
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::inference::Shed;

    #[test]
    fn a_shed_request_says_why_and_when_to_come_back() {
        let retry_after = Duration::from_millis(10);
        let status = status(InferError::Shed { reason: Shed::Late, retry_after });
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.metadata().get("fermata-reason").unwrap(), "late");
        assert_eq!(status.metadata().get("retry-after").unwrap(), "1");
    }
}
