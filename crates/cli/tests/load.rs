//! `fermata load` and `fermata models`: the real binary against a small server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/serve.rs"]
mod serve;
#[path = "common/server.rs"]
mod server;

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::Folder;
use serde_json::Value;

const NO_STALL: (Duration, Duration) = (Duration::ZERO, Duration::ZERO);

fn report(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn load(url: &str, args: &[&str]) -> Value {
    let args: Vec<&str> = ["load", url].iter().chain(args).chain(&["--json"]).copied().collect();
    report(&Folder::new().fermata(&args))
}

const SHORT: [&str; 4] = ["--warmup", "100ms", "--duration", "1s"];

fn with<'a>(args: &[&'a str]) -> Vec<&'a str> {
    args.iter().chain(&SHORT).copied().collect()
}

#[test]
fn an_open_loop_sends_what_is_due() {
    let (url, state) = server::start(NO_STALL);
    let uniform = ["echo", "--rate", "200", "--arrivals", "uniform", "--slo-ms", "500"];
    let report = load(&url, &with(&uniform));
    assert_eq!(report["counts"]["sent"], 200);
    assert_eq!(report["offered_rps"], 200.0);
    assert_eq!(report["in_time_share"], 1.0, "{report}");
    assert_eq!(report["models"]["echo"]["slo_ms"], 500.0);
    assert_eq!(report["waited_for_connection"], 0);
    assert_eq!(state.inputs.lock().unwrap()["echo"], 64);
    let latency = &report["latency_ms"];
    let of = |name: &str| latency[name].as_f64().unwrap();
    assert!(of("p50") <= of("p90") && of("p90") <= of("p99") && of("p99") <= of("max"));

    let chunked =
        load(&url, &with(&["chunked", "--rate", "200", "--batch", "3", "--threads", "2"]));
    let sent = chunked["counts"]["sent"].as_u64().unwrap();
    assert!((100..300).contains(&sent));
    assert_eq!(chunked["counts"]["in_time"], sent);
    assert_eq!(state.inputs.lock().unwrap()["chunked"], 3 * 64);
}

#[test]
fn files_are_sent_if_they_fit() {
    let (url, state) = server::start(NO_STALL);
    let folder = Folder::new();
    folder.write("fits", &"a".repeat(64));
    folder.write("short", "a");
    let run =
        |file| folder.fermata(&with(&["load", &url, "echo", "--rate", "50", "--input", file]));
    assert!(run("x:fits").status.success());
    assert_eq!(state.inputs.lock().unwrap()["echo"], 64);
    let error = String::from_utf8(run("x:short").stderr).unwrap();
    assert!(
        error.contains("short: has 1 bytes, and 'x' of shape [1, 16] and type FP32 has 64"),
        "{error}"
    );
}

#[test]
fn a_stall_is_not_hidden() {
    // All requests that are due while the server stands still are late, not only those it had.
    let (url, _) = server::start((Duration::from_millis(1500), Duration::from_millis(1900)));
    let args = ["stall", "--rate", "200", "--arrivals", "uniform", "--slo-ms", "100"];
    let report = load(
        &url,
        &["--duration", "3s", "--warmup", "0"].iter().chain(&args).copied().collect::<Vec<_>>(),
    );
    let late = report["counts"]["late"].as_u64().unwrap();
    assert!(late >= 40, "{report}");
    assert!(report["latency_ms"]["max"].as_f64().unwrap() > 250.0, "{report}");
}

#[test]
fn every_ending_has_its_outcome() {
    let (url, _) = server::start(NO_STALL);
    let cases = [
        ("busy", "shed", "full, try again"),
        ("missed", "missed", "too late"),
        ("wrong", "failed", "the engine failed"),
        ("slow", "late", ""),
    ];
    let models: Vec<String> = cases.iter().map(|(model, ..)| format!("{model}=50@30")).collect();
    let args: Vec<&str> = models.iter().map(String::as_str).collect();
    let report = load(&url, &with(&args));
    for (model, outcome, message) in cases {
        let counts = &report["models"][model]["counts"];
        assert_eq!(counts[outcome], counts["sent"], "{model}: {report}");
        assert!(counts["sent"].as_u64().unwrap() > 10);
        let mut errors = report["errors"].as_array().unwrap().iter();
        assert!(message.is_empty() || errors.any(|error| error["first"] == message), "{report}");
    }
}

