//! Whole repositories on disk.

use bytes::Bytes;
use fermata_core::Profile;
use fermata_engine::{DataType, Length, Padding, Signature, TensorSpec};
use tempfile::TempDir;

use super::*;

/// A repository in a temporary folder.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        files.iter().for_each(|(path, text)| fixture.write(path, text));
        fixture
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn repository(&self) -> Repository {
        Repository::new(vec![self.folder.path().to_owned()], None)
    }

    fn entry(&self, name: &str) -> Result<ModelEntry, String> {
        let read = self.repository().read(name, &LoadOverride::default());
        read.map_err(|error| {
            error.to_string().replace(self.folder.path().to_str().unwrap(), "ROOT")
        })
    }

    fn resolve(&self, name: &str, file: Option<&Signature>) -> Result<Resolved, String> {
        let resolved = resolve(&self.entry(name)?, file);
        resolved.map_err(|error| {
            error.to_string().replace(self.folder.path().to_str().unwrap(), "ROOT")
        })
    }
}

const DEFAULTS: (&str, &str) = ("fermata.toml", "[defaults]\nslo_ms = 25\n");
const EMULATED: &str = "engine = 'emulated'\nalpha_ms = 1.053\nbeta_ms = 5.072\n";

fn numbers(entry: &ModelEntry) -> Vec<u64> {
    entry.versions.iter().map(|version| version.number).collect()
}

fn tensor(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
}

/// An image model whose first axis may be any.
fn image(max_batch: usize) -> Signature {
    Signature {
        max_batch,
        inputs: vec![tensor("x", DataType::Fp32, &[3, -1])],
        outputs: vec![tensor("y", DataType::Fp32, &[10]), tensor("z", DataType::Int64, &[])],
        length: None,
    }
}

#[test]
fn a_broken_model_never_hides_the_others() {
    let fixture = Fixture::new(&[
        DEFAULTS,
        ("good/1/model.onnx", ""),
        ("typo/1/model.onnx", ""),
        ("typo/config.pbtxt", "nam: 'typo'"),
        ("empty/readme", ""),
        ("no_file/1/other", ""),
        ("toml/1/model.onnx", ""),
        ("toml/fermata.toml", "slo = 3"),
        (".git/1/model.onnx", ""),
        ("readme.md", ""),
    ]);
    let scan = fixture.repository().scan().unwrap();
    let names: Vec<&str> = scan.keys().map(String::as_str).collect();
    assert_eq!(names, ["empty", "good", "no_file", "toml", "typo"]);
    assert!(scan["good"].is_ok());
    for (name, reason) in [
        ("empty", "ROOT/empty: has no version"),
        ("no_file", "ROOT/no_file/1: has no model.onnx"),
        ("toml", "ROOT/toml/fermata.toml: slo: unknown field"),
        ("typo", "ROOT/typo/config.pbtxt: line 1: field 'nam' unknown in 'ModelConfig'"),
        ("none", "model 'none': is not in ROOT"),
        ("../x", "model '../x': is not in ROOT"),
    ] {
        let error = fixture.entry(name).unwrap_err();
        assert!(error.starts_with(reason), "{name}: {error}");
    }
}

#[test]
fn repositories_that_are_served_together_say_the_same_of_spare_executors() {
    let root = |text| Fixture::new(&[("fermata.toml", text)]);
    let said = |fixtures: &[&Fixture]| {
        let roots = fixtures.iter().map(|fixture| fixture.folder.path().to_owned()).collect();
        Repository::new(roots, None).spare().map_err(|error| error.to_string())
    };
    let (latency, release) = (root("spare = 'latency'"), root("spare = 'release'"));
    let (nothing, wrong) = (root("[defaults]\nslo_ms = 25"), root("spare = 'none'"));
    assert_eq!(said(&[&nothing]), Ok(None));
    assert_eq!(said(&[&nothing, &release, &release]), Ok(Some(Spare::Release)));
    let error = said(&[&latency, &nothing, &release]).unwrap_err();
    assert!(error.contains("fermata.toml: spare: is release here and latency in "), "{error}");
    assert!(said(&[&release, &wrong]).unwrap_err().contains("spare: 'none' is not a use"));
}

