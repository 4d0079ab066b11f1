//! A server of the Open Inference Protocol that is as small as the tests allow. What it does with a
//! request is said by the model's name.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use fermata_protocol::proto;
use prost::Message;

/// What it does.
#[derive(Debug)]
pub(crate) struct State {
    /// One request at a time for `serial`.
    turn: Mutex<()>,
    started: Instant,
    /// When `stall` stands still.
    pub(crate) stall: (Duration, Duration),
    /// By model, the bytes of the inputs that came last.
    pub(crate) inputs: Mutex<BTreeMap<String, usize>>,
}

/// A GPU of which a share is away.
const GPUS: &str = r#"{"gpus":[{"gpu":0,"name":"NVIDIA H200","multiprocessors":132,
    "memory_used_bytes":2147483648,
    "memory_total_bytes":150323855360,"seats":3,"shares":[
    {"seat":0,"percent":40,"multiprocessors":56,"executor":2,"restarts":0},
    {"seat":1,"percent":60,"multiprocessors":76,"executor":null,"restarts":1}],
    "shares_by":"plan","restarts":1,"last_recut_ms":3.25}]}"#;
/// One that was cut.
const RECUT: &str = r#"{"gpu":0,"shares":[40,60],"multiprocessors":[56,76],"took_ms":3.25}"#;

/// An answer: an HTTP status and a body.
type Answer = (u16, String);

impl State {
    /// `None` if the connection is to be closed.
    fn infer(&self, model: &str, bytes: usize) -> Option<Answer> {
        self.inputs.lock().unwrap().insert(model.to_owned(), bytes);
        let error = |status, text: &str| Some((status, format!("{{\"error\":\"{text}\"}}")));
        match model {
            "busy" => return error(503, "full, try again"),
            "missed" => return error(504, "too late"),
            "wrong" => return error(500, "the engine failed"),
            "closing" => return None,
            "serial" => {
                let _turn = self.turn.lock().unwrap();
                thread::sleep(Duration::from_millis(2));
            }
            "slow" => thread::sleep(Duration::from_millis(60)),
            "never" => thread::sleep(Duration::from_secs(3)),
            "stall" => {
                let (from, to) = self.stall;
                let now = self.started.elapsed();
                if (from..to).contains(&now) {
                    thread::sleep(to - now);
                }
            }
            _ => {}
        }
        Some((200, "{}".to_owned()))
    }

    fn http(&self, method: &str, path: &str, body: &[u8], header_length: usize) -> Option<Answer> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (method, &parts[..]) {
            ("GET", ["v2", "models", "unknown"]) => {
                Some((404, "{\"error\":\"unknown model 'unknown'\"}".to_owned()))
            }
            ("GET", ["v2", "models", _]) => {
                let tensor = "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,16]}";
                Some((200, format!("{{\"inputs\":[{tensor}],\"outputs\":[{tensor}]}}")))
            }
            ("POST", ["v2", "models", model, "infer"]) => {
                self.infer(model, body.len() - header_length)
            }
            ("POST", ["v2", "repository", "index"]) => {
                let index = "[{\"name\":\"a\",\"version\":\"1\",\"state\":\"READY\"},\
                    {\"name\":\"b\",\"state\":\"UNAVAILABLE\",\"reason\":\"no\\nfile\"},\
                    {\"name\":\"c\"}]";
                Some((200, index.to_owned()))
            }
            ("GET", ["v2", "fermata", "gpus"]) => Some((200, GPUS.to_owned())),
            ("POST", ["v2", "fermata", "gpus", "0", "shares"]) => {
                let shares = String::from_utf8_lossy(body);
                match shares.contains("[40,60]") {
                    true => Some((200, RECUT.to_owned())),
                    false => Some((400, "{\"error\":\"GPU 0 has 2 seats\"}".to_owned())),
                }
            }
            ("POST", ["v2", "repository", "models", "a", "load" | "unload"]) => {
                Some((200, String::new()))
            }
            _ => Some((400, format!("{{\"error\":\"cannot {method} {path}\"}}"))),
        }
    }
}

/// Starts it on a port of its own; it ends with the test.
pub(crate) fn start(stall: (Duration, Duration)) -> (String, Arc<State>) {
    let state =
        State { turn: Mutex::new(()), started: Instant::now(), stall, inputs: Mutex::default() };
    let state = Arc::new(state);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let shared = state.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = shared.clone();
            thread::spawn(move || talk(&stream, &state));
        }
    });
    (url, state)
}

fn talk(stream: &TcpStream, state: &State) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&length| length > 0)?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let (mut length, mut header_length) = (0, 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim_end().split_once(": ") {
                None => break,
                Some(("Content-Length", value)) => length = value.parse().ok()?,
                Some(("Inference-Header-Content-Length", value)) => {
                    header_length = value.parse().ok()?
                }
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, text) = state.http(&method, &path, &body, header_length)?;
        // Chunks are rare, and must be understood all the same.
        let answer = match path.contains("chunked") {
            true => format!(
                "HTTP/1.1 {status} X\r\nTransfer-Encoding: \
                 chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n",
                text.len()
            ),
            false => format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len()),
        };
        (&mut &*stream).write_all(answer.as_bytes()).ok()?;
    }
}

/// Starts the same over gRPC.
pub(crate) fn start_grpc() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("grpc://{}", listener.local_addr().unwrap());
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(talk_grpc(stream));
            }
        });
    });
    url
}

async fn talk_grpc(stream: tokio::net::TcpStream) -> Option<()> {
    let mut connection = h2::server::handshake(stream).await.ok()?;
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer_grpc(request, respond));
    }
    None
}

async fn answer_grpc(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    let mut bytes = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.ok()?;
        body.flow_control().release_capacity(piece.len()).ok()?;
        bytes.extend_from_slice(&piece);
    }
    let message = bytes.freeze().slice(5..);
    let (status, text, answer) = match path.as_str() {
        "/inference.GRPCInferenceService/ModelMetadata" => {
            let request = proto::ModelMetadataRequest::decode(message).ok()?;
            let tensor = proto::model_metadata_response::TensorMetadata {
                name: "x".to_owned(),
                datatype: "FP32".to_owned(),
                shape: vec![-1, 16],
            };
            let metadata =
                proto::ModelMetadataResponse { inputs: vec![tensor], ..Default::default() };
            match request.name.as_str() {
                "unknown" => (5, "unknown model", Vec::new()),
                _ => (0, "", metadata.encode_to_vec()),
            }
        }
        _ => {
            let request = proto::ModelInferRequest::decode(message).ok()?;
            assert_eq!(request.raw_input_contents[0].len(), 64);
            match request.model_name.as_str() {
                "busy" => (8, "100%25 full", Vec::new()),
                "missed" => (4, "too late", Vec::new()),
                "never" => {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    (0, "", Vec::new())
                }
                _ => (0, "", proto::ModelInferResponse::default().encode_to_vec()),
            }
        }
    };
    let mut head = http::Response::builder().header("content-type", "application/grpc");
    if status != 0 {
        head = head.header("grpc-status", status).header("grpc-message", text);
        respond.send_response(head.body(()).ok()?, true).ok()?;
        return None;
    }
    let mut stream = respond.send_response(head.body(()).ok()?, false).ok()?;
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(answer.len() as u32);
    framed.extend_from_slice(&answer);
    stream.send_data(framed.freeze(), false).ok()?;
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().ok()?);
    stream.send_trailers(trailers).ok()
}
