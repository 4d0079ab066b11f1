//! The borders that ARCHITECTURE.md promises and Cargo cannot see.

use std::fs;
use std::path::{Path, PathBuf};

use fermata_borders::{CrateRules, cycles, read_crate};

const NAMES: &str = "fermata_";

/// A crate that decides, and has no clock, thread, lock or socket.
const DECIDES: &[&str] = &["Instant", "Instant::now", "SystemTime", "thread::spawn", "HashMap"];

/// A crate that has its clock, its threads and its wake-ups from `scheduler::Runtime`.
const RUNS: &[&str] = &[
    "Instant",
    "SystemTime",
    "thread::spawn",
    "thread::Builder::new",
    "thread::park",
    "thread::sleep",
];

/// What each crate may use of the others.
const RULES: [CrateRules; 18] = [
    CrateRules { name: "core", may_use: &[], forbidden: DECIDES },
    CrateRules { name: "dispatch", may_use: &["core"], forbidden: DECIDES },
    CrateRules { name: "plan", may_use: &["core"], forbidden: DECIDES },
    CrateRules { name: "workload", may_use: &["core"], forbidden: &[] },
    CrateRules { name: "onnx", may_use: &[], forbidden: &[] },
    CrateRules { name: "chart", may_use: &[], forbidden: &[] },
    CrateRules { name: "protocol", may_use: &[], forbidden: &[] },
    CrateRules { name: "files", may_use: &["core", "plan"], forbidden: &[] },
    CrateRules { name: "recording", may_use: &["core", "dispatch"], forbidden: &[] },
    CrateRules { name: "scheduler", may_use: &["core", "dispatch"], forbidden: &[] },
    CrateRules { name: "engine", may_use: &["core"], forbidden: &[] },
    CrateRules { name: "sim", may_use: &["core", "dispatch", "plan", "workload"], forbidden: &[] },
    CrateRules {
        name: "repository",
        may_use: &["core", "dispatch", "engine", "protocol"],
        forbidden: &["thread::spawn", "thread::Builder::new"],
    },
    CrateRules {
        name: "pool",
        may_use: &["core", "dispatch", "engine", "recording", "scheduler"],
        forbidden: RUNS,
    },
    CrateRules {
        name: "server",
        may_use: &[
            "core",
            "dispatch",
            "engine",
            "plan",
            "pool",
            "protocol",
            "recording",
            "repository",
            "scheduler",
        ],
        forbidden: &[],
    },
    CrateRules {
        name: "load",
        may_use: &["chart", "core", "engine", "files", "protocol", "workload"],
        forbidden: &[],
    },
    CrateRules {
        name: "experiments",
        may_use: &[
            "chart",
            "core",
            "dispatch",
            "engine",
            "files",
            "load",
            "onnx",
            "plan",
            "scheduler",
            "sim",
            "workload",
        ],
        forbidden: &[],
    },
    CrateRules {
        name: "cli",
        may_use: &[
            "chart",
            "core",
            "dispatch",
            "engine",
            "experiments",
            "files",
            "load",
            "onnx",
            "plan",
            "recording",
            "repository",
            "server",
            "sim",
            "workload",
        ],
        forbidden: &[],
    },
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates").canonicalize().expect("is there")
}

#[test]
fn every_crate_has_rules() {
    let mut folders: Vec<String> = fs::read_dir(crates())
        .expect("is there")
        .map(|entry| entry.expect("can be read").file_name().to_string_lossy().into_owned())
        .collect();
    folders.sort();
    let mut named: Vec<&str> = RULES.iter().map(|rules| rules.name).collect();
    named.sort_unstable();
    assert_eq!(folders, named, "a crate without rules, or rules without a crate");
}

#[test]
fn modules_of_a_crate_do_not_use_each_other_in_a_circle() {
    let mut found = String::new();
    for rules in RULES {
        let modules = read_crate(&crates().join(rules.name)).expect("is Rust");
        for cycle in cycles(&modules) {
            found += &format!("{}:\n{cycle}", rules.name);
        }
    }
    assert!(found.is_empty(), "modules in a circle:\n{found}");
}

#[test]
fn crates_use_only_what_they_may() {
    let mut found = String::new();
    for rules in RULES {
        let modules = read_crate(&crates().join(rules.name)).expect("is Rust");
        for mention in rules.broken(&modules, NAMES) {
            found += &format!("{}: {} must not use {}\n", mention.place, rules.name, mention.path);
        }
    }
    assert!(found.is_empty(), "{found}");
}

#[test]
fn a_circle_and_forbidden_names_are_found_with_file_and_line() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/circle");
    let modules = read_crate(&folder).expect("is Rust");
    let found = cycles(&modules);
    assert_eq!(found.len(), 1, "{found:?}");
    let text = found[0].to_string();
    assert!(text.contains("inner.rs:4: b uses c") && text.contains("c.rs:1: c uses b"), "{text}");
    let rules = CrateRules { name: "circle", may_use: &["core"], forbidden: &["Instant::now"] };
    let found = rules.broken(&modules, NAMES);
    let found: Vec<(bool, &str)> = found
        .iter()
        .map(|mention| {
            let place = mention.place.ends_with("c.rs:6") || mention.place.ends_with("d.rs:1");
            (place, mention.path.as_str())
        })
        .collect();
    assert_eq!(found, [(true, "std::time::Instant::now"), (true, "fermata_server::Server")]);
}
