//! Bad input to `fermata plan`: one line that names file, key and reason, exit code 2, and nothing
//! written.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::Folder;

const FILE: &str = r#"gpus = 9
[[gpu]]
name = "a"
memory_gb = 40
price = 2
[[demand]]
model = "net"
alpha_ms = 1
beta_ms = 5
slo_ms = 25
rate = 100
[[query]]
name = "q"
slo_ms = 200
rate = 10
[[query.node]]
model = "first"
alpha_ms = 2
beta_ms = 6
[[query.node]]
model = "then"
after = ["first"]
gamma = 3
alpha_ms = 4
beta_ms = 7
"#;

/// What is wrong with a file, by what is put in the place of what, and the words that must be said.
const BAD_VALUES: &[(&str, &str, &[&str])] = &[
    ("gpus = 9", "gpus = 0", &["gpus", "0 is not a whole number from 1"]),
    ("gpus = 9", "limit = 9", &["limit", "unknown field"]),
    (
        "gpus = 9",
        "spare = \"none\"",
        &["spare", "'none' is not a use of spare executors: say latency or release"],
    ),
    ("gpus = 9", "interference = \"none.json\"", &["interference", "none.json"]),
    ("gpus = 9", "gpus = ", &["line 1", "'gpus ='"]),
    ("name = \"a\"\n", "", &["gpu 1", "name", "missing"]),
    ("memory_gb = 40", "memory_gb = 0", &["gpu 'a'", "memory_gb", "0 is not"]),
    ("memory_gb = 40", "memory_gb = 4\nmemory_mb = 4", &["gpu 'a'", "memory_mb", "together with"]),
    ("price = 2", "price = -2", &["gpu 'a'", "price", "-2 is not"]),
    ("price = 2", "price = 2\nlimit = 0", &["gpu 'a'", "limit", "0 is not"]),
    ("price = 2", "price = 2\n[[gpu]]\nname = \"a\"\nprice = 1", &["gpu 'a'", "name", "two kinds"]),
    ("price = 2", "price = 2\n[[gpu]]\nname = \"b\"", &["gpu 'b'", "price", "missing"]),
    ("model = \"net\"\n", "", &["demand 1", "model", "missing"]),
    ("model = \"net\"", "model = \"\"", &["demand 1", "model", "a word"]),
    ("alpha_ms = 1\n", "", &["demand 'net'", "alpha_ms", "missing"]),
    ("alpha_ms = 1\nbeta_ms = 5\n", "", &["demand 'net'", "alpha_ms", "or profile"]),
    ("alpha_ms = 1", "alpha_ms = \"x\"", &["demand 'net'", "alpha_ms", "expected a number"]),
    ("alpha_ms = 1\n", "alpha_ms = 1\nprofile = \"p\"\n", &["demand 'net'", "profile", "together"]),
    (
        "alpha_ms = 1\nbeta_ms = 5",
        "profile = \"none.json\"",
        &["demand 'net'", "profile", "none.json"],
    ),
    ("slo_ms = 25\n", "", &["demand 'net'", "slo_ms", "missing"]),
    ("slo_ms = 25", "slo_ms = nan", &["demand 'net'", "slo_ms", "NaN is not"]),
    ("rate = 100\n", "", &["demand 'net'", "rate", "missing"]),
    ("rate = 100", "rate = 0", &["demand 'net'", "rate", "0 is not"]),
    ("rate = 100", "rate = 1\nmemory_mb = -1", &["demand 'net'", "memory_mb", "-1 is not"]),
    ("rate = 100", "rate = 1\nworkspace_mb = inf", &["demand 'net'", "workspace_mb", "inf is not"]),
    ("rate = 100", "rate = 1\ncopies = 0", &["demand 'net'", "copies", "0 is not"]),
    ("rate = 100", "rate = 1\narrivals = \"often\"", &["demand 'net'", "arrivals", "'often'"]),
    (
        "rate = 100",
        "rate = 1\n[demand.on.b]\nalpha_ms = 1\nbeta_ms = 1",
        &["demand 'net'", "on.b", "no [[gpu]] 'b'"],
    ),
    (
        "rate = 100",
        "rate = 1\n[demand.on.a]\nalpha_ms = 1",
        &["demand 'net'", "on.a", "beta_ms", "missing"],
    ),
    (
        "rate = 100",
        "rate = 1\n[demand.on.a]\nspeed = 1",
        &["demand 'net'", "on.a.speed", "unknown field"],
    ),
    (
        "rate = 100",
        "rate = 1\n[[demand]]\nmodel = \"net\"\nalpha_ms = 1\nbeta_ms = 1\nslo_ms = 9\nrate = 1",
        &["demand 'net'", "model", "two demands"],
    ),
    ("name = \"q\"\n", "", &["query 1", "name", "missing"]),
    ("slo_ms = 200\n", "", &["query 'q'", "slo_ms", "missing"]),
    ("rate = 10\n", "", &["query 'q'", "rate", "missing"]),
    ("model = \"then\"\n", "", &["query 'q'", "node 2", "model", "missing"]),
    ("model = \"then\"", "model = \"first\"", &["query 'q'", "node 'first'", "model", "two nodes"]),
    ("[\"first\"]", "[\"last\"]", &["query 'q'", "node 'then'", "after", "no node 'last'"]),
    ("[\"first\"]", "\"first\"", &["query 'q'", "node 'then'", "after"]),
    ("gamma = 3", "gamma = 0", &["query 'q'", "node 'then'", "gamma", "0 is not"]),
    ("alpha_ms = 4\n", "", &["query 'q'", "node 'then'", "alpha_ms", "missing"]),
];

