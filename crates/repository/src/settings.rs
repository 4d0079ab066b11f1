//! `fermata.toml` of a model: what Fermata must be told of it that Triton's configuration does not
//! say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use fermata_core::{Profile, Span};
use fermata_engine::{DataType, TensorSpec};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::alone::{self, RawGrowth, RawMode};
use crate::error::{RepositoryError, in_one_line, line_of, written_in};
use crate::length::LengthSettings;
use crate::number::{not_negative, positive};
use crate::place::Place;

/// The name of the file, with a model's `config.pbtxt` and at the root of a repository.
pub(crate) const FILE_NAME: &str = "fermata.toml";
/// Bytes of a megabyte.
const MB: f64 = 1e6;

/// What `fermata.toml` says of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The latency objective.
    pub slo: Span,
    /// Where the model runs.
    pub engine: EngineKind,
    /// The shapes of inputs, without the batch, with which the model is measured; for those that
    /// may have any.
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// Bytes that it takes on every GPU that holds it; zero, if the file does not say.
    pub memory: u64,
    /// What its file is to run on; a GPU, if the server has one and nobody says otherwise.
    pub device: Option<Device>,
    /// Whether run times are taken to depend on the input; found out, if the file does not say.
    pub run_time: Option<RunTime>,
    /// What it says of the length of requests.
    pub(crate) length: LengthSettings,
    /// The input of an emulated model that has the milliseconds that its request takes alone.
    pub(crate) alone_input: Option<String>,
    /// The file that was read, or would be.
    pub(crate) file: PathBuf,
    /// The inputs of an emulated model; empty if the file has none.
    pub(crate) inputs: Vec<TensorSpec>,
    /// The outputs of an emulated model; empty if the file has none.
    pub(crate) outputs: Vec<TensorSpec>,
}

/// Where a model runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// On an emulated device, on which batches take this long.
    Emulated(Profile),
    /// In ONNX Runtime.
    OnnxRuntime,
}

/// What a model's file runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The machine's processors.
    Cpu,
    /// A share of a GPU.
    Gpu,
}

/// What is known of how long a model's requests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunTime {
    /// One number for each batch size, whatever the requests are.
    Point,
    /// A distribution for each kind of requests.
    Spread,
}

/// Where objectives come from for models that do not say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    /// The repository's own default.
    pub(crate) repository: Option<Span>,
    /// The command line's, for repositories without one.
    pub(crate) flag: Option<Span>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    slo_ms: Option<f64>,
    engine: Option<String>,
    alpha_ms: Option<f64>,
    beta_ms: Option<f64>,
    latency_ms: Option<Vec<f64>>,
    memory_mb: Option<f64>,
    device: Option<String>,
    run_time: Option<String>,
    #[serde(default)]
    alone: Vec<RawMode>,
    alone_input: Option<String>,
    growth: Option<RawGrowth>,
    #[serde(default)]
    length: LengthSettings,
    #[serde(default)]
    input: Vec<RawTensor>,
    #[serde(default)]
    output: Vec<RawTensor>,
    #[serde(default)]
    profile: RawProfile,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    #[serde(default)]
    shapes: BTreeMap<String, Vec<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    name: Option<String>,
    datatype: Option<String>,
    shape: Option<Vec<i64>>,
}

impl Settings {
    /// Reads the file of the model in `folder`. Without one, the defaults count.
    pub(crate) fn read(folder: &Path, defaults: &Defaults) -> Result<Self, RepositoryError> {
        let file = folder.join(FILE_NAME);
        let text = read_if_there(&file)?;
        Self::check(&file, text.as_deref().unwrap_or_default(), defaults)
    }

