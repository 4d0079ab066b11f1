//! `fermata sim` as users run it: good runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::process::Output;

use common::Folder;
use serde_json::Value;

const SMALL: &str = r#"
gpus = 4
requests = 20000
[[model]]
name = "resnet50"
alpha_ms = 1.053
beta_ms = 5.072
slo_ms = 25
rate = 1000
copies = 2
[[model]]
name = "table"
latency_ms = [4.0, 5.0, 5.5, 6.5]
slo_ms = 20
rate = 100
arrivals = "gamma:0.5"
"#;

#[test]
fn json_has_the_promised_shape() {
    let report = json(&small().fermata(&["sim", "small.toml", "--json"]));
    assert_eq!(report["policy"], "fermata");
    assert_eq!(report["seed"], 1);
    assert_eq!(report["gpus"], 4);
    assert!(report.get("min_gpus").is_none());
    let models = report["models"].as_object().unwrap();
    let names: Vec<&String> = models.keys().collect();
    assert_eq!(names, ["resnet50-1", "resnet50-2", "table"]);
    for figures in models.values().chain([&report]) {
        assert!(figures["goodput_rps"].is_null());
        let number =
            |key: &str| figures[key].as_f64().unwrap_or_else(|| panic!("{key}: {figures}"));
        assert!(number("offered_rps") >= number("in_time_rps"));
        assert!((0.0..0.05).contains(&number("bad_rate")));
        assert!((0.0..1.0).contains(&number("busy_fraction")));
        assert!((1.0..=4.0).contains(&number("executors_used")));
        assert!(number("batch_p50") >= 1.0);
        let latency = &figures["latency_ms"];
        assert!(latency["p50"].as_f64() <= latency["p99"].as_f64());
        assert!(latency["p99"].as_f64() <= latency["p999"].as_f64());
    }
    let sum = |key: &str| models.values().map(|model| model[key].as_f64().unwrap()).sum::<f64>();
    for key in ["offered_rps", "in_time_rps", "busy_fraction"] {
        assert!((sum(key) / report[key].as_f64().unwrap() - 1.0).abs() < 1e-9, "{key}");
    }
    assert!((sum("offered_rps") - 2100.0).abs() < 60.0);
}