#[test]
fn bytes_that_are_no_text_are_an_error_of_their_model() {
    let fixture = Fixture::new(&[DEFAULTS, ("a/1/model.onnx", ""), ("b/1/model.onnx", "")]);
    fs::write(fixture.path("a/config.pbtxt"), b"\xff\xfe").unwrap();
    fs::write(fixture.path("b/fermata.toml"), b"\xff\xfe").unwrap();
    assert!(fixture.entry("a").unwrap_err().starts_with("ROOT/a/config.pbtxt: cannot be read"));
    assert!(fixture.entry("b").unwrap_err().starts_with("ROOT/b/fermata.toml: cannot be read"));
}

#[test]
fn a_name_in_two_repositories_is_an_error_of_that_model() {
    let one = Fixture::new(&[DEFAULTS, ("a/1/model.onnx", ""), ("b/1/model.onnx", "")]);
    let two = Fixture::new(&[("b/1/model.onnx", ""), ("c/1/model.onnx", "")]);
    let roots = vec![one.folder.path().to_owned(), two.folder.path().to_owned()];
    let repository = Repository::new(roots, Some(Span::from_ms(7.0)));
    let scan = repository.scan().unwrap();
    assert_eq!(scan["a"].as_ref().unwrap().settings.slo, Span::from_ms(25.0));
    assert_eq!(scan["c"].as_ref().unwrap().settings.slo, Span::from_ms(7.0));
    assert!(scan["b"].as_ref().unwrap_err().to_string().contains("is in another repository too: "));
    let before = repository.survey().unwrap();
    fs::remove_dir_all(two.path("b")).unwrap();
    assert_eq!(diff(&before, &repository.survey().unwrap()).changed, ["b"]);
    assert!(repository.scan().unwrap()["b"].is_ok());
}

#[test]
fn a_repository_that_is_not_there_is_one_error() {
    let repository = Repository::new(vec![PathBuf::from("/nowhere/models")], None);
    assert!(
        repository.scan().unwrap_err().to_string().starts_with("/nowhere/models: cannot be read: ")
    );
    assert!(repository.survey().is_err());
}

#[test]
fn a_broken_default_is_an_error_of_every_model() {
    let fixture =
        Fixture::new(&[("fermata.toml", "[default]\nslo_ms = 1"), ("a/1/model.onnx", "")]);
    assert!(
        fixture.entry("a").unwrap_err().starts_with("ROOT/fermata.toml: default: unknown field")
    );
}

#[test]
fn versions_follow_the_policy() {
    let fixture = Fixture::new(&[DEFAULTS]);
    for version in ["1", "2", "10", "007", "0", "new", "99999999999999999999"] {
        fixture.write(&format!("m/{version}/model.onnx"), "");
    }
    for (policy, expected) in [
        ("", vec![10]),
        ("version_policy { }", vec![10]),
        ("version_policy { latest { num_versions: 2 } }", vec![2, 10]),
        ("version_policy { latest { } }", vec![10]),
        ("version_policy { latest { num_versions: 9 } }", vec![1, 2, 10]),
        ("version_policy { all { } }", vec![1, 2, 10]),
        ("version_policy { specific { versions: [ 2, 1, 5 ] } }", vec![1, 2]),
    ] {
        fixture.write("m/config.pbtxt", policy);
        assert_eq!(numbers(&fixture.entry("m").unwrap()), expected, "{policy}");
    }
    assert_eq!(fixture.entry("m").unwrap().notes.len(), 1);
    fixture.write("m/config.pbtxt", "version_policy { specific { versions: [ 5 ] } }");
    let error = fixture.entry("m").unwrap_err();
    assert_eq!(
        error,
        "ROOT/m/config.pbtxt: version_policy.specific.versions: none of [5] is there"
    );
}