#[test]
fn what_never_ends_is_given_up() {
    let (url, _) = server::start(NO_STALL);
    // The first request of the load is a probe, which waits.
    let args = ["never", "--rate", "20", "--timeout-ms", "200", "--connections", "2"];
    let start = Instant::now();
    let report = load(&url, &with(&args));
    assert_eq!(report["counts"]["missed"], report["counts"]["sent"], "{report}");
    assert!(report["waited_for_connection"].as_u64().unwrap() > 0);
    assert!(start.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_closed_loop_keeps_so_many_in_flight() {
    let (url, _) = server::start(NO_STALL);
    let report = load(&url, &with(&["slow", "--concurrency", "8"]));
    let rate = report["in_time_rps"].as_f64().unwrap();
    assert!((60.0..140.0).contains(&rate), "{rate}");
    assert_eq!((&report["concurrency"], &report["offered_rps"]), (&Value::from(8), &Value::Null));
}

#[test]
fn the_same_over_grpc() {
    let url = server::start_grpc();
    let report = load(&url, &with(&["echo=100", "busy=50", "missed=50", "--slo-ms", "500"]));
    for (model, outcome) in [("echo", "in_time"), ("busy", "shed"), ("missed", "missed")] {
        let counts = &report["models"][model]["counts"];
        assert_eq!(counts[outcome], counts["sent"], "{model}: {report}");
    }
    assert!(report["errors"].as_array().unwrap().iter().any(|error| error["first"] == "100% full"));
    let closed = load(&url, &with(&["echo", "--concurrency", "4"]));
    assert!(closed["in_time_rps"].as_f64().unwrap() > 100.0);
    let never = load(&url, &with(&["never", "--rate", "20", "--timeout-ms", "200"]));
    assert_eq!(never["counts"]["missed"], never["counts"]["sent"], "{never}");
}

/// The real server with a model that takes and gives numbers.
fn real_server() -> (Folder, serve::Server) {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("net")).unwrap();
    folder.write(
        "net/fermata.toml",
        "slo_ms = 500\nengine = \"emulated\"\nlatency_ms = [1, 1, 1, 1]\n",
    );
    let config = "max_batch_size: 4\n\
        input [{ name: \"x\" data_type: TYPE_FP32 dims: [16] }]\n\
        output [{ name: \"y\" data_type: TYPE_FP32 dims: [3] }]\n";
    folder.write("net/config.pbtxt", config);
    let server = serve::Server::start(&folder, &[]);
    (folder, server)
}

#[test]
fn tensors_pass_through_shared_memory() {
    let (_folder, server) = real_server();
    for url in [&server.url, &server.grpc] {
        for passed in [&["--shared-memory"][..], &["--shared-memory", "outputs"]] {
            let args =
                [&["net", "--rate", "100", "--slo-ms", "500", "--batch", "2"], passed].concat();
            let report = load(url, &with(&args));
            let counts = &report["counts"];
            assert_eq!(counts["sent"], counts["in_time"], "{url} {passed:?}: {report}");
            assert!(counts["sent"].as_u64().unwrap() > 50);
        }
    }
    let (_, regions) = server.get("/v2/systemsharedmemory/status");
    assert_eq!(regions, "[]", "every region is forgotten");
    server.stop();
}

#[test]
fn a_server_that_cannot_share_memory_is_told_of_in_one_line() {
    let (url, _) = server::start(NO_STALL);
    for args in [&["--shared-memory"][..], &["--shared-memory", "everything"]] {
        let args = [&["load", &url, "echo", "--rate", "50"], args].concat();
        let output = Folder::new().fermata(&args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--shared-memory"), "{error}");
    }
}

#[test]
fn goodput_is_found_and_drawn() {
    let (url, _) = server::start(NO_STALL);
    let folder = Folder::new();
    let args = [
        "load",
        &url,
        "serial",
        "--goodput",
        "--slo-ms",
        "50",
        "--arrivals",
        "uniform",
        "--plot",
        "out.svg",
    ];
    let output =
        folder.fermata(&args.iter().chain(&SHORT).chain(&["--json"]).copied().collect::<Vec<_>>());
    let report = report(&output);
    // A request takes 2 ms and a bit, one at a time.
    let goodput = report["goodput_rps"].as_f64().unwrap();
    assert!((100.0..500.0).contains(&goodput), "{report}");
    assert!(report["steps"].as_array().unwrap().len() > 4);
    assert!((report["offered_rps"].as_f64().unwrap() - goodput).abs() < 1e-6);
    assert!(std::fs::read_to_string(folder.path("out.svg")).unwrap().contains("SLO 50 ms"));
    assert_eq!(folder.names(), ["out.svg"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("too much"));
}

#[test]
fn an_interrupted_run_is_reported() {
    let (url, _) = server::start(NO_STALL);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fermata"));
    let args =
        ["load", &url, "echo", "--rate", "100", "--warmup", "0", "--duration", "60s", "--json"];
    let child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(1500));
    assert!(
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success()
    );
    let report = report(&child.wait_with_output().unwrap());
    assert_eq!(
        (&report["cut"], &report["counts"]["missed"]),
        (&Value::from(true), &Value::from(0))
    );
    let rate = report["sent_rps"].as_f64().unwrap();
    assert!((50.0..150.0).contains(&rate), "{report}");
}

#[test]
fn tables_are_for_people() {
    let (url, _) = server::start(NO_STALL);
    let args = ["load", &url, "echo=50@500", "busy=50@20"];
    let output = Folder::new().fermata(&with(&args));
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["offered", "in time", "shed", "latency p99", "slo ms", "HTTP status 503: full"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() < 140), "{text}");
}

#[test]
fn bad_input_is_one_line() {
    let (url, _) = server::start(NO_STALL);
    let grpc = server::start_grpc();
    let cases: &[(&[&str], &str)] = &[
        (&[&url, "unknown", "--rate", "5"], "unknown model"),
        (&[&grpc, "unknown", "--rate", "5"], "unknown model"),
        (&["http://127.0.0.1:1", "echo", "--rate", "5"], "is the server running"),
        (&["grpc://127.0.0.1:1", "echo", "--rate", "5"], "is the server running"),
        (&[&url.replace("http", "grpc"), "echo", "--rate", "5"], "gRPC port"),
        (&["https://127.0.0.1", "echo", "--rate", "5"], "encryption"),
        (&[&url, "echo"], "--rate: missing"),
        (&[&url, "echo", "--rate", "-5"], "--rate"),
        (&[&url, "echo", "--rate", "0"], "--rate: 0.0 is not"),
        (&[&url, "echo", "--rate", "5", "--concurrency", "3"], "together with --rate"),
        (&[&url, "echo", "--goodput"], "needs --slo-ms"),
        (&[&url, "echo", "--rate", "5", "--arrivals", "fast"], "unknown arrival process"),
        (&[&url, "echo", "--rate", "5", "--arrivals", "trace:none.csv"], "none.csv"),
        (&[&url, "echo", "--rate", "5", "--duration", "long"], "--duration: 'long'"),
        (&[&url, "echo", "--rate", "5", "--shape", "y:1"], "no input 'y': there is x"),
        (&[&url, "echo", "--rate", "5", "--shape", "x:7"], "does not fit input 'x'"),
        (&[&url, "echo", "--rate", "5", "--input", "x:none.bin"], "none.bin"),
        (&[&url, "echo", "--rate", "5", "--data", "ones"], "use random or zeros"),
        (&[&url, "echo", "echo", "--rate", "5"], "twice"),
        (&[&url, "closing", "--rate", "5"], "first request to 'closing' failed"),
        (&[&url, "echo", "--rate", "5", "--plot", "no/where.svg"], "--plot"),
    ];
    for (args, reason) in cases {
        let args: Vec<&str> = ["load"].iter().chain(*args).copied().collect();
        let output = Folder::new().fermata(&args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(reason) && error.lines().count() == 1, "{args:?}: {error}");
    }
}

#[test]
fn models_are_listed_loaded_and_unloaded() {
    let (url, _) = server::start(NO_STALL);
    let run = |args: &[&str]| {
        let args: Vec<&str> = ["models", &url].iter().chain(args).copied().collect();
        let output = Folder::new().fermata(&args);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, table, _) = run(&[]);
    assert_eq!(code, Some(0));
    assert!(table.contains("UNAVAILABLE  no file") && table.contains("not loaded"), "{table}");
    assert_eq!(run(&["list"]).1, table);
    let json: Value = serde_json::from_str(&run(&["--json"]).1).unwrap();
    assert_eq!(json[0]["state"], "READY");
    assert_eq!(run(&["load", "a"]).1, "a is loaded\n");
    assert_eq!(run(&["unload", "a"]).1, "a is unloaded\n");
    let (code, _, error) = run(&["load", "a/b"]);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("'a/b' cannot be loaded: cannot POST /v2/repository/models/a%2Fb/load"),
        "{error}"
    );
    let output = Folder::new().fermata(&["models", "grpc://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2));
}
