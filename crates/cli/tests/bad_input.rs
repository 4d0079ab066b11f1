//! Bad input: one line that names file, key and reason, exit code 2, and nothing written.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;

use common::Folder;

const TOP: &str = "gpus = 2\nrequests = 1000\n";
const MODEL: &str =
    "[[model]]\nname = \"net\"\nalpha_ms = 1\nbeta_ms = 5\nslo_ms = 25\nrate = 100\n";

/// What is wrong with a file, by what is put in the place of what, and the words that must be said.
const BAD_VALUES: &[(&str, &str, &[&str])] = &[
    ("gpus = 2", "gpu = 2", &["gpu", "unknown field"]),
    ("gpus = 2\n", "", &["gpus", "missing"]),
    ("gpus = 2", "gpus = 2\nshare = 0", &["share", "0 is not a whole number from 1 to 100"]),
    ("gpus = 2", "gpus = 2\nshare = 101", &["share", "101 is not"]),
    ("gpus = 2", "gpus = 0", &["gpus", "0 is not a whole number from 1"]),
    ("gpus = 2", "gpus = -3", &["gpus", "-3 is not"]),
    ("gpus = 2", "gpus = 2.5", &["gpus", "expected a whole number"]),
    ("gpus = 2", "gpus = \"two\"", &["gpus", "expected a whole number"]),
    ("gpus = 2", "gpus = ", &["line 1", "'gpus ='"]),
    ("gpus = 2", "gpus = 2\ngpus = 3", &["line 2", "duplicate key", "'gpus = 3'"]),
    (
        "gpus = 2",
        "gpus = 2\nspare = \"none\"",
        &["spare", "'none' is not a use of spare executors: say latency or release"],
    ),
    ("gpus = 2", "gpus = 2\nspare = true", &["spare", "expected a string"]),
    ("requests = 1000\n", "", &["duration_s", "give duration_s or requests"]),
    (
        "requests = 1000",
        "requests = 1000\nduration_s = 1",
        &["duration_s", "together with requests"],
    ),
    ("requests = 1000", "requests = 0", &["requests", "0 is not above 0"]),
    ("requests = 1000", "duration_s = 0", &["duration_s", "0 is not a number above 0"]),
    ("requests = 1000", "duration_s = inf", &["duration_s", "inf is not a number"]),
    ("requests = 1000", "requests = 9\nnoise = -1", &["noise", "-1 is not"]),
    ("requests = 1000", "requests = 9\nnoise = nan", &["noise", "NaN is not"]),
    ("requests = 1000", "requests = 9\nseed = 3", &["seed", "unknown field"]),
    (
        "requests = 1000",
        "requests = 9\nnetwork = { ctrl_us = -1 }",
        &["network.ctrl_us", "-1 is not a number from 0"],
    ),
    (
        "requests = 1000",
        "requests = 9\nnetwork = { control_us = 1 }",
        &["network.control_us", "unknown field"],
    ),
    (
        "requests = 1000",
        "requests = 9\nnetwork = { resp_us = 20000 }",
        &["model 'net'", "slo_ms", "25 ms is below the 26 ms", "network"],
    ),
    (MODEL, "", &["model", "there is no [[model]]"]),
    ("name = \"net\"\n", "", &["model 1", "name", "missing"]),
    ("name = \"net\"", "name = \"\"", &["model 1", "name"]),
    ("name = \"net\"", "name = 3", &["model 1", "name", "expected a string"]),
    ("alpha_ms = 1\n", "", &["model 'net'", "alpha_ms", "missing"]),
    ("beta_ms = 5\n", "", &["model 'net'", "beta_ms", "missing"]),
    ("alpha_ms = 1\nbeta_ms = 5\n", "", &["model 'net'", "alpha_ms", "latency_ms"]),
    (
        "alpha_ms = 1\nbeta_ms = 5",
        "alpha_ms = 0\nbeta_ms = 0",
        &["model 'net'", "alpha_ms", "zero"],
    ),
    ("alpha_ms = 1", "alpha_ms = -1", &["model 'net'", "alpha_ms", "-1 is not"]),
    ("alpha_ms = 1", "alpha_ms = 1e300", &["model 'net'", "alpha_ms", "1e300 is not"]),
    ("alpha_ms = 1", "latency_ms = [1.0]", &["model 'net'", "latency_ms", "together with"]),
    (
        "alpha_ms = 1\nbeta_ms = 5",
        "latency_ms = []",
        &["model 'net'", "latency_ms", "at least one"],
    ),
    ("alpha_ms = 1\nbeta_ms = 5", "latency_ms = [2.0, nan]", &["model 'net'", "latency_ms", "NaN"]),
    ("alpha_ms = 1\nbeta_ms = 5", "latency_ms = [2.0, \"x\"]", &["model 'net'", "latency_ms"]),
    ("rate = 100", "rate = 9\ntags = false", &["model 'net'", "tags", "goes with [[model.alone]]"]),
    (
        "rate = 100",
        "rate = 9\n[[model.alone]]\nmean_ms = 5",
        &["model 'net'", "alone", "together with alpha_ms"],
    ),
    (
        "alpha_ms = 1\nbeta_ms = 5",
        "alone = [{ mean_ms = 5, deviation_ms = -1 }]",
        &["model 'net', alone 1", "deviation_ms", "-1 is not"],
    ),
    (
        "alpha_ms = 1\nbeta_ms = 5",
        "alone = [{ mean_ms = 5 }, { share = 2 }]",
        &["model 'net', alone 2", "mean_ms", "missing"],
    ),
    (
        "alpha_ms = 1\nbeta_ms = 5",
        "alone = [{ mean_ms = 50 }]",
        &["model 'net'", "slo_ms", "25 ms is below the 50 ms"],
    ),
    (
        "alpha_ms = 1\nbeta_ms = 5",
        "alone = [{ mean_ms = 5 }]\ngrowth = { fixed_ms = 1 }",
        &["model 'net'", "growth", "base and each are both 0"],
    ),
    ("slo_ms = 25\n", "", &["model 'net'", "slo_ms", "missing"]),
    ("slo_ms = 25", "slo_ms = 5.5", &["model 'net'", "slo_ms", "5.5 ms is below the 6 ms", "l(1)"]),
    ("slo_ms = 25", "slo_ms = -25", &["model 'net'", "slo_ms", "-25 is not"]),
    ("slo_ms = 25", "slo = 25", &["model 'net'", "slo", "unknown field"]),
    ("rate = 100\n", "", &["model 'net'", "rate", "missing"]),
    ("rate = 100", "rate = 0", &["model 'net'", "rate", "0 is not a number of requests"]),
    ("rate = 100", "rate = -5.5", &["model 'net'", "rate", "-5.5 is not"]),
    ("rate = 100", "rate = nan", &["model 'net'", "rate", "NaN is not"]),
    ("rate = 100", "rate = \"many\"", &["model 'net'", "rate", "expected a number"]),
    ("rate = 100", "rate = 1\ncopies = 0", &["model 'net'", "copies", "0 is not a whole number"]),
    ("rate = 100", "rate = 1\narrivals = \"often\"", &["model 'net'", "arrivals", "'often'"]),
    ("rate = 100", "rate = 1\narrivals = \"gamma:-1\"", &["model 'net'", "arrivals", "gamma:-1"]),
    (
        "rate = 100",
        "rate = 1\narrivals = \"trace:none.csv\"",
        &["model 'net'", "arrivals", "none.csv", "cannot be read"],
    ),
    (
        "rate = 100",
        "rate = 1\narrivals = \"trace:broken.csv\"",
        &["model 'net'", "arrivals", "broken.csv: line 3", "'soon'"],
    ),
    (
        "rate = 100",
        "rate = 1\n[[model]]\nname = \"net\"\nalpha_ms = 1\nbeta_ms = 1\nslo_ms = 9\nrate = 1",
        &["model 'net'", "name", "two models"],
    ),
    ("rate = 100", "rate = 1\n[[fault]]\nexecutor = 0\nkind = \"crash\"", &["fault 1", "at_s"]),
    ("rate = 100", "rate = 1\n[[fault]]\nat_s = 1\nkind = \"crash\"", &["fault 1", "executor"]),
    ("rate = 100", "rate = 1\n[[fault]]\nat_s = 1\nexecutor = 0", &["fault 1", "kind", "missing"]),
    (
        "rate = 100",
        "rate = 1\n[[fault]]\nat_s = 1\nexecutor = 0\nkind = \"fire\"",
        &["fault 1", "kind", "fire"],
    ),
    (
        "rate = 100",
        "rate = 1\n[[fault]]\nat_s = 1\nexecutor = 0\nkind = \"slow\"",
        &["fault 1", "factor", "missing"],
    ),
    (
        "rate = 100",
        "rate = 1\n[[fault]]\nat_s = 1\nexecutor = 0\nkind = \"slow\"\nfactor = 0",
        &["fault 1", "factor", "0 is not"],
    ),
    (
        "rate = 100",
        "rate = 1\n[[fault]]\nat_s = 1\nexecutor = 0\nkind = \"crash\"\nfactor = 2",
        &["fault 1", "factor", "only for"],
    ),
    (
        "rate = 100",
        "rate = 1\n[[fault]]\nat_s = 1\nexecutor = 2\nkind = \"crash\"",
        &["fault 1", "executor", "2 is not there"],
    ),
    (
        "rate = 100",
        "rate = 1\n[[fault]]\nat_s = 1\nexecutor = 1\nkind = \"join\"",
        &["fault 1", "executor", "1 is there already"],
    ),
    (
        "rate = 100",
        "rate = 1\n[[fault]]\nat_s = 2\nexecutor = 1\nkind = \"crash\"\n\
         [[fault]]\nat_s = 1\nexecutor = 1\nkind = \"leave\"",
        &["fault 1", "executor", "1 is not there at that time"],
    ),
];

