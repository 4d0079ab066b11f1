//! One request of each model before the load: what is wrong with them is better said once.

use std::time::Duration;

use fermata_files::InputError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::payload::Requests;
use super::plan::Plan;
use crate::client::grpc::{Connection, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED};
use crate::client::response::{Keep, ResponseReader};

/// A model may be slow the first time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends them. A server that is busy, or sheds, may be measured; one that does not understand may
/// not.
pub(super) async fn probe(plan: &Plan, requests: &Requests) -> Result<(), InputError> {
    for (number, model) in plan.models.iter().enumerate() {
        let outcome = timeout(PATIENCE, async {
            match requests {
                Requests::Grpc(requests) => over_grpc(plan, &requests[number][0]).await,
                Requests::Http(requests) => over_http(plan, &requests[number][0]).await,
            }
        });
        let reason = match outcome.await {
            Ok(Ok(())) => continue,
            Ok(Err(reason)) => reason,
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        let reason = format!("the first request to '{}' failed: {reason}", model.name);
        return Err(InputError::Argument { name: "MODEL", reason });
    }
    Ok(())
}

async fn over_http(plan: &Plan, request: &[u8]) -> Result<(), String> {
    let plain = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(plan.target.address).await.map_err(plain)?;
    stream.write_all(request).await.map_err(plain)?;
    let mut reader = ResponseReader::new(Keep::Errors);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = stream.read(&mut buffer).await.map_err(plain)?;
        let response = match length {
            0 => Some(reader.closed().ok_or("the server closed the connection without an answer")?),
            length => {
                let fed = reader.feed(&buffer[..length]).map_err(|error| error.to_string())?;
                fed.map(|(response, _)| response)
            }
        };
        match response {
            Some(response) if (400..500).contains(&response.status) && response.status != 429 => {
                return Err(format!("{} (HTTP status {})", response.message(), response.status));
            }
            Some(_) => return Ok(()),
            None => {}
        }
    }
}

async fn over_grpc(plan: &Plan, request: &crate::client::grpc::Prepared) -> Result<(), String> {
    let mut connection = Connection::open(&plan.target).await?;
    let reply = connection.call(request, false).await?;
    match reply.status {
        INVALID_ARGUMENT | NOT_FOUND | UNIMPLEMENTED => {
            Err(format!("{} (gRPC status {})", reply.message, reply.status))
        }
        _ => Ok(()),
    }
}