#[test]
fn the_model_s_file_is_where_the_configuration_says() {
    let fixture = Fixture::new(&[
        DEFAULTS,
        ("m/1/net.onnx", ""),
        ("m/config.pbtxt", "default_model_filename: 'net.onnx'"),
        ("folder/1/model.onnx/model.onnx", ""),
        ("out/1/model.onnx", ""),
        ("out/config.pbtxt", "default_model_filename: '../../m/1/net.onnx'"),
    ]);
    assert_eq!(fixture.entry("m").unwrap().versions[0].file, fixture.path("m/1/net.onnx"));
    assert_eq!(
        fixture.entry("folder").unwrap().versions[0].file,
        fixture.path("folder/1/model.onnx/model.onnx")
    );
    assert!(
        fixture
            .entry("out")
            .unwrap_err()
            .contains("default_model_filename: '../../m/1/net.onnx' is not a file in")
    );
}

#[test]
fn labels_are_read_and_stay_in_the_folder() {
    let fixture = Fixture::new(&[
        DEFAULTS,
        ("m/1/model.onnx", ""),
        ("m/labels.txt", "cat\ndog\n\nbird\n"),
        ("m/config.pbtxt", "output { name: 'y' label_filename: 'labels.txt' }"),
    ]);
    assert_eq!(fixture.entry("m").unwrap().labels["y"], ["cat", "dog", "", "bird"]);
    for (path, reason) in [
        ("../m/labels.txt", "is not a file in the model's folder"),
        ("none", "none cannot be read"),
    ] {
        fixture
            .write("m/config.pbtxt", &format!("output {{ name: 'y' label_filename: '{path}' }}"));
        let error = fixture.entry("m").unwrap_err();
        assert!(
            error.contains("output 'y': label_filename: ") && error.contains(reason),
            "{error}"
        );
    }
}

#[test]
fn an_emulated_model_needs_no_more_than_its_profile() {
    let fixture = Fixture::new(&[DEFAULTS, ("m/fermata.toml", EMULATED)]);
    let resolved = fixture.resolve("m", None).unwrap();
    assert_eq!(numbers(&fixture.entry("m").unwrap()), [1]);
    assert_eq!(resolved.signature.max_batch, 18);
    assert_eq!(resolved.signature.inputs, [tensor("INPUT0", DataType::Fp32, &[-1])]);
    assert_eq!(resolved.signature.outputs, [tensor("OUTPUT0", DataType::Fp32, &[-1])]);
    assert_eq!(resolved.slo, Span::from_ms(25.0));
    assert_eq!((resolved.config.max_batch_size, &resolved.config.platform[..]), (18, "emulated"));
    assert_eq!(resolved.config.input[0].dims, [-1]);
}

#[test]
fn an_emulated_model_may_be_described_in_either_file_but_once() {
    let tensors = "[[input]]\nname = 'a'\ndatatype = 'INT64'\nshape = [4]\n";
    let fixture = Fixture::new(&[DEFAULTS, ("m/fermata.toml", &format!("{EMULATED}{tensors}"))]);
    let resolved = fixture.resolve("m", None).unwrap();
    assert_eq!(resolved.signature.inputs, [tensor("a", DataType::Int64, &[4])]);
    assert_eq!(resolved.signature.outputs, [tensor("OUTPUT0", DataType::Fp32, &[-1])]);

    fixture.write("m/config.pbtxt", "platform: 'tensorrt_plan' max_batch_size: 4 input { name: 'x' data_type: TYPE_FP32 dims: 2 }");
    assert!(
        fixture
            .resolve("m", None)
            .unwrap_err()
            .contains("fermata.toml: input: config.pbtxt has inputs")
    );

    fixture.write("m/fermata.toml", EMULATED);
    let resolved = fixture.resolve("m", None).unwrap();
    assert_eq!(resolved.signature.max_batch, 4);
    assert_eq!(resolved.signature.inputs, [tensor("x", DataType::Fp32, &[2])]);
    let EngineKind::Emulated(profile) = resolved.engine else { panic!("it is emulated") };
    assert_eq!((profile.max_batch(), profile.latency(4)), (4, Span::from_ms(9.284)));

    fixture.write(
        "m/config.pbtxt",
        "max_batch_size: 0 input { name: 'x' data_type: TYPE_FP32 dims: 2 }",
    );
    let resolved = fixture.resolve("m", None).unwrap();
    assert_eq!(resolved.signature.max_batch, 0);
    let one = Profile::from_table([Span::from_ms(6.125)]).unwrap();
    assert_eq!(resolved.engine, EngineKind::Emulated(one));

    fixture.write("m/config.pbtxt", "input { name: 'x' dims: 2 }");
    assert!(
        fixture
            .resolve("m", None)
            .unwrap_err()
            .ends_with("config.pbtxt: input 'x': data_type: missing")
    );
}

