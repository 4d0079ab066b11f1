//! `fermata bench symphony` and `fermata bench nexus` at sizes that say nothing about policies:
//! sections, pictures, resuming, bad input; a few runs of `fermata bench mixes` and `fermata bench
//! latency`; `fermata bench gpu` where there is no such GPU.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::process::Output;

use common::Folder;

/// Runs an experiment with few requests; the results go to the folder `out`.
fn bench(folder: &Folder, args: &[&str]) -> Output {
    let small = ["bench", "symphony", "--out", "out", "--requests", "500", "--threads", "2"];
    folder.fermata(&[&small[..], args].concat())
}

fn read(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.path(name)).unwrap()
}

#[test]
fn one_experiment_writes_its_section_and_leaves_the_others() {
    let folder = Folder::new();
    let output = bench(&folder, &["--only", "table2"]);
    assert!(output.status.success(), "{output:?}");
    let section = read(&folder, "out/symphony/table2.md");
    for expected in
        ["| paper |", "| bound |", "5,839", "symphony 5,264", "](./table2.svg)", "seed 1", "commit"]
    {
        assert!(section.contains(expected), "{expected}: {section}");
    }
    let svg = read(&folder, "out/symphony/table2.svg");
    assert!(svg.starts_with("<svg") && svg.contains("fermata"));

    // A section by another hand shows that it is kept word for word.
    folder.write("out/symphony/figure9.md", "## figure9: by hand\n");
    assert!(bench(&folder, &["--only", "figure12"]).status.success());
    let whole = read(&folder, "out/symphony.md");
    let place = |text: &str| whole.find(text).unwrap_or_else(|| panic!("{text}: {whole}"));
    assert!(place("## table2") < place("## figure9: by hand"));
    assert!(place("## figure9: by hand") < place("## figure12"));
    assert!(whole.contains("](symphony/table2.svg)") && !whole.contains("](./"));
}

