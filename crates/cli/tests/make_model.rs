//! `fermata make-model`: what it writes, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::Folder;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The one line of an error.
fn refused(output: &Output) -> String {
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(line.starts_with("error: ") && line.lines().count() == 1, "{line}");
    line
}

#[test]
fn the_list_has_names_sizes_and_inputs() {
    let folder = Folder::new();
    let list = text(&folder.fermata(&["make-model", "--list"]).stdout);
    let line = list.lines().find(|line| line.contains(" resnet50 ")).unwrap();
    for part in ["25.53 M", "4,089.", "image UINT8 [N,224,224,3]", "scores FP32 [N,1000]"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(list.contains("input_ids INT64 [N,128] attention_mask INT64 [N,128]"), "{list}");
    assert_eq!(list.lines().count(), 12);
    assert!(folder.names().is_empty());
}

#[test]
fn a_model_is_a_file_and_the_same_for_the_same_seed() {
    let folder = Folder::new();
    let output = folder.fermata(&["make-model", "lenet"]);
    assert_eq!(text(&output.stdout), "lenet: lenet.onnx, 0.1 MB\n");
    let make = |out: &str, more: &[&str]| {
        let args = [&["make-model", "lenet", "--out", out], more].concat();
        let output = folder.fermata(&args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        fs::read(folder.path(out)).unwrap()
    };
    let first = fs::read(folder.path("lenet.onnx")).unwrap();
    assert_eq!(make("same.onnx", &["--seed", "1"]), first);
    assert_ne!(make("other.onnx", &["--seed", "2"]), first);
    assert!(make("wide.onnx", &["--precision", "fp32"]).len() > 240_000);
    assert_eq!(folder.names(), ["lenet.onnx", "other.onnx", "same.onnx", "wide.onnx"]);
}

#[test]
fn a_repository_of_them_is_one_that_fermata_reads() {
    let folder = Folder::new();
    let args = ["make-model", "lenet", "mobilenetv2", "lenet", "--repository", "models"];
    let output = folder.fermata(&[&args[..], &["--slo-ms", "250"]].concat());
    assert_eq!(
        text(&output.stdout),
        "lenet: models/lenet/1/model.onnx, 0.1 MB\n\
         mobilenetv2: models/mobilenetv2/1/model.onnx, 7.0 MB\n"
    );
    assert_eq!(
        fs::read_to_string(folder.path("models/lenet/fermata.toml")).unwrap(),
        "slo_ms = 250\n"
    );
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.fermata/lib");
    let library = fs::read_dir(libraries).expect("make setup has run").next().unwrap().unwrap();
    let profile = folder.fermata_with(
        &["profile", "models", "--model", "lenet", "--json"],
        &[("ORT_DYLIB_PATH", library.path().to_str().unwrap())],
    );
    let profile: serde_json::Value = serde_json::from_slice(&profile.stdout).unwrap();
    assert_eq!((&profile[0]["name"], &profile[0]["slo_ms"]), (&"lenet".into(), &250.0.into()));
}

#[test]
fn what_is_there_is_not_written_over_unless_asked() {
    let folder = Folder::new();
    let models = ["make-model", "lenet", "--repository", "models", "--slo-ms", "50"];
    fs::create_dir_all(folder.path("models/lenet")).unwrap();
    folder.write("models/lenet/fermata.toml", "slo_ms = 7");
    assert_eq!(
        refused(&folder.fermata(&models)),
        "error: --repository: models/lenet/fermata.toml: is there already (--force writes over \
         it)\n"
    );
    assert!(!folder.path("models/lenet/1").exists());
    // Without an objective the one that is there stays.
    assert!(folder.fermata(&models[..4]).status.success());
    assert_eq!(fs::read_to_string(folder.path("models/lenet/fermata.toml")).unwrap(), "slo_ms = 7");
    refused(&folder.fermata(&models[..4]));
    assert!(folder.fermata(&[&models[..], &["--force"]].concat()).status.success());
    let settings = fs::read_to_string(folder.path("models/lenet/fermata.toml")).unwrap();
    assert_eq!(settings, "slo_ms = 50\n");
}

#[test]
fn what_cannot_be_made_is_said_in_one_line() {
    let folder = Folder::new();
    let cases: [(&[&str], &str); 7] = [
        (&["lenet9"], "error: NAME: 'lenet9' is none of bert, "),
        (&["lenet", "no\nne"], "error: NAME: 'no\\nne' is none of bert, "),
        (&["lenet", "ssd", "--out", "x"], "error: --out: is one file: "),
        (&["lenet", "--out", "none/x"], "error: --out: none/x: cannot be written: "),
        (&["lenet", "--repository", "m", "--slo-ms", "-1"], "error: --slo-ms: -1 is not a time"),
        (&["lenet", "--slo-ms", "50"], "error: the following required arguments"),
        (&[], "error: the following required arguments"),
    ];
    for (args, expected) in cases {
        let line = refused(&folder.fermata(&[&["make-model"], args].concat()));
        assert!(line.starts_with(expected), "{line}");
    }
    assert!(folder.names().is_empty());
    // A failure of the machine is none of the input.
    folder.write("file", "");
    let output = folder.fermata(&["make-model", "lenet", "--repository", "file"]);
    assert_eq!(output.status.code(), Some(1));
    let line = text(&output.stderr);
    assert!(line.starts_with("error: file/lenet/1/model.onnx: cannot be written: "), "{line}");
}