#[test]
fn bad_values_are_refused_in_one_line() {
    for &(good, bad, words) in BAD_VALUES {
        let text = format!("{TOP}{MODEL}");
        assert!(text.contains(good), "{good:?} is in the good file");
        let folder = Folder::new();
        folder.write("load.toml", &text.replacen(good, bad, 1));
        folder.write("broken.csv", "# arrivals\n0.1\nsoon\n0.3\n");
        refused(&folder, &["sim", "load.toml"], &[&["load.toml"], words].concat());
    }
}

#[test]
fn bad_arguments_are_refused_in_one_line() {
    let bad: &[(&[&str], &[&str])] = &[
        (&["sim", "none.toml"], &["none.toml", "cannot be read"]),
        (&["sim", "."], &["cannot be read"]),
        (&["sim", "load.toml", "--policy", "best"], &["--policy", "'best'", "fermata, deferred"]),
        (&["sim", "load.toml", "--policy", "timeout:x"], &["--policy", "'timeout:x'"]),
        (
            &["sim", "load.toml", "--spare", "none"],
            &["--spare", "'none'", "say latency or release"],
        ),
        (&["sim", "load.toml", "--seed", "-1"], &["--seed", "-1"]),
        (&["sim", "load.toml", "--seed", "one"], &["--seed", "one"]),
        (&["sim", "load.toml", "--goodput", "--min-gpus"], &["--goodput", "--min-gpus"]),
        (
            &["sim", "load.toml", "--plot", "no/where.svg"],
            &["--plot", "no/where.svg", "cannot be written"],
        ),
        (&["sim", "load.toml", "--fast"], &["--fast"]),
        (&["sim"], &["FILE"]),
        (&["sim", "load.toml", "--plot", "load.toml"], &["--plot", "overwrite"]),
        (&["sim", "one.toml", "--goodput"], &["one.toml", "requests", "too short"]),
        (&["sim", "fault.toml", "--min-gpus"], &["--min-gpus", "[[fault]]"]),
    ];
    for (args, words) in bad {
        refused(&good_folder(), args, words);
    }
    let several = ["sim", "load.toml", "--policy", "all"];
    refused(&good_folder(), &several, &["--plot", "one policy"]);
}