#[test]
fn executors_are_shares_of_gpus_if_the_file_says_so() {
    let folder = Folder::new();
    let measured = r#"{"format": 1, "model": "net", "device": "a GPU", "multiprocessors": 100,
        "precision": "fp16",
        "batches": [1, 2], "shares": [
        {"percent": 50, "multiprocessors": 50, "median_ms": [6, 10], "tail_ms": [6, 10]},
        {"percent": 100, "multiprocessors": 100, "median_ms": [4, 6], "tail_ms": [4, 6]}]}"#;
    folder.write("net.json", measured);
    let model = |rest: &str| format!("requests = 2000\n{rest}\nslo_ms = 20\nrate = 10\n");
    let p50 = |top: &str, keys: &str| {
        folder.write("s.toml", &model(&format!("{top}\n[[model]]\nname = \"net\"\n{keys}")));
        let report = json(&folder.fermata(&["sim", "s.toml", "--policy", "eager", "--json"]));
        report["latency_ms"]["p50"].as_f64().unwrap().round()
    };
    let profile = "profile = \"net.json\"";
    assert_eq!(p50("gpus = 1", profile), 4.0);
    assert_eq!(p50("gpus = 1\nshare = 50", profile), 6.0);
    // On a quarter, by the line over the inverse of the share.
    assert_eq!(p50("gpus = 1\nshare = 25", profile), 10.0);
    // A table of a whole GPU is reckoned with: a millisecond of 4 is work.
    assert_eq!(p50("gpus = 1\nshare = 25", "alpha_ms = 1\nbeta_ms = 3"), 7.0);
    folder.write(
        "s.toml",
        &model("gpus = 1\nshare = 50\n[[model]]\nname = \"u\"")
            .replace("slo_ms = 20", "slo_ms = 200\nalone = [{ mean_ms = 5, deviation_ms = 1 }]"),
    );
    let failed = folder.fermata(&["sim", "s.toml"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(String::from_utf8(failed.stderr).unwrap().contains("alone"));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_does_not() {
    let folder = small();
    let with_seed = |seed| folder.fermata(&["sim", "small.toml", "--json", "--seed", seed]).stdout;
    assert_eq!(with_seed("7"), with_seed("7"));
    assert_ne!(with_seed("7"), with_seed("8"));
}

#[test]
fn flags_are_read_from_the_environment_and_the_command_line_wins() {
    let folder = small();
    let environment = [("FERMATA_SEED", "9"), ("FERMATA_JSON", "1"), ("FERMATA_POLICY", "eager")];
    let report = json(&folder.fermata_with(&["sim", "small.toml"], &environment));
    assert_eq!((&report["seed"], &report["policy"]), (&9.into(), &"eager".into()));
    let args = ["sim", "small.toml", "--seed", "2", "--policy", "deferred"];
    let report = json(&folder.fermata_with(&args, &environment));
    assert_eq!((&report["seed"], &report["policy"]), (&2.into(), &"deferred".into()));
    let off = [("FERMATA_GOODPUT", "false")];
    let report = json(&folder.fermata_with(&["sim", "small.toml", "--min-gpus", "--json"], &off));
    assert!(report["min_gpus"].is_u64());
}

#[test]
fn goodput_is_searched_and_the_figures_are_of_a_run_at_that_rate() {
    let folder = small();
    let args = ["sim", "small.toml", "--goodput", "--json", "--policy", "deferred"];
    let report = json(&folder.fermata(&args));
    let goodput = report["goodput_rps"].as_f64().unwrap();
    assert!((1500.0..4000.0).contains(&goodput), "{goodput}");
    assert!((report["offered_rps"].as_f64().unwrap() / goodput - 1.0).abs() < 0.03);
    assert!(report["bad_rate"].as_f64().unwrap() <= 0.01);
    let share = report["models"]["table"]["goodput_rps"].as_f64().unwrap() / goodput;
    assert!((share - 100.0 / 2100.0).abs() < 1e-6);
}

#[test]
fn the_fewest_gpus_are_enough_and_one_less_is_not() {
    let folder = small();
    let args = ["sim", "small.toml", "--json", "--policy", "deferred"];
    let report = json(&folder.fermata(&[&args[..], &["--min-gpus"]].concat()));
    let fewest = report["min_gpus"].as_u64().unwrap();
    assert_eq!(report["gpus"], fewest);
    let worst = |gpus: u64| {
        let text = SMALL.replace("gpus = 4", &format!("gpus = {gpus}"));
        folder.write("small.toml", &text);
        let report = json(&folder.fermata(&args));
        let models = report["models"].as_object().unwrap().values();
        models.map(|model| model["bad_rate"].as_f64().unwrap()).fold(0.0, f64::max)
    };
    assert!(worst(fewest) <= 0.01);
    assert!(fewest == 1 || worst(fewest - 1) > 0.01);
}

#[test]
fn policies_are_compared_side_by_side() {
    let folder = small();
    let args = ["sim", "small.toml", "--policy", "deferred", "--policy", "timeout:5ms"];
    let text = text(&folder.fermata(&args));
    let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name));
    assert!(line("deferred").is_some() && line("timeout:5ms").is_some(), "{text}");
    let list = json(&folder.fermata(&["sim", "small.toml", "--policy", "all", "--json"]));
    let names: Vec<&Value> = list.as_array().unwrap().iter().map(|one| &one["policy"]).collect();
    assert!(names.len() >= 3 && names[0] == "fermata", "{names:?}");
}

#[test]
fn the_use_of_spare_executors_is_said_by_file_or_flag_and_told_by_the_policys_name() {
    let folder = small();
    folder.write("release.toml", &format!("spare = \"release\"{SMALL}"));
    let policy = |file: &str, args: &[&str], environment: &[(&str, &str)]| {
        let args = [&["sim", file, "--json"], args].concat();
        json(&folder.fermata_with(&args, environment))["policy"].as_str().unwrap().to_owned()
    };
    assert_eq!(policy("release.toml", &[], &[]), "fermata:release");
    assert_eq!(policy("release.toml", &["--spare", "latency"], &[]), "fermata");
    assert_eq!(policy("small.toml", &["--spare", "release"], &[]), "fermata:release");
    assert_eq!(policy("small.toml", &[], &[("FERMATA_SPARE", "release")]), "fermata:release");
    assert_eq!(policy("small.toml", &["--policy", "fermata:release"], &[]), "fermata:release");
    assert_eq!(policy("release.toml", &["--policy", "eager"], &[]), "eager");
    let text = text(&folder.fermata(&["sim", "release.toml"]));
    assert!(text.contains("fermata:release, seed 1"), "{text}");
}