    fn check(file: &Path, text: &str, defaults: &Defaults) -> Result<Self, RepositoryError> {
        let raw: RawModel = parse(file, text)?;
        let given = raw.slo_ms.map(|ms| positive(file, "slo_ms", ms).map(Span::from_ms));
        let Some(slo) = given.transpose()?.or(defaults.repository).or(defaults.flag) else {
            let reason = format!(
                "missing: give it here, as `[defaults] slo_ms = ...` in the repository's \
                 {FILE_NAME}, or by --slo-ms"
            );
            return Err(RepositoryError::key(file, "slo_ms", reason));
        };
        let engine = match raw.engine.as_deref() {
            None | Some("onnxruntime") => {
                raw.check_not_emulated(file)?;
                EngineKind::OnnxRuntime
            }
            Some("emulated") => EngineKind::Emulated(raw.profile(file, slo)?),
            Some(other) => {
                let reason = format!(
                    "'{}' is neither \"onnxruntime\" nor \"emulated\"",
                    other.escape_default()
                );
                return Err(RepositoryError::key(file, "engine", reason));
            }
        };
        let inputs = check_tensors(file, "input", &raw.input)?;
        let outputs = check_tensors(file, "output", &raw.output)?;
        let shapes = raw.profile.shapes;
        let run_time = match raw.run_time.as_deref() {
            None => None,
            Some("point") => Some(RunTime::Point),
            Some("spread") => Some(RunTime::Spread),
            Some(other) => {
                let reason =
                    format!("'{}' is neither \"point\" nor \"spread\"", other.escape_default());
                return Err(RepositoryError::key(file, "run_time", reason));
            }
        };
        let device = match raw.device.as_deref() {
            None => None,
            Some("cpu") => Some(Device::Cpu),
            Some("gpu") => Some(Device::Gpu),
            Some(other) => {
                let reason = format!("'{}' is neither \"cpu\" nor \"gpu\"", other.escape_default());
                return Err(RepositoryError::key(file, "device", reason));
            }
        };
        if let (Some(_), EngineKind::Emulated(_)) = (device, &engine) {
            let reason = "is only for a model with a file: an emulated one runs on neither";
            return Err(RepositoryError::key(file, "device", reason));
        }
        let memory = raw.memory_mb.map(|mb| not_negative(file, "memory_mb", mb)).transpose()?;
        // Conversion saturates.
        let memory = (memory.unwrap_or(0.0) * MB) as u64;
        Ok(Self {
            slo,
            engine,
            shapes,
            memory,
            device,
            run_time,
            length: raw.length,
            alone_input: raw.alone_input,
            file: file.to_owned(),
            inputs,
            outputs,
        })
    }

    /// Refuses shapes to measure with that no request could have.
    pub(crate) fn check_shapes(&self, inputs: &[TensorSpec]) -> Result<(), RepositoryError> {
        for (name, shape) in &self.shapes {
            let refuse = |reason: String| {
                let key = format!("profile.shapes.{}", name.escape_default());
                Err(RepositoryError::key(&self.file, key, reason))
            };
            let Some(spec) = inputs.iter().find(|spec| spec.name == *name) else {
                let known: Vec<&str> = inputs.iter().map(|spec| spec.name.as_str()).collect();
                return refuse(format!("the model has no such input: {}", known.join(", ")));
            };
            let fits = |(&is, &may): (&i64, &i64)| is == may || (may == -1 && is > 0);
            if shape.len() != spec.shape.len() || !shape.iter().zip(&spec.shape).all(fits) {
                return refuse(format!("{shape:?}, but the model has {:?}", spec.shape));
            }
        }
        Ok(())
    }
}