#[test]
fn models_may_be_kept_on_the_processors() {
    let fixture = Fixture::new(&[DEFAULTS, ("m/1/model.onnx", "")]);
    for (config, settings, device) in [
        ("", "", None),
        ("instance_group { kind: KIND_CPU }", "", Some(Device::Cpu)),
        ("instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]", "", None),
        ("instance_group { kind: KIND_AUTO }", "", None),
        ("", "device = 'cpu'", Some(Device::Cpu)),
        ("instance_group { kind: KIND_CPU }", "device = 'gpu'", Some(Device::Gpu)),
    ] {
        fixture.write("m/config.pbtxt", config);
        fixture.write("m/fermata.toml", settings);
        assert_eq!(fixture.entry("m").unwrap().settings.device, device, "{config} {settings}");
    }
}

#[test]
fn without_a_configuration_the_file_counts() {
    let fixture = Fixture::new(&[DEFAULTS, ("m/1/model.onnx", "")]);
    for config in ["", "instance_group { count: 2 }"] {
        fixture.write("m/config.pbtxt", config);
        let resolved = fixture.resolve("m", Some(&image(64))).unwrap();
        assert_eq!(resolved.signature, image(64));
        let config = resolved.config;
        assert_eq!(
            (&config.name[..], &config.platform[..], &config.backend[..]),
            ("m", "onnxruntime_onnx", "onnxruntime")
        );
        assert_eq!((config.max_batch_size, config.input.len(), config.output.len()), (64, 1, 2));
        assert_eq!(config.output[1].data_type(), fermata_protocol::proto::DataType::TypeInt64);
        assert_eq!(config.default_model_filename, "model.onnx");
    }
    assert!(fixture.resolve("m", None).is_err());
}

#[test]
fn a_configuration_narrows_what_the_file_has() {
    let fixture = Fixture::new(&[DEFAULTS, ("m/1/model.onnx", "")]);
    let config = "max_batch_size: 8 input { name: 'x' data_type: TYPE_FP32 dims: [ -1, 5 ] format: FORMAT_NCHW }
        output { name: 'z' } output { name: 'y' data_type: TYPE_FP32 dims: [ 10 ] }";
    fixture.write("m/config.pbtxt", config);
    let expected = Signature {
        max_batch: 8,
        inputs: vec![tensor("x", DataType::Fp32, &[3, 5])],
        outputs: vec![tensor("z", DataType::Int64, &[]), tensor("y", DataType::Fp32, &[10])],
        length: None,
    };
    let resolved = fixture.resolve("m", Some(&image(64))).unwrap();
    assert_eq!(resolved.signature, expected);
    assert_eq!(resolved.config.input[0].format, 2);
    assert_eq!(resolved.config.input[0].dims, [3, 5]);

    // The same file, told with all its axes.
    let mut whole = image(0);
    for spec in whole.inputs.iter_mut().chain(&mut whole.outputs) {
        spec.shape.insert(0, -1);
    }
    assert_eq!(fixture.resolve("m", Some(&whole)).unwrap().signature, expected);

    // An output whose axes the engine does not know.
    let mut unknown = whole.clone();
    unknown.outputs[0].shape.clear();
    assert_eq!(fixture.resolve("m", Some(&unknown)).unwrap().signature, expected);

    fixture.write("m/config.pbtxt", "input { name: 'x' data_type: TYPE_FP32 dims: [ 2, 3, 5 ] }");
    let resolved = fixture.resolve("m", Some(&image(64))).unwrap();
    assert_eq!(resolved.signature.max_batch, 0);
    assert_eq!(resolved.signature.inputs, [tensor("x", DataType::Fp32, &[2, 3, 5])]);
    assert_eq!(resolved.signature.outputs[0], tensor("y", DataType::Fp32, &[-1, 10]));
}

