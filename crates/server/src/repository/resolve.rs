//! A model's files taken together: what its configuration says against what its file has.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use fermata_core::{Profile, Span};
use fermata_engine::{DataType, Signature, TensorSpec};
use fermata_protocol::proto::{self, model_version_policy};

use super::config::{self, Place};
use super::entry::ModelEntry;
use super::error::RepositoryError;
use super::note::Note;
use super::settings::EngineKind;

/// All that must be known to serve a version of a model.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What goes in and what comes out. For a model of a file, its largest batch is what the configuration or
    /// the file allows; its profile may end sooner.
    pub signature: Signature,
    /// The configuration, completed from the file.
    pub config: proto::ModelConfig,
    /// The latency objective.
    pub slo: Span,
    /// Where it runs. An emulated profile is as long as the largest batch.
    pub engine: EngineKind,
    /// The names of classes by output, for those that have a label file.
    pub labels: BTreeMap<String, Vec<String>>,
    /// The shapes of inputs with which to measure it, for those that may have any.
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// Of an emulated model, which input has the milliseconds that its request takes alone.
    pub alone_input: Option<usize>,
    /// What has no effect.
    pub notes: Vec<Note>,
}

/// Brings a model's files together. `file` is what its model file says; an emulated model needs none.
pub fn resolve(entry: &ModelEntry, file: Option<&Signature>) -> Result<Resolved, RepositoryError> {
    let (signature, engine) = match &entry.settings.engine {
        EngineKind::Emulated(profile) => {
            let signature = emulated_signature(entry, file)?;
            emulate(entry, signature, profile)
        }
        EngineKind::OnnxRuntime => {
            let Some(file) = file else {
                return Err(RepositoryError::layout(
                    &entry.folder,
                    "the model's file was not read",
                ));
            };
            (agree(entry, file)?, EngineKind::OnnxRuntime)
        }
    };
    if signature.inputs.is_empty() || signature.outputs.is_empty() {
        let reason = "has no inputs or no outputs: there is nothing to ask for";
        return Err(RepositoryError::layout(&entry.folder, reason));
    }
    entry.settings.check_shapes(&signature.inputs)?;
    let signature = entry.settings.length.apply(&entry.settings.file, signature)?;
    let alone_input = alone_input(entry, &signature)?;
    Ok(Resolved {
        config: complete(entry, &signature),
        signature,
        slo: entry.settings.slo,
        engine,
        labels: entry.labels.clone(),
        shapes: entry.settings.shapes.clone(),
        alone_input,
        notes: entry.notes.clone(),
    })
}

/// What an emulated model takes and gives: from `fermata.toml`, or `config.pbtxt`, or the file, or one vector.
fn emulated_signature(
    entry: &ModelEntry,
    file: Option<&Signature>,
) -> Result<Signature, RepositoryError> {
    let settings = &entry.settings;
    let given = entry.config.as_ref().filter(|config| lists_tensors(config));
    let vector = |name: &str| {
        vec![TensorSpec { name: name.to_owned(), datatype: DataType::Fp32, shape: vec![-1] }]
    };
    let or_vector =
        |specs: Vec<TensorSpec>, name| if specs.is_empty() { vector(name) } else { specs };
    let named = !settings.inputs.is_empty() || !settings.outputs.is_empty();
    match (given, file) {
        (Some(_), _) if named => {
            let key = if settings.inputs.is_empty() { "output" } else { "input" };
            Err(RepositoryError::key(
                &settings.file,
                key,
                "config.pbtxt has inputs and outputs too: give them once",
            ))
        }
        (Some(config), _) => {
            let inputs = config
                .input
                .iter()
                .map(|input| spec(entry, "input", &input.name, input.data_type(), &input.dims));
            let outputs = config.output.iter().map(|output| {
                spec(entry, "output", &output.name, output.data_type(), &output.dims)
            });
            let (inputs, outputs) =
                (inputs.collect::<Result<_, _>>()?, outputs.collect::<Result<_, _>>()?);
            let max_batch = config.max_batch_size.max(0) as usize;
            Ok(Signature {
                max_batch,
                inputs: or_vector(inputs, "INPUT0"),
                outputs: or_vector(outputs, "OUTPUT0"),
                length: None,
            })
        }
        (None, Some(file)) if !named => Ok(file.clone()),
        (None, _) => Ok(Signature {
            max_batch: usize::MAX,
            inputs: or_vector(settings.inputs.clone(), "INPUT0"),
            outputs: or_vector(settings.outputs.clone(), "OUTPUT0"),
            length: None,
        }),
    }
}

fn lists_tensors(config: &proto::ModelConfig) -> bool {
    !config.input.is_empty() || !config.output.is_empty()
}

fn spec(
    entry: &ModelEntry,
    kind: &'static str,
    name: &str,
    data_type: proto::DataType,
    dims: &[i64],
) -> Result<TensorSpec, RepositoryError> {
    let place = Place { file: &entry.config_file, kind, name, number: 0 };
    let datatype =
        config::datatype(data_type).ok_or_else(|| place.refuse("data_type", "missing"))?;
    Ok(TensorSpec { name: name.to_owned(), datatype, shape: dims.to_vec() })
}