impl RawModel {
    fn check_not_emulated(&self, file: &Path) -> Result<(), RepositoryError> {
        let keys = [
            ("alpha_ms", self.alpha_ms.is_some()),
            ("beta_ms", self.beta_ms.is_some()),
            ("latency_ms", self.latency_ms.is_some()),
            ("alone", !self.alone.is_empty()),
            ("alone_input", self.alone_input.is_some()),
            ("growth", self.growth.is_some()),
            ("input", !self.input.is_empty()),
            ("output", !self.output.is_empty()),
        ];
        match keys.into_iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(RepositoryError::key(
                file,
                key,
                "is only for an emulated model: add engine = \"emulated\"",
            )),
            None => Ok(()),
        }
    }

    fn profile(&self, file: &Path, slo: Span) -> Result<Profile, RepositoryError> {
        let refuse = |key: &str, reason: String| Err(RepositoryError::key(file, key, reason));
        if !self.alone.is_empty() {
            let keys = [
                ("latency_ms", self.latency_ms.is_some()),
                ("alpha_ms", self.alpha_ms.is_some()),
                ("beta_ms", self.beta_ms.is_some()),
            ];
            return match keys.into_iter().find(|(_, given)| *given) {
                Some((key, _)) => refuse(key, "cannot be given together with [[alone]]".to_owned()),
                None => alone::profile(file, &self.alone, self.growth.as_ref(), slo),
            };
        }
        let keys = [("growth", self.growth.is_some()), ("alone_input", self.alone_input.is_some())];
        if let Some((key, _)) = keys.into_iter().find(|(_, given)| *given) {
            return refuse(key, "goes with [[alone]], which is missing".to_owned());
        }
        let (key, profile) = match (&self.latency_ms, self.alpha_ms, self.beta_ms) {
            (Some(table), None, None) => {
                for &latency in table {
                    positive(file, "latency_ms", latency)?;
                }
                (
                    "latency_ms",
                    Profile::from_table(table.iter().map(|&latency| Span::from_ms(latency))),
                )
            }
            (None, Some(alpha), Some(beta)) => {
                let alpha = Span::from_ms(not_negative(file, "alpha_ms", alpha)?);
                let beta = Span::from_ms(not_negative(file, "beta_ms", beta)?);
                ("alpha_ms", Profile::linear(alpha, beta, slo))
            }
            (Some(_), ..) => {
                return refuse(
                    "latency_ms",
                    "cannot be given together with alpha_ms or beta_ms".to_owned(),
                );
            }
            (None, None, None) => {
                return refuse(
                    "alpha_ms",
                    "missing: give alpha_ms and beta_ms, or latency_ms, or [[alone]]".to_owned(),
                );
            }
            (None, None, _) => return refuse("alpha_ms", "missing".to_owned()),
            (None, _, None) => return refuse("beta_ms", "missing".to_owned()),
        };
        let profile =
            profile.map_err(|error| RepositoryError::key(file, key, error.to_string()))?;
        if slo < profile.shortest() {
            let reason = format!(
                "{} ms is below the {} ms that a batch of one takes: no request could be in time",
                slo.as_ms(),
                profile.shortest().as_ms()
            );
            return refuse("slo_ms", reason);
        }
        Ok(profile)
    }
}

fn check_tensors(
    file: &Path,
    kind: &'static str,
    tensors: &[RawTensor],
) -> Result<Vec<TensorSpec>, RepositoryError> {
    let mut names = BTreeSet::new();
    let check = |(number, tensor): (usize, &RawTensor)| -> Result<TensorSpec, RepositoryError> {
        let name = tensor.name.as_deref().unwrap_or_default();
        if names.contains(name) {
            return Err(
                Place { file, kind, name, number }.refuse("name", format!("two {kind}s have it"))
            );
        }
        names.insert(name.to_owned());
        let place = Place { file, kind, name, number };
        place.check_name(&mut BTreeSet::new())?;
        let datatype =
            tensor.datatype.as_deref().ok_or_else(|| place.refuse("datatype", "missing"))?;
        let datatype = DataType::from_name(datatype).ok_or_else(|| {
            let known: Vec<&str> = DataType::ALL.iter().map(|datatype| datatype.name()).collect();
            place.refuse(
                "datatype",
                format!("'{}' is not one of {}", datatype.escape_default(), known.join(", ")),
            )
        })?;
        let shape = tensor.shape.clone().ok_or_else(|| place.refuse("shape", "missing"))?;
        match shape.iter().find(|&&axis| axis != -1 && axis < 1) {
            Some(axis) => {
                Err(place.refuse("shape", format!("{axis} is neither -1 (any length) nor above 0")))
            }
            None => Ok(TensorSpec { name: name.to_owned(), datatype, shape }),
        }
    };
    (1..).zip(tensors).map(check).collect()
}

