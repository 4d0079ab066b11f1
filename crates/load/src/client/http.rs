//! Single calls over HTTP: a connection each.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::response::{Keep, Response, ResponseReader};
use super::{CallError, Code, Target};

/// Sends one request and reads the whole answer, which must be a success.
pub async fn call(
    target: &Target,
    method: &str,
    path: &str,
    body: &str,
    patience: Duration,
) -> Result<Vec<u8>, CallError> {
    let exchange = exchange(target, method, path, body);
    let response = match timeout(patience, exchange).await {
        Ok(result) => result.map_err(CallError::Unreachable)?,
        Err(_) => {
            let reason = format!("no answer within {} s", patience.as_secs());
            return Err(CallError::Unreachable(reason));
        }
    };
    match response.status {
        200..300 => Ok(response.body),
        status => Err(CallError::Refused { code: Code::Http(status), message: response.message() }),
    }
}

async fn exchange(
    target: &Target,
    method: &str,
    path: &str,
    body: &str,
) -> Result<Response, String> {
    let plain = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(target.address).await.map_err(plain)?;
    let head = format!(
        "{method} {}{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        target.prefix,
        target.authority,
        body.len()
    );
    stream.write_all((head + body).as_bytes()).await.map_err(plain)?;
    let mut reader = ResponseReader::new(Keep::All);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = stream.read(&mut buffer).await.map_err(plain)?;
        if length == 0 {
            return reader.closed().ok_or("it closed the connection without an answer".to_owned());
        }
        if let Some((response, _)) =
            reader.feed(&buffer[..length]).map_err(|error| error.to_string())?
        {
            return Ok(response);
        }
    }
}

/// A name as a part of a path.
pub fn escape(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let write = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(write).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_cannot_leave_their_part_of_a_path() {
        assert_eq!(super::escape("resnet50-v1.5_a"), "resnet50-v1.5_a");
        assert_eq!(super::escape("a/b c?"), "a%2Fb%20c%3F");
    }
}