/// The largest batch is what profile, objective and configuration allow, and the profile ends there.
fn emulate(
    entry: &ModelEntry,
    mut signature: Signature,
    profile: &Profile,
) -> (Signature, EngineKind) {
    let limit = entry.config.as_ref().map_or(0, |config| config.max_batch_size.max(0) as usize);
    let limit = if limit > 0 { limit } else { usize::MAX };
    let sizes = signature.max_batch.max(1).min(profile.max_batch()).min(limit);
    if signature.max_batch > 0 {
        signature.max_batch = sizes;
    }
    let shorter = match profile.spread() {
        Some(spread) => Profile::spread_out(Arc::new(spread.with_max_batch(sizes))),
        None => Profile::from_table((1..=sizes).map(|size| profile.latency(size)))
            .expect("a part of a profile is one"),
    };
    (signature, EngineKind::Emulated(shorter))
}

/// Which input says what a request takes alone.
fn alone_input(
    entry: &ModelEntry,
    signature: &Signature,
) -> Result<Option<usize>, RepositoryError> {
    let Some(name) = &entry.settings.alone_input else { return Ok(None) };
    let refuse =
        |reason: String| Err(RepositoryError::key(&entry.settings.file, "alone_input", reason));
    let Some(at) = signature.inputs.iter().position(|spec| spec.name == *name) else {
        let known: Vec<&str> = signature.inputs.iter().map(|spec| spec.name.as_str()).collect();
        let name = name.escape_default();
        return refuse(format!("the model has no input '{name}', but {}", known.join(", ")));
    };
    match signature.inputs[at].datatype {
        DataType::Fp32 | DataType::Fp64 | DataType::Int32 | DataType::Int64 => Ok(Some(at)),
        other => refuse(format!("input '{name}' is {other}, expected FP32, FP64, INT32 or INT64")),
    }
}

/// The configuration's inputs and outputs, where they agree with the file's.
fn agree(entry: &ModelEntry, file: &Signature) -> Result<Signature, RepositoryError> {
    let Some(config) = &entry.config else { return Ok(file.clone()) };
    let wanted = config.max_batch_size.max(0) as usize;
    if wanted == 0 && !lists_tensors(config) {
        return Ok(file.clone());
    }
    let file = match wanted {
        0 => without_batch(file),
        _ => with_batch(entry, file, wanted)?,
    };
    let mut inputs = Vec::new();
    for input in &config.input {
        let side = Side { entry, kind: "input", specs: &file.inputs, batched: file.max_batch > 0 };
        inputs.push(side.narrow(&input.name, input.data_type(), &input.dims)?);
    }
    let mut outputs = Vec::new();
    for output in &config.output {
        let side =
            Side { entry, kind: "output", specs: &file.outputs, batched: file.max_batch > 0 };
        outputs.push(side.narrow(&output.name, output.data_type(), &output.dims)?);
    }
    if inputs.is_empty() {
        inputs.clone_from(&file.inputs);
    } else if let Some(missing) =
        file.inputs.iter().find(|spec| !inputs.iter().any(|input| input.name == spec.name))
    {
        let reason = format!("'{}' is missing, which the model has", missing.name);
        return Err(RepositoryError::key(&entry.config_file, "input", reason));
    }
    if outputs.is_empty() {
        outputs.clone_from(&file.outputs);
    }
    let narrow = Signature { max_batch: file.max_batch, inputs, outputs, length: None };
    Ok(narrow.with_length_of(&file))
}

/// The file's signature with all axes, for a configuration that has no batch.
fn without_batch(file: &Signature) -> Signature {
    let axis = match file.max_batch {
        0 => return file.clone(),
        1 => 1,
        _ => -1,
    };
    let whole = |spec: &TensorSpec| TensorSpec {
        shape: [axis].into_iter().chain(spec.shape.iter().copied()).collect(),
        ..spec.clone()
    };
    let all = Signature {
        max_batch: 0,
        inputs: file.inputs.iter().map(whole).collect(),
        outputs: file.outputs.iter().map(whole).collect(),
        length: None,
    };
    all.with_length_of(file)
}

/// The file's signature with its first axis as the batch, for a configuration that has one.
fn with_batch(
    entry: &ModelEntry,
    file: &Signature,
    wanted: usize,
) -> Result<Signature, RepositoryError> {
    let refuse = |reason: String| {
        let reason = format!("{wanted}, but {reason}");
        Err(RepositoryError::key(&entry.config_file, "max_batch_size", reason))
    };
    match file.max_batch {
        0 => {}
        1 if wanted > 1 => return refuse("the model takes batches of 1".to_owned()),
        // A file does not say how large its batches may be: its limit is the engine's guess.
        _ => return Ok(Signature { max_batch: wanted, ..file.clone() }),
    }
    let inputs = file.inputs.iter().map(|spec| ("input", spec));
    let outputs = file.outputs.iter().map(|spec| ("output", spec));
    for (kind, spec) in inputs.chain(outputs) {
        match spec.shape.first() {
            Some(-1) => {}
            Some(1) if wanted == 1 => {}
            Some(axis) => {
                let name = &spec.name;
                return refuse(format!(
                    "the first axis of {kind} '{name}' is {axis}, not the batch"
                ));
            }
            None if kind == "output" => {}
            None => return refuse(format!("{kind} '{}' has no axis for the batch", spec.name)),
        }
    }
    let rest = |spec: &TensorSpec| TensorSpec {
        shape: spec.shape.iter().skip(1).copied().collect(),
        ..spec.clone()
    };
    let behind = Signature {
        max_batch: wanted,
        inputs: file.inputs.iter().map(rest).collect(),
        outputs: file.outputs.iter().map(rest).collect(),
        length: None,
    };
    Ok(behind.with_length_of(file))
}