#[test]
fn the_planner_has_a_document_of_its_own() {
    let folder = Folder::new();
    let nexus =
        |args: &[&str]| folder.fermata(&[&["bench", "nexus", "--out", "out"], args].concat());
    let output = nexus(&["--only", "examples"]);
    assert!(output.status.success(), "{output:?}");
    let whole = read(&folder, "out/planner.md");
    for expected in [
        "- [examples](#examples-",
        "| A and B | 125 | 8 and 4 | 125 ms |",
        "| 60 and 40 | **272.7** | 272.7 |",
    ] {
        assert!(whole.contains(expected), "{expected}: {whole}");
    }
    for name in ["queries", "subclusters"] {
        let output = nexus(&["--only", name, "--quick"]);
        assert!(output.status.success(), "{output:?}");
    }
    let queries = read(&folder, "out/planner/queries.md");
    for expected in ["| 100 of 100 |", "| 25 of 25 |"] {
        assert!(queries.contains(expected), "{expected}: {queries}");
    }
    let output = nexus(&["--only", "table2"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("--only: no experiment 'table2': use examples"), "{text}");
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let table = |seed: &str| {
        let folder = Folder::new();
        assert!(bench(&folder, &["--only", "figure10", "--seed", seed]).status.success());
        let section = read(&folder, "out/symphony/figure10.md");
        section.lines().filter(|line| line.starts_with('|')).collect::<String>()
    };
    assert_eq!(table("3"), table("3"));
}

#[test]
fn figure7_is_resumed_reported_and_refreshed() {
    let folder = Folder::new();
    let csv = "out/symphony/figure7.csv";
    assert!(bench(&folder, &["--only", "figure7", "--workloads", "2"]).status.success());
    let first = read(&folder, csv);
    assert_eq!(first.lines().count(), 4, "{first}");

    // What is stored is believed: a made-up goodput of the default policy shows in the report.
    let rows: Vec<&str> = first.lines().skip(2).collect();
    let (others, _) = rows[0].rsplit_once(',').unwrap();
    let made_up = first.replace(rows[0], &format!("{others},1.00"));
    let half = &rows[1][..rows[1].len() / 2];
    folder.write(csv, made_up.replace(rows[1], half).trim_end());
    assert!(bench(&folder, &["--only", "figure7", "--workloads", "2"]).status.success());
    let resumed = read(&folder, csv);
    assert!(resumed.contains(&format!("{others},1.00\n")), "{resumed}");
    assert!(resumed.contains(rows[1]), "{resumed}");
    assert_eq!(resumed.lines().count(), 4, "{resumed}");
    let report = bench(&folder, &["--only", "figure7", "--report"]);
    assert!(report.status.success(), "{report:?}");
    let section = read(&folder, "out/symphony/figure7.md");
    assert!(section.contains("These are 2 of them") && section.contains("below 0.98"), "{section}");

    let again = ["--only", "figure7", "--refresh", "fermata"];
    assert!(bench(&folder, &again).status.success());
    let refreshed = read(&folder, csv);
    assert!(!refreshed.contains(&format!("{others},1.00\n")), "{refreshed}");
    // Appended: the last line of a workload counts.
    assert!(refreshed.lines().rfind(|line| line.starts_with(others)).is_some(), "{refreshed}");
}

#[test]
fn a_changing_load_is_read_from_a_trace() {
    let folder = Folder::new();
    let minutes: Vec<String> = (1..=60).map(|minute| format!("minute_{minute}")).collect();
    let mut trace = format!("HashFunction,HashApp,HashOwner,{}\n", minutes.join(","));
    for function in 0..5 {
        let counts: Vec<String> =
            (0..60).map(|minute| (100 + (minute * (function + 3)) % 80).to_string()).collect();
        trace.push_str(&format!("f{function},a,o,{}\n", counts.join(",")));
    }
    folder.write("trace.csv", &trace);
    let output =
        bench(&folder, &["--only", "figure15", "--trace", "trace.csv", "--requests", "20000"]);
    // Said twice, the number of requests is refused; said once, it is taken.
    assert_eq!(output.status.code(), Some(2));
    let output = bench(&folder, &["--only", "figure15", "--trace", "trace.csv"]);
    assert!(output.status.success(), "{output:?}");
    assert!(read(&folder, "out/symphony/figure15.md").contains("| fermata |"));
    assert!(read(&folder, "out/symphony/figure15.svg").contains("<polygon"));
}

#[test]
fn bad_input_is_one_line_and_writes_nothing() {
    for (args, expected) in [
        (&["--only", "figure3"][..], "no experiment 'figure3': use targets, table2, figure1,"),
        (&["--only", "table2", "--report"], "--report: goes with --only figure7"),
        (&["--refresh", "fermata"], "--refresh: goes with --only figure7"),
        (&["--threads", "0"], "--threads"),
    ] {
        let folder = Folder::new();
        let output = folder.fermata(&[&["bench", "symphony", "--out", "out"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains(expected) && text.trim_end().lines().count() == 1,
            "{args:?}: {text}"
        );
        assert!(folder.names().is_empty(), "{args:?}");
    }
}

#[test]
fn bad_files_are_named() {
    let folder = Folder::new();
    let refused = |args: &[&str], expected: &str| {
        let output = bench(&folder, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains(expected) && text.trim_end().lines().count() == 1,
            "{args:?}: {text}"
        );
    };
    refused(&["--only", "figure7", "--report"], "nothing is stored yet");
    refused(&["--only", "figure15", "--trace", "none.csv"], "none.csv: cannot be read");
    refused(&["--only", "figure7", "--refresh", "best"], "no policy 'best' here: use deferred,");
    folder.write("out/symphony/figure7.csv", "# 7 requests a run, seed 1\n");
    refused(&["--only", "figure7"], "figure7.csv: line 1: is '# 7 requests a run, seed 1', not");
    folder.write("file", "");
    let output = folder.fermata(&["bench", "symphony", "--only", "table2", "--out", "file"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn loads_of_gpulet_are_scheduled_at_least_as_well_as_by_ideal() {
    let folder = Folder::new();
    let output = folder.fermata(&["bench", "gpulet", "--quick", "--only", "rates", "--out", "out"]);
    assert!(output.status.success(), "{output:?}");
    let whole = read(&folder, "out/planner.md");
    for expected in
        ["- [rates](#rates-", "](planner/rates.svg)", "| game |", "| scen5 |", "| mean |"]
    {
        assert!(whole.contains(expected), "{expected}: {whole}");
    }
    let least = whole.split("Shares against ideal: at least ").nth(1).unwrap();
    let least: f64 = least.split(' ').next().unwrap().parse().unwrap();
    assert!(least >= 1.0, "{whole}");
}

/// Where the measured profiles are, for a process that runs in a folder of its own.
fn profiles() -> String {
    format!("{}/../../profiles/h200", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn random_mixes_are_reported_and_listed_with_their_seeds() {
    let folder = Folder::new();
    let mixes = |args: &[&str]| {
        let profiles = profiles();
        let common = ["bench", "mixes", "--out", "out", "--quick", "--profiles", &profiles];
        folder.fermata(&[&common[..], args].concat())
    };
    let output = mixes(&["--only", "random", "--mixes", "2", "--first-seed", "30"]);
    assert!(output.status.success(), "{output:?}");
    let csv = read(&folder, "out/mixes/random.csv");
    let seeds: Vec<&str> = csv.lines().skip(2).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(seeds, ["30", "31"], "{csv}");
    let whole = read(&folder, "out/mixes.md");
    for expected in ["- [random](#random-", "the seeds 30 to 31", "](mixes/random.csv)", "| all |"]
    {
        assert!(whole.contains(expected), "{expected}: {whole}");
    }
    assert!(read(&folder, "out/mixes/random.svg").starts_with("<svg"));

    let output = mixes(&["--only", "random", "--mixes", "0"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = folder.fermata(&["bench", "mixes", "--only", "table", "--profiles", "none"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("none: cannot be read") && error.lines().count() == 1, "{error}");
}

#[test]
fn lone_clients_and_sequences_of_loads_are_compared_with_eager_batching() {
    let folder = Folder::new();
    let profiles = profiles();
    let args = ["--only", "alone,sequence", "--quick", "--out", "out", "--profiles", &profiles];
    let output = folder.fermata(&[&["bench", "latency"][..], &args].concat());
    assert!(output.status.success(), "{output:?}");
    let alone = read(&folder, "out/latency/alone.md");
    for expected in ["| resnet50, 1 client | 1 | 0.518 |", "| lenet, 4 clients | 8 |"] {
        assert!(alone.contains(expected), "{expected}: {alone}");
    }
    // Every 0.675 ms, a client asks that waits for nothing but its batch.
    let sequence = read(&folder, "out/latency/sequence.md");
    assert!(
        sequence.contains("| one client, `eager` | 1,482 | 0.575 | 1.00 | 0.575 | 1.00 | 0.00 |"),
        "{sequence}"
    );
}

#[test]
fn without_a_gpu_one_line_says_so_and_nothing_is_written() {
    let folder = Folder::new();
    // No machine has so many.
    let output = folder.fermata(&["bench", "gpu", "--gpu", "99", "--out", "out"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--gpu: ") && error.lines().count() == 1, "{error}");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
    for (args, reason) in [
        (["--minutes", "0"], "--minutes: 0 is not"),
        (["--only", "nothing"], "no experiment 'nothing'"),
    ] {
        let output = folder.fermata(&[&["bench", "gpu"][..], &args].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(reason) && error.lines().count() == 1, "{error}");
    }
}
