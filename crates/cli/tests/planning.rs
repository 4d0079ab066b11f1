//! `fermata serve --plan auto`: the real binary plans while it serves, and no request fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/serve.rs"]
mod serve;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use common::Folder;
use serde_json::Value;
use serve::Server;

/// Longer than anything takes where all is well.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn executors_follow_the_load_and_no_request_fails() {
    let folder = Folder::new();
    for model in 0..6 {
        model_of_40_mb(&folder, &format!("net{model}"));
    }
    // Three models fit on a GPU, so that there are two pools at least.
    let options = ["--plan", "auto", "--epoch", "1s", "--gpu-memory-mb", "120"];
    let server = Server::start(&folder, &[&options[..], &["--emulated-executors", "40"]].concat());
    let idle = until(&server, "what is not needed goes", |plan| plan["gpus"].as_u64() <= Some(4));
    assert_eq!(idle["gpus_limit"], 40);

    let models: Vec<String> = (0..6).map(|model| format!("net{model}=100")).collect();
    let mut load = vec!["load", &server.url];
    load.extend(models.iter().map(String::as_str));
    load.extend(["--duration", "5s", "--warmup", "0", "--slo-ms", "3000", "--json"]);
    let asked = thread::scope(|scope| {
        let load = scope.spawn(|| folder.fermata(&load));
        // 600 requests of 20 ms a second, batched or not, are more than an executor or two can do.
        until(&server, "what is needed comes", |plan| plan["gpus"].as_u64() >= Some(5));
        load.join().unwrap()
    });
    let report: Value = serde_json::from_slice(&asked.stdout).unwrap();
    let counts = &report["counts"];
    assert_eq!(counts["sent"], counts["in_time"], "{report}");
    assert!(counts["sent"].as_u64() > Some(1_000), "{report}");

    let status = until(&server, "it goes again", |plan| plan["gpus"].as_u64() <= Some(4));
    assert!(status["plans"].as_u64() >= Some(3));
    assert!(status["last"]["why"].is_string() && status["last"]["pools"].is_array());
    let top = folder.fermata(&["top", &server.url, "--once"]);
    let top = String::from_utf8(top.stdout).unwrap();
    assert!(
        top.lines().any(|line| line.starts_with("plan  ") && line.contains("of 40 GPUs")),
        "{top}"
    );
    server.stop();
}

#[test]
fn what_does_not_go_with_a_plan_is_refused() {
    let folder = Folder::new();
    model_of_40_mb(&folder, "net");
    for (options, reason) in [
        (&["--record", "run.txt"][..], "--plan: a recording has the pools of the start"),
        (&["--scheduler-threads", "2"], "--scheduler-threads: executors come and go only where"),
        (&["--epoch", "1ms"], "--epoch: '1ms' is too short"),
        (&["--epoch", "soon"], "--epoch: 'soon' is not a duration"),
    ] {
        let args = [&["serve", ".", "--plan", "auto", "--http-port", "0"][..], options].concat();
        let output = folder.fermata(&args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(reason), "{error}");
    }
}

/// Each request takes 20 ms, alone.
fn model_of_40_mb(folder: &Folder, name: &str) {
    fs::create_dir_all(folder.path(name)).unwrap();
    let text = "slo_ms = 3000\nengine = \"emulated\"\nlatency_ms = [20]\nmemory_mb = 40\n";
    folder.write(&format!("{name}/fermata.toml"), text);
}

/// Waits for a state of the plan, and returns it.
fn until(server: &Server, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let status: Value = serde_json::from_str(&server.get("/status.json").1).unwrap();
        if holds(&status["plan"]) {
            return status["plan"].clone();
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {:#}", status["plan"]);
        thread::sleep(Duration::from_millis(50));
    }
}