#[test]
fn the_text_is_for_people() {
    let text = text(&small().fermata(&["sim", "small.toml"]));
    for word in
        ["small.toml: 3 models on 4 gpus", "offered", "in time", "busy", "p99.9", "resnet50-2"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn the_picture_is_whole_and_alone() {
    let folder = small();
    text(&folder.fermata(&["sim", "small.toml", "--plot", "out.svg"]));
    assert_eq!(folder.names(), ["out.svg", "small.toml"]);
    let svg = fs::read_to_string(folder.path("out.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for word in ["executor", "missed", "batch size (requests)", "resnet50-1"] {
        assert!(svg.contains(word), "{word}");
    }
}

/// Symphony's figure 4: three executors, each a third of a batch behind the other.
#[test]
fn deferred_batches_are_staggered_in_the_picture() {
    let folder = Folder::new();
    folder.write(
        "figure4.toml",
        "gpus = 3\nrequests = 400\n[[model]]\nname = \"one\"\nalpha_ms = 1\nbeta_ms = 5\n\
         slo_ms = 12\nrate = 1333.3333\narrivals = \"uniform\"\n",
    );
    let args = ["sim", "figure4.toml", "--policy", "deferred", "--plot", "out.svg"];
    text(&folder.fermata(&args));
    let svg = fs::read_to_string(folder.path("out.svg")).unwrap();
    let blocks = svg.lines().filter(|line| line.contains("stroke=\"#FFFFFF\""));
    let number = |line: &str, key: &str| -> f64 {
        let (_, rest) = line.split_once(&format!(" {key}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let mut starts: Vec<(f64, f64)> =
        blocks.map(|line| (number(line, "x"), number(line, "y"))).collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The first three are cut by the left edge; from then on the rows take turns at equal
    // distances.
    let steady = &starts[3..];
    assert!(steady.len() > 30);
    for four in steady.windows(4) {
        assert_eq!(four[0].1, four[3].1, "every third block is on the same executor");
        let (before, after) = (four[1].0 - four[0].0, four[2].0 - four[1].0);
        assert!((before - after).abs() < 0.1, "{before} {after}");
    }
}

#[test]
fn traces_are_replayed_as_recorded_or_at_a_rate() {
    let folder = Folder::new();
    folder.write("arrivals.csv", "seconds\n0.1\n0.2\n0.4\n0.5\n");
    let model = "gpus = 1\nrequests = 400\n[[model]]\nname = \"traced\"\nalpha_ms = 1\nbeta_ms = \
                 5\n\
                 slo_ms = 50\narrivals = \"trace:arrivals.csv\"\n";
    for (name, text, expected) in [
        ("recorded.toml", model.to_owned(), 8.0),
        ("faster.toml", format!("{model}rate = 80\n"), 80.0),
    ] {
        folder.write(name, &text);
        let report = json(&folder.fermata(&["sim", name, "--json"]));
        let offered = report["offered_rps"].as_f64().unwrap();
        assert!((offered / expected - 1.0).abs() < 1e-3, "{name}: {offered}");
    }
}

/// A batch that its executor's crash cut short is drawn hollow, up to the crash.
#[test]
fn a_crash_is_seen_in_the_picture() {
    let folder = Folder::new();
    let fault = "[[fault]]\nat_s = 0.95\nexecutor = 1\nkind = \"crash\"\n";
    let text_of = SMALL.replace("requests = 20000", "duration_s = 1");
    folder.write("crash.toml", &format!("{text_of}{fault}"));
    text(&folder.fermata(&["sim", "crash.toml", "--policy", "eager", "--plot", "out.svg"]));
    let svg = fs::read_to_string(folder.path("out.svg")).unwrap();
    let hollow = svg.lines().filter(|line| line.contains("fill=\"#FFFFFF\" stroke=\""));
    assert_eq!(hollow.count(), 1);
}

#[test]
fn every_example_runs() {
    let folder = Folder::new();
    let example = |name: &str| format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    for (name, least) in [
        ("resnet50.toml", 100.0),
        ("zoo_a100.toml", 100.0),
        ("bursty.toml", 100.0),
        ("faults.toml", 100.0),
        ("uneven.toml", 30.0),
        ("small.toml", 100.0),
    ] {
        let report =
            json(&folder.fermata(&["sim", &example(name), "--json", "--policy", "deferred"]));
        assert!(report["in_time_rps"].as_f64().unwrap() > least, "{name}");
    }
    let table = text(&folder.fermata(&["sim", &example("small.toml")]));
    assert!(table.lines().any(|line| line.contains("lenet") && line.contains(" 2.2 ")), "{table}");
}

#[test]
fn help_has_examples_for_every_command() {
    let folder = Folder::new();
    for args in [&["--help"][..], &["sim", "--help"]] {
        let text = text(&folder.fermata(args));
        assert!(text.contains("Examples:") && text.contains("fermata sim"), "{text}");
    }
}

fn small() -> Folder {
    let folder = Folder::new();
    folder.write("small.toml", SMALL);
    folder
}

/// What a run that must succeed printed. Nothing is said beside it: nobody watches a terminal.
fn text(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&text(output)).unwrap()
}
