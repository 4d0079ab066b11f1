//! `fermata top`: the real binary, without a terminal, against a server that always says the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use common::Folder;
use serde_json::Value;

const STATUS: &str = r#"{"version": "0.1.0", "ready": true, "draining": false, "uptime_s": 12.0,
    "models": [{
    "name": "resnet50", "version": "1", "pool": "cpu", "slo_ms": 25.0, "pending": 0,
    "in_time": 7, "late": 0,
    "dropped": 0, "cancelled": 0, "failed": 0,
    "latency": [[25.0, 7]], "answers": 7, "batches": [[1, 7]]}],
    "pools": [{"name": "cpu", "executors": 2, "busy": 0.25, "bad": 0,
    "advised_executors": 1, "busy_s": [1, 2]}],
    "missing": [], "new": "is not minded"}"#;

#[test]
fn it_is_told_as_text_and_as_json() {
    let url = serve(STATUS);
    let (code, text, _) = top(&[&url, "--once"]);
    assert_eq!(code, Some(0));
    for part in ["ready, up 12 s, 1 model, of the last 1 s", "resnet50", "2 executors   25 % busy"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    // Without a terminal it is the same.
    assert_eq!(top(&[&url]).1, text);
    let (_, texts, _) = top(&[&url, "--for", "400ms", "--every", "200ms"]);
    assert_eq!(texts.matches("resnet50").count(), 2, "{texts}");
    let (_, json, _) = top(&[&url, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["pools"][0]["executors"], 2);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let (other, unknown) = (serve("{}"), serve(""));
    for (args, reason) in [
        (vec!["http://127.0.0.1:9"], "cannot be reached: Connection refused"),
        (vec!["grpc://127.0.0.1:9"], "is gRPC"),
        (vec![other.as_str()], "has another /status.json: missing field `version`"),
        (vec![unknown.as_str()], "is not Fermata: it has no /status.json"),
        (vec!["http://127.0.0.1:9", "--for", "soon"], "--for: 'soon' is not a duration"),
        (vec!["http://127.0.0.1:9", "--every", "0"], "--every: '0' is not a duration"),
    ] {
        let (code, text, error) = top(&args);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{args:?}");
        assert!(error.contains(reason) && error.lines().count() == 1, "{args:?}: {error}");
    }
}

fn top(args: &[&str]) -> (Option<i32>, String, String) {
    let args: Vec<&str> = ["top"].iter().chain(args).copied().collect();
    let output = Folder::new().fermata(&args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Answers everybody with this, or with 404 if it is nothing.
fn serve(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = body.replace('\n', "");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let _ = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).count();
            let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    url
}