/// The inputs or the outputs of the file.
struct Side<'a> {
    entry: &'a ModelEntry,
    kind: &'static str,
    specs: &'a [TensorSpec],
    batched: bool,
}

impl Side<'_> {
    /// The tensor that the configuration means: the file's, with those lengths that the configuration fixes.
    /// What the configuration leaves out is the file's.
    fn narrow(
        &self,
        name: &str,
        data_type: proto::DataType,
        dims: &[i64],
    ) -> Result<TensorSpec, RepositoryError> {
        let place = Place { file: &self.entry.config_file, kind: self.kind, name, number: 0 };
        let Some(spec) = self.specs.iter().find(|spec| spec.name == name) else {
            let known: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            return Err(place.refuse(
                "name",
                format!("the model has no such {}: {}", self.kind, known.join(", ")),
            ));
        };
        match config::datatype(data_type) {
            Some(datatype) if datatype != spec.datatype => {
                return Err(place.refuse(
                    "data_type",
                    format!(
                        "{}, but the model has {}",
                        data_type.as_str_name(),
                        config::data_type(spec.datatype).as_str_name()
                    ),
                ));
            }
            _ => {}
        }
        if dims.is_empty() {
            return Ok(spec.clone());
        }
        // Engines tell an output whose axes are unknown as one without axes.
        if self.kind == "output" && spec.shape.is_empty() {
            return Ok(TensorSpec { shape: dims.to_vec(), ..spec.clone() });
        }
        let fits = |(&dim, &axis): (&i64, &i64)| dim == axis || dim == -1 || axis == -1;
        if dims.len() != spec.shape.len() || !dims.iter().zip(&spec.shape).all(fits) {
            return Err(place.refuse(
                "dims",
                format!("{dims:?}, but the model has {}", self.shown(&spec.shape)),
            ));
        }
        let narrower = |(&dim, &axis): (&i64, &i64)| if axis == -1 { dim } else { axis };
        Ok(TensorSpec {
            shape: dims.iter().zip(&spec.shape).map(narrower).collect(),
            ..spec.clone()
        })
    }

    fn shown(&self, shape: &dyn Debug) -> String {
        match self.batched {
            true => format!("{shape:?} after the batch"),
            false => format!("{shape:?} (with max_batch_size 0, dims have all axes)"),
        }
    }
}

/// The configuration with everything that the file, or Triton's defaults, have to say.
fn complete(entry: &ModelEntry, signature: &Signature) -> proto::ModelConfig {
    let mut config = entry.config.clone().unwrap_or_default();
    config.name.clone_from(&entry.name);
    let (platform, backend) = match entry.settings.engine {
        EngineKind::Emulated(_) => ("emulated", "emulated"),
        EngineKind::OnnxRuntime => (config::ONNX_PLATFORM, config::ONNX_BACKEND),
    };
    for (field, value) in [(&mut config.platform, platform), (&mut config.backend, backend)] {
        if field.is_empty() {
            value.clone_into(field);
        }
    }
    if config.version_policy.is_none() {
        let latest = model_version_policy::Latest { num_versions: 1 };
        let policy_choice = Some(model_version_policy::PolicyChoice::Latest(latest));
        config.version_policy = Some(proto::ModelVersionPolicy { policy_choice });
    }
    if let (true, Some(file)) = (config.default_model_filename.is_empty(), entry.versions.last()) {
        let name = file.file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        config.default_model_filename = name.to_owned();
    }
    config.max_batch_size = i32::try_from(signature.max_batch).unwrap_or(i32::MAX);
    let written = std::mem::take(&mut config.input);
    let input = |spec: &TensorSpec| proto::ModelInput {
        name: spec.name.clone(),
        data_type: config::data_type(spec.datatype).into(),
        dims: spec.shape.clone(),
        ..written.iter().find(|input| input.name == spec.name).cloned().unwrap_or_default()
    };
    config.input = signature.inputs.iter().map(input).collect();
    let written = std::mem::take(&mut config.output);
    let output = |spec: &TensorSpec| proto::ModelOutput {
        name: spec.name.clone(),
        data_type: config::data_type(spec.datatype).into(),
        dims: spec.shape.clone(),
        ..written.iter().find(|output| output.name == spec.name).cloned().unwrap_or_default()
    };
    config.output = signature.outputs.iter().map(output).collect();
    config
}
