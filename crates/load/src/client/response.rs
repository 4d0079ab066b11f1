//! Reads HTTP/1.1 responses from whatever pieces arrive. No IO; bodies are kept only where they are
//! wanted.

use std::mem;

/// Reads one response after the other.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    state: State,
    /// What has arrived of a head, or of a chunk's first line.
    partial: Vec<u8>,
    answer: Response,
    /// Bodies are kept up to so many bytes: all of them, or those of errors only.
    keep: Keep,
}

/// Which bodies are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    All,
    /// Enough of an error to say what it was.
    Errors,
}

/// A whole response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The connection cannot be used again.
    pub(crate) close: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Body {
        left: u64,
    },
    ChunkSize,
    Chunk {
        left: u64,
    },
    /// The line end after a chunk.
    ChunkEnd,
    Trailers,
    UntilClosed,
}

/// Bytes that are no HTTP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not HTTP/1.1: {0}")]
pub(crate) struct NotHttp(String);

const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;
const ERROR_KEPT: usize = 1 << 10;
const ALL_KEPT: usize = 64 << 20;

impl ResponseReader {
    pub(crate) fn new(keep: Keep) -> Self {
        let answer = Response::default();
        Self { state: State::Head, partial: Vec::new(), answer, keep }
    }

    /// Takes what arrived, up to the end of a response; the rest of the input is returned with it.
    pub(crate) fn feed<'a>(
        &mut self,
        mut input: &'a [u8],
    ) -> Result<Option<(Response, &'a [u8])>, NotHttp> {
        while !input.is_empty() {
            match self.state {
                State::Head => match self.head(&mut input)? {
                    Some(true) => return Ok(Some((self.finish(), input))),
                    Some(false) => {}
                    None => return Ok(None),
                },
                State::Body { left } => match self.body(&mut input, left) {
                    0 => return Ok(Some((self.finish(), input))),
                    left => self.state = State::Body { left },
                },
                State::Chunk { left } => {
                    self.state = match self.body(&mut input, left) {
                        0 => State::ChunkEnd,
                        left => State::Chunk { left },
                    }
                }
                State::UntilClosed => {
                    self.body(&mut input, u64::MAX);
                }
                State::ChunkSize | State::ChunkEnd | State::Trailers => {
                    let Some(line) = self.line(&mut input)? else { return Ok(None) };
                    match self.state {
                        State::ChunkEnd => self.state = State::ChunkSize,
                        State::Trailers if line.is_empty() => {
                            return Ok(Some((self.finish(), input)));
                        }
                        State::Trailers => {}
                        _ => {
                            let size = line.split(';').next().unwrap_or_default().trim();
                            let size = u64::from_str_radix(size, 16).map_err(|_| {
                                NotHttp(format!(
                                    "a chunk of length '{}'",
                                    fermata_files::in_one_line(&line)
                                ))
                            })?;
                            self.state = if size == 0 {
                                State::Trailers
                            } else {
                                State::Chunk { left: size }
                            };
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// The other side has closed: the response, if that was its end.
    pub(crate) fn closed(&mut self) -> Option<Response> {
        (self.state == State::UntilClosed).then(|| self.finish())
    }

    fn finish(&mut self) -> Response {
        self.state = State::Head;
        mem::take(&mut self.answer)
    }

    /// Reads a head: whether the response ends with it; `None` if it is not there yet.
    fn head(&mut self, input: &mut &[u8]) -> Result<Option<bool>, NotHttp> {
        let before = self.partial.len();
        // Mostly a head comes whole, and is read where it lies.
        let whole = before == 0;
        if !whole {
            self.partial.extend_from_slice(input);
        }
        let text = if whole { *input } else { &self.partial[..] };
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(text).map_err(|error| NotHttp(error.to_string()))? {
            httparse::Status::Complete(length) => length,
            httparse::Status::Partial if text.len() > HEAD_MAX => {
                return Err(NotHttp("its head is too long".to_owned()));
            }
            httparse::Status::Partial => {
                if whole {
                    self.partial.extend_from_slice(input);
                }
                *input = &[];
                return Ok(None);
            }
        };
        let status = parsed.code.unwrap_or_default();
        self.answer.status = status;
        self.answer.close = parsed.version == Some(0);
        let mut next = State::UntilClosed;
        for header in parsed.headers.iter() {
            let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
            if header.name.eq_ignore_ascii_case("content-length") {
                let left = value.parse().map_err(|_| NotHttp(format!("a length of '{value}'")))?;
                if next == State::UntilClosed {
                    next = State::Body { left };
                }
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                if value.to_ascii_lowercase().ends_with("chunked") {
                    next = State::ChunkSize;
                }
            } else if header.name.eq_ignore_ascii_case("connection") {
                self.answer.close = match value.to_ascii_lowercase().as_str() {
                    "close" => true,
                    "keep-alive" => false,
                    _ => self.answer.close,
                };
            }
        }
        *input = &input[length - before..];
        self.partial.clear();
        if (100..200).contains(&status) {
            return Ok(Some(false)); // The response proper follows.
        }
        if status == 204 || status == 304 {
            next = State::Body { left: 0 };
        }
        self.answer.close |= next == State::UntilClosed;
        self.state = next;
        Ok(Some(next == State::Body { left: 0 }))
    }

    /// Takes some of a body; returns how much is left of it.
    fn body(&mut self, input: &mut &[u8], left: u64) -> u64 {
        let taken = left.min(input.len() as u64) as usize;
        let (body, rest) = input.split_at(taken);
        let most = match self.keep {
            Keep::All => ALL_KEPT,
            Keep::Errors if self.answer.status != 200 => ERROR_KEPT,
            Keep::Errors => 0,
        };
        let kept = &mut self.answer.body;
        kept.extend_from_slice(&body[..taken.min(most.saturating_sub(kept.len()))]);
        *input = rest;
        left - taken as u64
    }

    fn line(&mut self, input: &mut &[u8]) -> Result<Option<String>, NotHttp> {
        let end = input.iter().position(|&byte| byte == b'\n');
        let taken = end.map_or(input.len(), |end| end + 1);
        self.partial.extend_from_slice(&input[..taken]);
        *input = &input[taken..];
        if self.partial.len() > HEAD_MAX {
            return Err(NotHttp("a line is too long".to_owned()));
        }
        if end.is_none() {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&self.partial).trim().to_owned();
        self.partial.clear();
        Ok(Some(line))
    }
}

impl Response {
    /// What an error says: `{"error": "..."}`, or whatever there is.
    pub(crate) fn message(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Body {
            error: String,
        }
        let text = match serde_json::from_slice::<Body>(&self.body) {
            Ok(body) => body.error,
            Err(_) => String::from_utf8_lossy(&self.body).into_owned(),
        };
        match fermata_files::in_one_line(&text) {
            text if text.is_empty() => "no reason given".to_owned(),
            text => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 503 Busy\r\ncontent-length: 15\r\nConnection: close\r\n\r\n{\"error\":\"full\"}\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: \
        1\r\n\r\n\
        HTTP/1.1 204 No Content\r\n\r\n\
        HTTP/1.0 200 OK\r\n\r\nto the end";

    fn read(pieces: usize) -> Vec<(u16, String, bool)> {
        let stream = STREAM.replace("length: 15", "length: 16");
        let mut reader = ResponseReader::new(Keep::All);
        let mut found = Vec::new();
        for piece in stream.as_bytes().chunks(pieces) {
            let mut piece = piece;
            while let Some((response, rest)) = reader.feed(piece).unwrap() {
                found.push(response);
                piece = rest;
            }
        }
        found.extend(reader.closed());
        let show = |response: Response| {
            (response.status, String::from_utf8(response.body).unwrap(), response.close)
        };
        found.into_iter().map(show).collect()
    }

    #[test]
    fn pieces_do_not_matter() {
        let whole = read(usize::MAX);
        let bodies = ["hello", "{\"error\":\"full\"}", "abcde", "", "to the end"];
        assert_eq!(whole.iter().map(|(_, body, _)| body.as_str()).collect::<Vec<_>>(), bodies);
        assert_eq!(
            whole.iter().map(|x| x.2).collect::<Vec<_>>(),
            [false, true, false, false, true]
        );
        for pieces in 1..40 {
            assert_eq!(read(pieces), whole, "{pieces}");
        }
    }

    #[test]
    fn errors_are_told_and_nonsense_is_refused() {
        let mut reader = ResponseReader::new(Keep::Errors);
        let text = b"HTTP/1.1 400 Bad\r\nContent-Length: 20\r\n\r\n{\"error\":\"a \\n bcd\"}";
        let (response, rest) = reader.feed(text).unwrap().unwrap();
        assert_eq!((response.message().as_str(), rest.len()), ("a bcd", 0));
        assert!(ResponseReader::new(Keep::All).feed(b"SSH-2.0-OpenSSH\r\n").is_err());
        let long = [b'x'; HEAD_MAX + 100];
        let mut reader = ResponseReader::new(Keep::All);
        assert!(reader.feed(b"HTTP/1.1 200 OK\r\nA: ").unwrap().is_none());
        assert!(reader.feed(&long).is_err());
    }
}