/// Reads TOML. An error of syntax has a line, any other a key.
pub(crate) fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, RepositoryError> {
    let syntax = |error: &toml::de::Error| {
        let line = line_of(text, error.span().map_or(text.len(), |span| span.start));
        let written = written_in(text, line).unwrap_or_default();
        let reason = format!("{}: '{written}'", plain(error.message()));
        RepositoryError::Syntax { file: file.to_owned(), line, reason }
    };
    let document = toml::Deserializer::parse(text).map_err(|error| syntax(&error))?;
    serde_path_to_error::deserialize(document).map_err(|error| match error.path().iter().next() {
        None => syntax(error.inner()),
        Some(_) => {
            RepositoryError::key(file, error.path().to_string(), plain(error.inner().message()))
        }
    })
}

/// Serde names Rust's types, which the writer of a file need not know.
fn plain(message: &str) -> String {
    in_one_line(message)
        .replace("expected f64", "expected a number")
        .replace("expected i64", "expected a whole number")
        .replace("expected usize", "expected a whole number from 0")
}

pub(crate) fn read_if_there(file: &Path) -> Result<Option<String>, RepositoryError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RepositoryError::read(file, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings, String> {
        let checked = Settings::check(Path::new("m/fermata.toml"), text, &Defaults::default());
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn the_nearest_objective_counts() {
        let ms = |ms| Some(Span::from_ms(ms));
        let slo = |text: &str, repository, flag| {
            Settings::check(Path::new("f"), text, &Defaults { repository, flag })
                .map(|settings| settings.slo)
        };
        assert_eq!(slo("slo_ms = 5", ms(6.0), ms(7.0)), Ok(Span::from_ms(5.0)));
        assert_eq!(slo("", ms(6.0), ms(7.0)), Ok(Span::from_ms(6.0)));
        assert_eq!(slo("", None, ms(7.0)), Ok(Span::from_ms(7.0)));
        assert!(slo("", None, None).is_err());
    }

    #[test]
    fn emulated_models_have_the_simulator_s_profile() {
        let text = "slo_ms = 25\nengine = \"emulated\"\nalpha_ms = 1.053\nbeta_ms = 5.072";
        let EngineKind::Emulated(profile) = settings(text).unwrap().engine else {
            panic!("it is emulated")
        };
        assert_eq!(profile.max_batch(), 18);
        let text = "slo_ms = 25\nengine = \"emulated\"\nlatency_ms = [2, 3.5]";
        let EngineKind::Emulated(profile) = settings(text).unwrap().engine else {
            panic!("it is emulated")
        };
        assert_eq!((profile.max_batch(), profile.latency(2)), (2, Span::from_ms(3.5)));
    }

    #[test]
    fn bad_values_are_told_by_file_and_key() {
        const EMULATED: &str = "slo_ms = 25\nengine = \"emulated\"\n";
        for (text, reason) in [
            ("", "slo_ms: missing: give it here"),
            ("slo_ms = 0", "slo_ms: 0 is not a number above 0"),
            ("slo_ms = nan", "slo_ms: NaN is not a number above 0"),
            ("slo_ms = 1e-9", "slo_ms: 0.000000001 is not a number above 0"),
            ("slo_ms = \"25\"", "slo_ms: invalid type: string \"25\", expected a number"),
            ("slo = 25", "slo: unknown field `slo`"),
            ("slo_ms = \n", "line 1: "),
            ("slo_ms = 1\nslo_ms = 2", "line 2: duplicate key: 'slo_ms = 2'"),
            ("slo_ms = 1\nengine = \"tensorrt\"", "engine: 'tensorrt' is neither"),
            ("slo_ms = 1\nalpha_ms = 1", "alpha_ms: is only for an emulated model"),
            (
                "slo_ms = 1\nrun_time = \"long\"",
                "run_time: 'long' is neither \"point\" nor \"spread\"",
            ),
            ("slo_ms = 1\ndevice = \"tpu\"", "device: 'tpu' is neither \"cpu\" nor \"gpu\""),
            (
                &format!("{EMULATED}alpha_ms = 1\nbeta_ms = 1\ndevice = \"gpu\""),
                "device: is only for a model with a file",
            ),
            ("slo_ms = 1\nmemory_mb = -1", "memory_mb: -1 is not a number from 0"),
            (EMULATED, "alpha_ms: missing: give alpha_ms and beta_ms"),
            (&format!("{EMULATED}alpha_ms = 1"), "beta_ms: missing"),
            (
                &format!("{EMULATED}alpha_ms = -1\nbeta_ms = 1"),
                "alpha_ms: -1 is not a number from 0",
            ),
            (
                &format!("{EMULATED}alpha_ms = 0\nbeta_ms = 0"),
                "alpha_ms: the latency of a batch of 1 is zero",
            ),
            (&format!("{EMULATED}alpha_ms = 20\nbeta_ms = 6"), "slo_ms: 25 ms is below the 26 ms"),
            (&format!("{EMULATED}latency_ms = []"), "latency_ms: a profile needs"),
            ("slo_ms = 1\n[[alone]]\nmean_ms = 1", "alone: is only for an emulated model"),
            ("slo_ms = 1\n[length]\nlongest = -1", "length.longest: invalid value: integer `-1`"),
            ("slo_ms = 1\n[length]\npads = true", "length.pads: unknown field `pads`"),
            (&format!("{EMULATED}alone_input = \"x\""), "alone_input: goes with [[alone]]"),
            (&format!("{EMULATED}beta_ms = 1\n[[alone]]\nmean_ms = 1"), "beta_ms: cannot be given"),
            (&format!("{EMULATED}latency_ms = [1, -2]"), "latency_ms: -2 is not"),
            (
                &format!("{EMULATED}latency_ms = [1]\nbeta_ms = 2"),
                "latency_ms: cannot be given together",
            ),
            (
                &format!("{EMULATED}latency_ms = [1]\n[[input]]\nname = \"x\""),
                "input 'x': datatype: missing",
            ),
            (
                &format!("{EMULATED}latency_ms = [1]\n[[input]]\nshape = [1]"),
                "input 1: name: missing",
            ),
            (
                &format!(
                    "{EMULATED}latency_ms = [1]\n[[output]]\nname = \"x\"\ndatatype = \"F\"\n\
                     shape = []"
                ),
                "output 'x': datatype: 'F' is not one of BOOL, ",
            ),
            (
                &format!(
                    "{EMULATED}latency_ms = [1]\n[[output]]\nname = \"x\"\ndatatype = \"FP32\"\n\
                     shape = [0]"
                ),
                "output 'x': shape: 0 is neither",
            ),
            (
                &format!("{EMULATED}latency_ms = [1]\n[[input]]\nnam = \"x\""),
                "input[0].nam: unknown field `nam`",
            ),
        ] {
            let error = settings(text).unwrap_err();
            assert!(
                error.starts_with("m/fermata.toml: ") && error.contains(reason),
                "{text}: {error}"
            );
            assert!(!error.contains('\n'), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", ms: f64, table: Vec<f64>) {
            let _ = settings(&text);
            let _ = settings(&format!("slo_ms = {ms:?}\nengine = 'emulated'\nalpha_ms = {ms:?}\n\
                beta_ms = 1"));
            let _ = settings(&format!("slo_ms = {ms:?}\nengine = 'emulated'\n\
                latency_ms = {table:?}"));
        }
    }
}