#[test]
fn the_length_stays_with_its_inputs_and_outputs() {
    let fixture = Fixture::new(&[DEFAULTS, ("m/1/model.onnx", "")]);
    let file = Signature {
        max_batch: 128,
        inputs: vec![tensor("ids", DataType::Int64, &[-1]), tensor("mask", DataType::Int64, &[-1])],
        outputs: vec![
            tensor("hidden", DataType::Fp32, &[-1, 4]),
            tensor("pooled", DataType::Fp32, &[4]),
        ],
        length: Some(Length {
            inputs: vec![Some(0), Some(0)],
            outputs: vec![Some(0), None],
            longest: usize::MAX,
            padding: Some(Padding { fill: vec![0, 0] }),
        }),
    };
    let length = |config: &str, settings: &str| {
        fixture.write("m/config.pbtxt", config);
        fixture.write("m/fermata.toml", settings);
        fixture.resolve("m", Some(&file)).map(|resolved| resolved.signature.length)
    };
    assert_eq!(length("", ""), Ok(file.length.clone()));
    let fewer = "max_batch_size: 8 output { name: 'pooled' }";
    let expected = Length { outputs: vec![None], ..file.length.clone().unwrap() };
    assert_eq!(length(fewer, ""), Ok(Some(expected)));
    let fixed = "max_batch_size: 8 input { name: 'mask' dims: 9 } input { name: 'ids' dims: 9 }";
    assert_eq!(length(fixed, ""), Ok(None));
    let settings = "[length]\npad = false\nlongest = 512";
    let expected = Length { longest: 512, padding: None, ..file.length.clone().unwrap() };
    assert_eq!(length("", settings), Ok(Some(expected)));
    assert_eq!(
        length("", "[length]\naxis = { ids = 3 }").unwrap_err(),
        "ROOT/m/fermata.toml: length.axis.ids: 3 is no free axis (from 0) of [-1], without the batch"
    );
}

#[test]
fn an_emulated_model_may_be_told_by_an_input_how_long_it_takes() {
    let fixture = Fixture::new(&[DEFAULTS]);
    let resolve = |name: &str, datatype: &str| {
        let text = format!(
            "engine = 'emulated'\nalone_input = '{name}'\n[[alone]]\nmean_ms = 5\ndeviation_ms = 1\n
            [[input]]\nname = 'ms'\ndatatype = '{datatype}'\nshape = [1]"
        );
        fixture.write("m/fermata.toml", &text);
        fixture.resolve("m", None)
    };
    let resolved = resolve("ms", "FP32").unwrap();
    let EngineKind::Emulated(profile) = &resolved.engine else { panic!("it is emulated") };
    assert_eq!((resolved.alone_input, profile.max_batch()), (Some(0), 128));
    assert!(profile.spread().is_some());
    assert!(
        resolve("x", "FP32")
            .unwrap_err()
            .ends_with("alone_input: the model has no input 'x', but ms")
    );
    assert!(resolve("ms", "BYTES").unwrap_err().contains("input 'ms' is BYTES, expected FP32"));
    // The configuration ends the batches, and what is spread stays so.
    fixture.write("m/config.pbtxt", "max_batch_size: 4");
    let EngineKind::Emulated(profile) = resolve("ms", "INT32").unwrap().engine else {
        panic!("it is emulated")
    };
    assert_eq!((profile.max_batch(), profile.spread().unwrap().max_batch()), (4, 4));
}

