//! `fermata shares`, against a small server, and the options of `fermata serve` for GPUs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/server.rs"]
mod server;

use std::fs;
use std::time::Duration;

use common::Folder;
use serde_json::Value;

const NEVER: (Duration, Duration) = (Duration::ZERO, Duration::ZERO);

#[test]
fn shares_are_listed_and_cut_anew() {
    let (url, _) = server::start(NEVER);
    let folder = Folder::new();
    let listed = String::from_utf8(folder.fermata(&["shares", &url]).stdout).unwrap();
    let lines: Vec<&str> = listed.lines().collect();
    let head = "GPU 0: NVIDIA H200, 2.0 of 140.0 GiB, 2 of 3 seats in use, 1 restarts, cut by \
                plan, last re-cut in 3.2 ms";
    assert_eq!((lines[0], lines.len()), (head, 4), "{listed}");
    assert!(lines[2].contains("40 %") && lines[2].contains("56 of 132"), "{listed}");
    assert!(lines[3].contains("60 %") && lines[3].contains("away"), "{listed}");
    let json = folder.fermata(&["shares", &url, "--gpu", "0", "--json"]).stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json[0]["shares"][1]["percent"], 60);

    let cut = String::from_utf8(folder.fermata(&["shares", &url, "40,60"]).stdout).unwrap();
    assert_eq!(
        cut,
        "GPU 0 is cut into 40,60 % (56,76 multiprocessors), which serve after 3.2 ms\n"
    );
    let json = folder.fermata(&["shares", &url, "40,60", "--json"]).stdout;
    assert_eq!(serde_json::from_slice::<Value>(&json).unwrap()["took_ms"], 3.25);
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let (url, _) = server::start(NEVER);
    let folder = Folder::new();
    fs::create_dir_all(folder.path("models")).unwrap();
    let serve = |options: &[&'static str]| [&["serve", "models"][..], options].concat();
    for (args, reason) in [
        (vec!["shares", &url, "60,60"], "SHARES: '60,60' are 120 % together"),
        (vec!["shares", &url, "half"], "SHARES: 'half' are not shares in percent"),
        (vec!["shares", &url, "10,10,10"], "SHARES: GPU 0 has 2 seats (HTTP status 400)"),
        (vec!["shares", &url, "--gpu", "7"], "--gpu: there is no GPU 7: there are 0"),
        (vec!["shares", "grpc://127.0.0.1:1"], "URL: grpc://127.0.0.1:1 is gRPC"),
        (vec!["shares", "http://127.0.0.1:1"], "URL: http://127.0.0.1:1 cannot be reached"),
        (serve(&["--shares", "40,60"]), "--shares: is for GPUs: add --gpus all"),
        (serve(&["--gpus", "none", "--seats", "2"]), "--seats: is for GPUs: add --gpus all"),
        (serve(&["--gpus", "all", "--shares", "40,70"]), "--shares: '40,70' are 110 % together"),
        (
            serve(&["--gpus", "all", "--shares", "40,60", "--seats", "1"]),
            "--seats: 1 are fewer than",
        ),
        (serve(&["--shares", "auto"]), "--shares: is for GPUs: add --gpus all"),
        (
            serve(&["--gpus", "all", "--shares", "auto", "--seats", "1"]),
            "--seats: 1 leaves nothing to choose for --shares auto",
        ),
        (serve(&["--gpus", "all", "--shares", "auto,60"]), "--shares: 'auto,60' are not shares"),
        // There is no library in this folder, whether there is a driver or not.
        (serve(&["--gpus", "all"]), "; --gpus none serves on the processors"),
        (serve(&["--gpus", "some"]), "--gpus: 'some' is neither all, none, nor numbers"),
    ] {
        let output = folder.fermata_with(&args, &[("ORT_DYLIB_PATH", "")]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(reason), "{error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
}