/// What is wrong with the arguments, and the words that must be said.
const BAD_ARGUMENTS: &[(&[&str], &[&str])] = &[
    (&["--method", "guess"], &["--method", "guess", "pools"]),
    (&["--what-if", "slo"], &["--what-if", "no '='"]),
    (&["--what-if", "rate=1..2:0"], &["--what-if", "'0' is not a number of steps"]),
    (&["--what-if", "rate=2", "--previous", "p.json"], &["--what-if", "--previous"]),
    (&["--seconds", "soon"], &["--seconds", "soon"]),
    (&["--requests", "0"], &["--requests", "0"]),
    (&["--plot", "plan.toml"], &["--plot", "overwrite"]),
    (&["--plot", "none/out.svg"], &["--plot", "cannot be written"]),
    (&["--previous", "none.json"], &["none.json", "cannot be read"]),
    (&["--previous", "broken.json"], &["broken.json", "line 1"]),
    (&["--previous", "other.json"], &["other.json", "pools"]),
    (&["--previous", "share.json"], &["share.json", "pool 1", "share", "300"]),
];

fn refused(folder: &Folder, args: &[&str], words: &[&str]) {
    let before = folder.names();
    let output = folder.fermata(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(output.stdout.is_empty());
    assert_eq!(error.lines().count(), 1, "{error}");
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert_eq!(folder.names(), before);
}

#[test]
fn bad_values_are_refused_in_one_line_that_names_file_place_and_key() {
    let folder = Folder::new();
    folder.write("plan.toml", FILE);
    assert!(folder.fermata(&["plan", "plan.toml"]).status.success());
    for (from, to, words) in BAD_VALUES {
        assert!(FILE.contains(from), "{from}");
        folder.write("plan.toml", &FILE.replacen(from, to, 1));
        let words = [&["plan.toml"], *words].concat();
        refused(&folder, &["plan", "plan.toml", "--plot", "out.svg"], &words);
    }
}

#[test]
fn a_file_without_demands_is_refused() {
    let folder = Folder::new();
    folder.write("plan.toml", "gpus = 3\n");
    refused(&folder, &["plan", "plan.toml"], &["plan.toml", "there is no [[demand]]"]);
    refused(&folder, &["plan", "none.toml"], &["none.toml", "cannot be read"]);
}

#[test]
fn tangled_queries_are_refused() {
    let node = |model: &str, after: &str| {
        format!(
            "[[query.node]]\nmodel = \"{model}\"\nafter = [{after}]\nalpha_ms = 1\nbeta_ms = 2\n"
        )
    };
    let nodes = [node("a", ""), node("b", ""), node("c", "\"a\""), node("d", "\"a\", \"b\"")];
    let folder = Folder::new();
    let text = format!("[[query]]\nname = \"q\"\nslo_ms = 90\nrate = 1\n{}", nodes.concat());
    folder.write("plan.toml", &text);
    refused(&folder, &["plan", "plan.toml"], &["query 'q'", "node", "series and parallel"]);
}

#[test]
fn bad_arguments_are_refused_in_one_line() {
    let folder = Folder::new();
    folder.write("plan.toml", FILE);
    folder.write("broken.json", "{");
    folder.write("other.json", "{\"gpus\": 3}");
    let pool =
        "{\"kind\": \"a\", \"gpus\": [0], \"share\": 300, \"round_ms\": null, \"members\": []}";
    folder.write("share.json", &format!("{{\"pools\": [{pool}]}}"));
    for (args, words) in BAD_ARGUMENTS {
        refused(&folder, &[&["plan", "plan.toml"], *args].concat(), words);
    }
}
