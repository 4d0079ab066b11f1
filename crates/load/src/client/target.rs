//! Where a server is: `http://host:8000`, `grpc://host:8001`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use fermata_files::InputError;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What it speaks there.
    pub protocol: Protocol,
    /// As written: it goes into the request.
    pub(crate) authority: String,
    /// What stands before `/v2`; empty, mostly.
    pub(crate) prefix: String,
    pub(crate) address: SocketAddr,
}

/// How to talk to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// HTTP/1.1.
    Http,
}

impl Target {
    /// Reads a URL and looks its host up.
    pub fn parse(url: &str) -> Result<Self, InputError> {
        let refuse = |reason: &str| InputError::Argument {
            name: "URL",
            reason: format!("'{}': {reason}", fermata_files::in_one_line(url)),
        };
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let (protocol, port) = match scheme {
            "http" => (Protocol::Http, 8000),
            "grpc" => (Protocol::Grpc, 8001),
            "https" | "grpcs" => {
                return Err(refuse("encryption is not supported: use http:// or grpc://"));
            }
            _ => return Err(refuse("must begin with http:// or grpc://")),
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        let known = |letter: char| letter.is_ascii_alphanumeric() || ".-_:[]".contains(letter);
        if host.is_empty() || !host.chars().all(known) {
            return Err(refuse("has no host: write http://localhost:8000"));
        }
        if path.contains(|letter: char| {
            letter.is_whitespace() || letter.is_control() || !letter.is_ascii()
        }) {
            return Err(refuse("has a path that cannot be sent"));
        }
        let named = host.rfind(':').is_some_and(|colon| colon > host.rfind(']').unwrap_or(0));
        let authority = if named { host.to_owned() } else { format!("{host}:{port}") };
        let mut addresses = authority
            .to_socket_addrs()
            .map_err(|error| refuse(&format!("the host cannot be found: {error}")))?;
        let address = addresses.next().ok_or_else(|| refuse("the host has no address"))?;
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { protocol, authority, prefix, address })
    }

    /// What to look for when nobody answers.
    pub(super) fn other_hint(&self) -> &'static str {
        match self.protocol {
            Protocol::Grpc => "gRPC port (Triton's and ours is 8001; http://...:8000 is HTTP)",
            Protocol::Http => "HTTP port (Triton's and ours is 8000; grpc://...:8001 is gRPC)",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Grpc => "grpc",
            Protocol::Http => "http",
        };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_prefixes_are_understood() {
        for (url, shown) in [
            ("127.0.0.1", "http://127.0.0.1:8000"),
            ("http://127.0.0.1:9/", "http://127.0.0.1:9"),
            ("http://127.0.0.1/a/b/", "http://127.0.0.1:8000/a/b"),
            ("grpc://[::1]", "grpc://[::1]:8001"),
            ("grpc://[::1]:7", "grpc://[::1]:7"),
        ] {
            assert_eq!(Target::parse(url).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, reason) in [
            ("https://127.0.0.1", "encryption"),
            ("ftp://127.0.0.1", "must begin with"),
            ("http://", "no host"),
            ("http://127.0.0.1:port", "cannot be found"),
            ("http://127.0.0.1/a b", "path"),
        ] {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
