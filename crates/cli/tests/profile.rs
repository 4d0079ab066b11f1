//! `fermata profile` on repositories, folders and files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::Folder;
use serde_json::Value;

const EMULATED: &str = "slo_ms = 25\nengine = \"emulated\"\nalpha_ms = 1.053\nbeta_ms = 5.072\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes a file and the folders on the way to it.
fn write(folder: &Folder, path: &str, content: impl AsRef<[u8]>) {
    let file = folder.path(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

/// A model of the engine's tests.
fn onnx(name: &str) -> Vec<u8> {
    fs::read(root().join("crates/engine/tests/models").join(name)).unwrap()
}

/// Runs the command with the library of `make setup`.
fn profile(folder: &Folder, args: &[&str]) -> Output {
    let library = fs::read_dir(root().join(".fermata/lib")).expect("make setup has run");
    let library = library.map(|entry| entry.unwrap().path()).next().unwrap();
    let args: Vec<&str> = ["profile"].iter().chain(args).copied().collect();
    folder.fermata_with(&args, &[("ORT_DYLIB_PATH", library.to_str().unwrap())])
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line of an error.
fn refused(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("error: ") && text.lines().count() == 1, "{text}");
    text
}

#[test]
fn emulated_models_are_told_as_they_are() {
    let folder = Folder::new();
    write(&folder, "models/net/fermata.toml", EMULATED);
    for path in ["models", "models/net"] {
        let output = profile(&folder, &[path]);
        let text = stdout(&output);
        assert!(output.status.success());
        assert!(text.contains("  18      24.026   24.026         749\n"), "{text}");
        assert!(text.contains("name = \"net\"\n  latency_ms = [6.125, 7.178, "), "{text}");
    }
    let json: Value =
        serde_json::from_str(&stdout(&profile(&folder, &["models", "--json"]))).unwrap();
    assert_eq!(json[0]["name"], "net");
    assert_eq!(json[0]["batches"].as_array().unwrap().len(), 18);
    let json: Value =
        serde_json::from_str(&stdout(&profile(&folder, &["models", "--json", "--slo-ms", "10"])))
            .unwrap();
    assert_eq!(
        (json[0]["batches"].as_array().unwrap().len(), &json[0]["end"]),
        (4, &Value::from("slo"))
    );
}

#[test]
fn a_model_is_measured_once_and_kept_beside_it() {
    let folder = Folder::new();
    write(&folder, "models/fermata.toml", "[defaults]\nslo_ms = 100");
    write(&folder, "models/net/1/model.onnx", onnx("dynamic.onnx"));
    write(&folder, "models/net/config.pbtxt", "max_batch_size: 4");
    let output = profile(&folder, &["models", "--json", "--plot", "net.svg"]);
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let first = &json[0];
    assert_eq!((&first["kept"], &first["end"]), (&Value::from(false), &Value::from("max_batch")));
    assert_eq!(first["batches"].as_array().unwrap().len(), 4);
    assert!(fs::read_to_string(folder.path("net.svg")).unwrap().contains("<svg"));
    assert_eq!(fs::read_dir(folder.path("models/net/1/.fermata")).unwrap().count(), 1);

    let again: Value =
        serde_json::from_str(&stdout(&profile(&folder, &["models/net", "--json"]))).unwrap();
    assert_eq!((&again[0]["kept"], &again[0]["batches"]), (&Value::from(true), &first["batches"]));
    let forced: Value =
        serde_json::from_str(&stdout(&profile(&folder, &["models", "--json", "--force"]))).unwrap();
    assert_eq!(forced[0]["kept"], Value::from(false));

    let file = profile(&folder, &["models/net/1/model.onnx", "--slo-ms", "100", "--threads", "1"]);
    assert!(stdout(&file).starts_with("model: onnxruntime, one thread on "), "{}", stdout(&file));
}

#[test]
fn a_broken_model_does_not_keep_the_others_from_being_measured() {
    let folder = Folder::new();
    write(&folder, "models/bad/1/model.onnx", "junk");
    write(&folder, "models/bad/fermata.toml", "slo_ms = 10");
    write(&folder, "models/good/fermata.toml", EMULATED);
    let output = profile(&folder, &["models"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).starts_with("good: emulated"));
    let errors = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = errors.lines().collect();
    assert!(lines[0].starts_with("error: PATH: models/bad/1/model.onnx: "), "{errors}");
    assert_eq!(lines[1], "error: PATH: 1 of 2 models could not be measured");
}

#[test]
fn bad_input_is_told_in_one_line() {
    let folder = Folder::new();
    write(&folder, "models/net/fermata.toml", EMULATED);
    write(&folder, "typo/net/fermata.toml", "slo = 1");
    write(&folder, "typo/net/1/model.onnx", "");
    write(&folder, "empty/readme", "");
    write(&folder, "net.onnx", onnx("dynamic.onnx"));
    for (args, reason) in [
        (&["nowhere"][..], "nowhere: cannot be read: "),
        (&["net.onnx"], "--slo-ms: missing: a file alone has no SLO"),
        (&["net.onnx", "--slo-ms", "0"], "--slo-ms: 0 is not a time above 0"),
        (&["net.onnx", "--slo-ms", "-1"], "--slo-ms: -1 is not a time above 0"),
        (
            &["net.onnx", "--slo-ms", "5", "--shape", "x"],
            "--shape: 'x' is not like pixels:3,224,224",
        ),
        (
            &["net.onnx", "--slo-ms", "5", "--shape", "nope:1"],
            "--shape: the model has no input 'nope', but ",
        ),
        (&["net.onnx", "--slo-ms", "5", "--model", "a"], "--model: PATH is a file"),
        (&["models/net", "--model", "a"], "--model: PATH is the folder of a model"),
        (&["models", "--model", "a"], "--model: 'a' is not in models: net"),
        (&["models", "--threads", "0"], "--threads"),
        (&["models", "--plot", "none/x.svg"], "--plot: none/x.svg: cannot be written"),
        (&["models", "--gpu", "99"], "--gpu: there is no "),
        (&["models", "--share", "50"], "--gpu"),
        (&["typo"], "PATH: typo/net/fermata.toml: slo: unknown field `slo`"),
        (&["empty"], "PATH: empty: there is no model in it"),
    ] {
        let error = refused(&profile(&folder, args));
        assert!(error.contains(reason), "{args:?}: {error}");
    }
}