#[test]
fn nonsense_in_a_recording_is_refused_in_one_line() {
    let good = "fermata recording 1\npool 0 cpu eager\n0 10 join x0 c0\n\
                0 20 add m0 25000000 6000000 net\n0 30 arrive m0 r0 25000030\n\
                > run x0 m0 30 6000000 r0\n";
    for (nonsense, words) in [
        ("0 40 done x1", "there is no executor x1"),
        ("0 40 arrive m1 r1 25000040", "there is no model m1"),
        ("0 40 join x4000000000 c0", "executor x4000000000 joins out of order"),
    ] {
        let folder = Folder::new();
        folder.write("run.txt", &format!("{good}{nonsense}\n"));
        let words = [&format!("run.txt: line 7: {words}")[..]];
        refused(&folder, &["sim", "--recording", "run.txt"], &words);
        let output = folder.fermata(&["replay", "run.txt"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.lines().count() == 1 && said.contains(words[0]), "{said}");
    }
    let folder = Folder::new();
    folder.write("run.txt", good);
    let one = ["sim", "--recording", "run.txt", "--goodput"];
    refused(&folder, &one, &["run.txt", "too short"]);
    let many = ["sim", "--recording", "run.txt", "--gpus", "4000000000"];
    refused(&folder, &many, &["--gpus", "4000000000"]);
}

#[test]
fn a_bad_environment_is_refused_as_a_bad_argument() {
    let output = good_folder().fermata_with(&["sim", "load.toml"], &[("FERMATA_SEED", "x")]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().count() == 1 && said.contains("--seed"), "{said}");
}

#[test]
fn an_old_picture_survives_a_refused_run() {
    let folder = Folder::new();
    folder.write("load.toml", &format!("{TOP}{MODEL}").replace("rate = 100", "rate = 0"));
    folder.write("old.svg", "old");
    let output = folder.fermata(&["sim", "load.toml", "--plot", "old.svg"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(folder.path("old.svg")).unwrap(), "old");
}

#[test]
fn a_negative_number_is_refused_by_the_name_of_its_option() {
    let bad: &[&[&str]] = &[
        &["serve", ".", "--slo-ms", "-3"],
        &["serve", ".", "--cpu-executors", "-3"],
        &["serve", ".", "--http-port", "-3"],
        &["serve", ".", "--margin-us", "-3"],
        &["serve", ".", "--scheduler-threads", "-3"],
        &["load", "http://localhost:1", "net", "--slo-ms", "-3"],
        &["load", "http://localhost:1", "net", "--rate", "-3"],
        &["load", "http://localhost:1", "net", "--concurrency", "-3"],
        &["profile", "net.onnx", "--slo-ms", "-3"],
        &["sim", "--recording", "run.txt", "--slo-ms", "-3"],
        &["sim", "--recording", "run.txt", "--gpus", "-3"],
        &["top", "http://localhost:1", "--models", "-3"],
        &["models", "http://localhost:1", "--patience-s", "-3"],
        &["bench", "symphony", "--threads", "-3"],
    ];
    for args in bad {
        let output = Folder::new().fermata(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        let option = args[args.len() - 2];
        assert!(said.contains(option) && said.contains("-3"), "{args:?}: {said}");
        assert!(!said.contains("unexpected"), "{args:?}: {said}");
    }
}

#[test]
fn a_recording_with_scheduler_threads_is_refused_before_it_is_begun() {
    let folder = Folder::new();
    folder.write("run.txt", "old");
    let output = folder.fermata(&["serve", ".", "--record", "run.txt", "--scheduler-threads", "2"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("--scheduler-threads") && said.contains("--record"), "{said}");
    assert_eq!(fs::read_to_string(folder.path("run.txt")).unwrap(), "old");
}

fn good_folder() -> Folder {
    let folder = Folder::new();
    folder.write("load.toml", &format!("{TOP}{MODEL}"));
    folder.write("one.toml", &format!("{TOP}{MODEL}").replace("1000", "1"));
    let fault = "[[fault]]\nat_s = 0.1\nexecutor = 0\nkind = \"crash\"\n";
    folder.write("fault.toml", &format!("{TOP}{MODEL}{fault}"));
    folder
}

/// Runs it with everything that could be written asked for.
fn refused(folder: &Folder, args: &[&str], words: &[&str]) {
    let before = folder.names();
    let plot: &[&str] = if args.contains(&"--plot") { &[] } else { &["--plot", "out.svg"] };
    let output = folder.fermata(&[args, &["--json"], plot].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    assert!(output.stdout.is_empty(), "{args:?}: {:?}", output.stdout);
    assert_eq!(folder.names(), before, "{args:?}");
}