#[test]
fn a_configuration_that_disagrees_is_refused_by_field() {
    let fixture = Fixture::new(&[DEFAULTS, ("m/1/model.onnx", "")]);
    let mut one = image(0);
    for spec in one.inputs.iter_mut().chain(&mut one.outputs) {
        spec.shape.insert(0, 1);
    }
    let mut scalar = one.clone();
    scalar.inputs[0].shape.clear();
    for (config, file, reason) in [
        (
            "max_batch_size: 2 input { name: 'w' }",
            image(8),
            "input 'w': name: the model has no such input: x",
        ),
        (
            "max_batch_size: 2 output { name: 'w' }",
            image(8),
            "output 'w': name: the model has no such output: y, z",
        ),
        (
            "max_batch_size: 2 input { name: 'x' data_type: TYPE_STRING }",
            image(8),
            "input 'x': data_type: TYPE_STRING, but the model has TYPE_FP32",
        ),
        (
            "max_batch_size: 2 input { name: 'x' dims: [ 4, 1 ] }",
            image(8),
            "input 'x': dims: [4, 1], but the model has [3, -1] after the batch",
        ),
        (
            "max_batch_size: 2 input { name: 'x' dims: [ 3 ] }",
            image(8),
            "input 'x': dims: [3], but",
        ),
        (
            "input { name: 'x' dims: [ 3, 1 ] }",
            image(8),
            "input 'x': dims: [3, 1], but the model has [-1, 3, -1] (with max_batch_size 0, dims have all axes)",
        ),
        ("max_batch_size: 2", image(1), "max_batch_size: 2, but the model takes batches of 1"),
        (
            "max_batch_size: 2",
            one.clone(),
            "max_batch_size: 2, but the first axis of input 'x' is 1, not the batch",
        ),
        ("max_batch_size: 1", scalar, "max_batch_size: 1, but input 'x' has no axis for the batch"),
    ] {
        fixture.write("m/config.pbtxt", config);
        let error = fixture.resolve("m", Some(&file)).unwrap_err();
        assert!(
            error.starts_with("ROOT/m/config.pbtxt: ") && error.contains(reason),
            "{config}: {error}"
        );
    }
    fixture.write("m/config.pbtxt", "max_batch_size: 1");
    assert_eq!(fixture.resolve("m", Some(&one)).unwrap().signature, image(1));
    let mut two = image(8);
    two.inputs.push(tensor("w", DataType::Fp32, &[]));
    fixture.write("m/config.pbtxt", "max_batch_size: 1 input { name: 'x' }");
    assert!(
        fixture
            .resolve("m", Some(&two))
            .unwrap_err()
            .ends_with("input: 'w' is missing, which the model has")
    );
}

#[test]
fn shapes_to_measure_with_must_fit() {
    let fixture = Fixture::new(&[DEFAULTS, ("m/1/model.onnx", "")]);
    for (shapes, reason) in [
        ("x = [3, 5]", None),
        ("w = [3, 5]", Some("profile.shapes.w: the model has no such input: x")),
        ("x = [4, 5]", Some("profile.shapes.x: [4, 5], but the model has [3, -1]")),
        ("x = [3, 0]", Some("profile.shapes.x: [3, 0], but")),
        ("x = [3]", Some("profile.shapes.x: [3], but")),
    ] {
        fixture.write("m/fermata.toml", &format!("[profile.shapes]\n{shapes}"));
        match (fixture.resolve("m", Some(&image(8))), reason) {
            (Ok(resolved), None) => assert_eq!(resolved.shapes["x"], [3, 5]),
            (Err(error), Some(reason)) => assert!(error.contains(reason), "{error}"),
            (other, _) => panic!("{shapes}: {other:?}"),
        }
    }
}

fn files(list: &[(&str, &str)]) -> BTreeMap<String, Bytes> {
    list.iter()
        .map(|&(path, text)| (path.to_owned(), Bytes::copy_from_slice(text.as_bytes())))
        .collect()
}

