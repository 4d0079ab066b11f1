//! `fermata serve --spare`: what the spare executors of each pool are for, unless it is said, and
//! who may say it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/serve.rs"]
mod serve;

use std::fs;

use common::Folder;
use serde_json::Value;
use serve::Server;

#[test]
fn fixed_pools_use_spare_executors_and_planned_ones_release_them() {
    let folder = repository("");
    assert_eq!(spares(&folder, &[]), ["cpu: latency", "emulated: latency"]);
    assert_eq!(spares(&folder, &["--plan", "auto"]), ["cpu: latency", "emulated: release"]);
}

#[test]
fn the_flag_counts_more_than_the_policy_and_the_policy_more_than_the_repository() {
    let folder = repository("spare = \"release\"\n");
    let [latency, release] = ["latency", "release"]
        .map(|spare| ["cpu", "emulated"].map(|pool| format!("{pool}: {spare}")));
    assert_eq!(spares(&folder, &[]), release);
    assert_eq!(spares(&folder, &["--spare", "latency"]), latency);
    assert_eq!(spares(&folder, &["--policy", "fermata:latency"]), latency);
    let both = ["--policy", "fermata:latency", "--spare", "release"];
    assert_eq!(spares(&folder, &both), release);
    assert_eq!(spares(&folder, &["--policy", "eager"]), ["cpu: none", "emulated: none"]);
}

#[test]
fn a_wrong_use_is_refused_in_one_line() {
    let use_ = "'none' is not a use of spare executors: say latency or release";
    for (file, options, place) in [
        ("spare = \"none\"\n", &[][..], "fermata.toml: spare: "),
        ("", &["--spare", "none"], "--spare"),
    ] {
        let folder = repository(file);
        let ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"];
        let output = folder.fermata(&[&["serve", "."], &ports[..], options].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.lines().count() == 1, "{said}");
        assert!(said.contains(place) && said.contains(use_), "{said}");
    }
}

/// One emulated model, in a repository whose file begins like this.
fn repository(top: &str) -> Folder {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("net")).unwrap();
    folder.write("net/fermata.toml", "engine = \"emulated\"\nlatency_ms = [2]\n");
    folder.write("fermata.toml", &format!("{top}[defaults]\nslo_ms = 50\n"));
    folder
}

/// What each pool's spare executors are for, by the status of a server.
fn spares(folder: &Folder, options: &[&str]) -> Vec<String> {
    let server = Server::start(folder, options);
    let status: Value = serde_json::from_str(&server.get("/status.json").1).unwrap();
    let told = |pool: &Value| {
        let (name, spare) = (pool["name"].as_str().unwrap(), pool["spare"].as_str());
        format!("{name}: {}", spare.unwrap_or("none"))
    };
    let spares = status["pools"].as_array().unwrap().iter().map(told).collect();
    server.stop();
    spares
}