#[test]
fn a_request_may_bring_a_configuration() {
    let fixture = Fixture::new(&[
        DEFAULTS,
        ("m/1/model.onnx", ""),
        ("m/2/model.onnx", ""),
        ("m/config.pbtxt", "typo"),
    ]);
    let config = Some(r#"{"version_policy": {"specific": {"versions": [1]}}}"#.to_owned());
    let instead = LoadOverride { config, ..LoadOverride::default() };
    let entry = fixture.repository().read("m", &instead).unwrap();
    assert_eq!(numbers(&entry), [1]);
    assert!(!entry.is_temporary());
    let instead = LoadOverride { config: Some(r#"{"max_batch_size": -1}"#.to_owned()), ..instead };
    let error = fixture.repository().read("m", &instead).unwrap_err();
    assert_eq!(error.to_string(), "config: max_batch_size: -1 is below 0");
}

#[test]
fn a_request_may_bring_files_which_go_when_the_model_goes() {
    let fixture =
        Fixture::new(&[DEFAULTS, ("m/1/model.onnx", ""), ("m/fermata.toml", "slo_ms = 5")]);
    let brought = files(&[("3/model.onnx", "new"), ("config.pbtxt", "max_batch_size: 2")]);
    let instead = LoadOverride { config: None, files: brought };
    let entry = fixture.repository().read("m", &instead).unwrap();
    assert_eq!((numbers(&entry), entry.settings.slo), (vec![3], Span::from_ms(5.0)));
    let file = entry.versions[0].file.clone();
    assert_eq!(fs::read(&file).unwrap(), b"new");
    let copy = entry.clone();
    drop(entry);
    assert!(file.exists());
    drop(copy);
    assert!(!file.exists() && !file.ancestors().nth(2).unwrap().exists());

    let entry = fixture.repository().read("other", &instead).unwrap();
    assert_eq!((&entry.name[..], entry.settings.slo), ("other", Span::from_ms(25.0)));
}

#[test]
fn a_request_cannot_write_elsewhere() {
    let fixture = Fixture::new(&[DEFAULTS]);
    for path in ["../evil", "/tmp/evil", "1/../../evil", "", ".fermata/profile.json"] {
        let instead =
            LoadOverride { config: None, files: files(&[("1/model.onnx", ""), (path, "x")]) };
        let error = fixture.repository().read("m", &instead).unwrap_err().to_string();
        assert_eq!(error, format!("file:{path}: is not a path inside the model's folder"));
    }
    let instead = LoadOverride { config: None, files: files(&[("1", "x"), ("1/model.onnx", "")]) };
    assert!(
        fixture
            .repository()
            .read("m", &instead)
            .unwrap_err()
            .to_string()
            .contains("file:1/model.onnx: cannot be written")
    );
    let instead = LoadOverride { config: None, files: files(&[("1/model.onnx", "")]) };
    for name in ["../m", "", "a/b", "."] {
        assert!(
            fixture
                .repository()
                .read(name, &instead)
                .unwrap_err()
                .to_string()
                .contains("is not a name"),
            "{name}"
        );
    }
}

#[test]
fn surveys_see_models_and_defaults_change() {
    let fixture = Fixture::new(&[DEFAULTS, ("a/1/model.onnx", ""), ("b/1/model.onnx", "")]);
    let before = fixture.repository().survey().unwrap();
    fixture.write("a/1/model.onnx", "longer");
    fixture.write("c/1/model.onnx", "");
    fs::remove_dir_all(fixture.path("b")).unwrap();
    let after = fixture.repository().survey().unwrap();
    let changes = diff(&before, &after);
    assert_eq!(
        (&changes.added[..], &changes.changed[..], &changes.removed[..]),
        (&["c".to_owned()][..], &["a".to_owned()][..], &["b".to_owned()][..])
    );
    fixture.write("fermata.toml", "[defaults]\nslo_ms = 100\n");
    assert_eq!(diff(&after, &fixture.repository().survey().unwrap()).changed, ["a", "c"]);
}

#[test]
fn a_folder_alone_is_read_with_its_repository_s_default() {
    let fixture = Fixture::new(&[DEFAULTS, ("a/1/model.onnx", "")]);
    let entry = read_model(&fixture.path("a"), None).unwrap();
    assert_eq!((&entry.name[..], entry.settings.slo), ("a", Span::from_ms(25.0)));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_in_the_files_make_it_panic(config: Vec<u8>, settings: Vec<u8>, labels: Vec<u8>) {
        let fixture = Fixture::new(&[DEFAULTS, ("a/1/model.onnx", ""), ("b/1/model.onnx", "")]);
        fs::write(fixture.path("a/config.pbtxt"), config).unwrap();
        fs::write(fixture.path("a/fermata.toml"), settings).unwrap();
        fs::write(fixture.path("b/config.pbtxt"), "output { name: 'y' label_filename: 'l' }").unwrap();
        fs::write(fixture.path("b/l"), labels).unwrap();
        for entry in fixture.repository().scan().unwrap().into_values().flatten() {
            let _ = resolve(&entry, Some(&image(8)));
        }
    }
}
