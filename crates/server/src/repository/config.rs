//! What a `config.pbtxt` means: which of its fields are served, which are refused, and which are not needed.

use std::collections::BTreeSet;
use std::path::Path;

use fermata_engine::DataType;
use fermata_protocol::proto::{self, model_config::SchedulingChoice, model_instance_group::Kind};

use super::error::RepositoryError;
use super::note::Note;
use super::settings::Device;

/// The platform of ONNX models, as Triton names it.
pub(super) const ONNX_PLATFORM: &str = "onnxruntime_onnx";
/// The backend of ONNX models, as Triton names it.
pub(super) const ONNX_BACKEND: &str = "onnxruntime";

/// Checks the configuration of the model `name` by itself, and says what of it is not needed.
pub(super) fn check(
    config: &proto::ModelConfig,
    file: &Path,
    name: &str,
) -> Result<Vec<Note>, RepositoryError> {
    let refuse = |key: &str, reason: String| Err(RepositoryError::key(file, key, reason));
    if !config.name.is_empty() && config.name != name {
        return refuse(
            "name",
            format!("'{}' is not the name of its folder, '{name}'", config.name),
        );
    }
    if config.max_batch_size < 0 {
        return refuse("max_batch_size", format!("{} is below 0", config.max_batch_size));
    }
    if let Some((key, reason)) = unsupported(config) {
        return refuse(key, format!("is not supported: {reason}"));
    }
    check_inputs(&config.input, file)?;
    check_outputs(&config.output, file)?;
    Ok(notes(config))
}

/// Refuses a model of another framework.
pub(super) fn check_platform(
    config: &proto::ModelConfig,
    file: &Path,
) -> Result<(), RepositoryError> {
    for (key, value, known) in
        [("platform", &config.platform, ONNX_PLATFORM), ("backend", &config.backend, ONNX_BACKEND)]
    {
        if !value.is_empty() && value != known {
            let reason = format!(
                "'{value}' is not supported: ONNX models are (platform \"{ONNX_PLATFORM}\", backend \"{ONNX_BACKEND}\")"
            );
            return Err(RepositoryError::key(file, key, reason));
        }
    }
    Ok(())
}

/// The type that a configuration names; `None` if it names none.
pub(super) fn datatype(value: proto::DataType) -> Option<DataType> {
    match value {
        proto::DataType::TypeInvalid => None,
        proto::DataType::TypeString => Some(DataType::Bytes),
        other => DataType::from_name(other.as_str_name().strip_prefix("TYPE_")?),
    }
}

/// The same type in a configuration.
pub(super) fn data_type(value: DataType) -> proto::DataType {
    let name = match value {
        DataType::Bytes => "TYPE_STRING".to_owned(),
        other => format!("TYPE_{}", other.name()),
    };
    proto::DataType::from_str_name(&name).expect("the protocol has every type of an engine")
}

/// The first field that changes what the model computes, or how it is asked, in a way that is not served.
fn unsupported(config: &proto::ModelConfig) -> Option<(&'static str, &'static str)> {
    let decoupled = config.model_transaction_policy.as_ref().is_some_and(|policy| policy.decoupled);
    let agents =
        config.model_repository_agents.as_ref().is_some_and(|agents| !agents.agents.is_empty());
    let operations = config
        .model_operations
        .as_ref()
        .is_some_and(|operations| !operations.op_library_filename.is_empty());
    match &config.scheduling_choice {
        Some(SchedulingChoice::EnsembleScheduling(_)) => {
            return Some(("ensemble_scheduling", "ask for the models of an ensemble one by one"));
        }
        Some(SchedulingChoice::SequenceBatching(_)) => {
            return Some((
                "sequence_batching",
                "every request is answered by itself, without state",
            ));
        }
        Some(SchedulingChoice::DynamicBatching(_)) | None => {}
    }
    if decoupled {
        return Some(("model_transaction_policy.decoupled", "every request has one response"));
    }
    if !config.batch_input.is_empty() {
        return Some(("batch_input", "ragged batches are not formed"));
    }
    if !config.batch_output.is_empty() {
        return Some(("batch_output", "ragged batches are not formed"));
    }
    if operations {
        return Some(("model_operations", "libraries of custom operators are not loaded"));
    }
    agents.then_some(("model_repository_agents", "models are read as they are"))
}

fn check_inputs(inputs: &[proto::ModelInput], file: &Path) -> Result<(), RepositoryError> {
    let mut names = BTreeSet::new();
    for (number, input) in (1..).zip(inputs) {
        let place = Place { file, kind: "input", name: &input.name, number };
        place.check_name(&mut names)?;
        place.check_dims(&input.dims)?;
        place.check_reshape(input.reshape.as_ref())?;
        for (set, key) in [
            (input.allow_ragged_batch, "allow_ragged_batch"),
            (input.is_shape_tensor, "is_shape_tensor"),
            (input.is_non_linear_format_io, "is_non_linear_format_io"),
        ] {
            place.check_unset(set, key)?;
        }
    }
    Ok(())
}

fn check_outputs(outputs: &[proto::ModelOutput], file: &Path) -> Result<(), RepositoryError> {
    let mut names = BTreeSet::new();
    for (number, output) in (1..).zip(outputs) {
        let place = Place { file, kind: "output", name: &output.name, number };
        place.check_name(&mut names)?;
        place.check_dims(&output.dims)?;
        place.check_reshape(output.reshape.as_ref())?;
        for (set, key) in [
            (output.is_shape_tensor, "is_shape_tensor"),
            (output.is_non_linear_format_io, "is_non_linear_format_io"),
        ] {
            place.check_unset(set, key)?;
        }
    }
    Ok(())
}

/// One input or output of the file.
pub(super) struct Place<'a> {
    pub(super) file: &'a Path,
    /// `input` or `output`.
    pub(super) kind: &'static str,
    pub(super) name: &'a str,
    /// From 1, for one without a name.
    pub(super) number: usize,
}

impl<'a> Place<'a> {
    pub(super) fn refuse(&self, key: &str, reason: impl Into<String>) -> RepositoryError {
        let Self { file, kind, name, number } = self;
        let key = match name.is_empty() {
            true => format!("{kind} {number}: {key}"),
            false => format!("{kind} '{name}': {key}"),
        };
        RepositoryError::key(file, key, reason)
    }

    pub(super) fn check_name(&self, names: &mut BTreeSet<&'a str>) -> Result<(), RepositoryError> {
        if self.name.is_empty() {
            return Err(self.refuse("name", "missing"));
        }
        if self.name.contains(char::is_control) {
            return Err(RepositoryError::key(
                self.file,
                format!("{} {}", self.kind, self.number),
                "name: is not a word in one line",
            ));
        }
        if !names.insert(self.name) {
            return Err(self.refuse("name", format!("two {}s have it", self.kind)));
        }
        Ok(())
    }

    pub(super) fn check_dims(&self, dims: &[i64]) -> Result<(), RepositoryError> {
        match dims.iter().find(|&&dim| dim != -1 && dim < 1) {
            Some(dim) => {
                Err(self.refuse("dims", format!("{dim} is neither -1 (any length) nor above 0")))
            }
            None => Ok(()),
        }
    }

    fn check_reshape(
        &self,
        reshape: Option<&proto::ModelTensorReshape>,
    ) -> Result<(), RepositoryError> {
        match reshape {
            Some(_) => {
                Err(self.refuse("reshape", "is not supported: give the dims that the model has"))
            }
            None => Ok(()),
        }
    }

    fn check_unset(&self, set: bool, key: &str) -> Result<(), RepositoryError> {
        match set {
            true => Err(self.refuse(key, "is not supported")),
            false => Ok(()),
        }
    }
}

/// What the model is to run on, where all its instances are to be on the processors. That they may be on GPUs says nothing: they are
/// wherever there is one.
pub(super) fn device(config: &proto::ModelConfig) -> Option<Device> {
    let groups = &config.instance_group;
    let on_cpu = groups.iter().all(|group| group.kind() == Kind::Cpu);
    (on_cpu && !groups.is_empty()).then_some(Device::Cpu)
}

/// Everything that has no effect. Sizes, counts and queues are what Triton needs to be told; here they follow
/// from profile and SLO.
fn notes(config: &proto::ModelConfig) -> Vec<Note> {
    let batching = matches!(config.scheduling_choice, Some(SchedulingChoice::DynamicBatching(_)));
    let cached = config.response_cache.as_ref().is_some_and(|cache| cache.enable);
    let fields = [
        (batching, "dynamic_batching", "not needed: batches follow from the profile and the SLO"),
        (
            !config.instance_group.is_empty(),
            "instance_group",
            match device(config) {
                Some(_) => "runs on the processors; counts are not needed",
                None => "not needed: the server's executors run every model",
            },
        ),
        (
            config.instance_group.iter().any(|group| group.rate_limiter.is_some()),
            "instance_group.rate_limiter",
            "not needed: an executor runs one batch at a time",
        ),
        (
            config.optimization.is_some(),
            "optimization",
            "not needed: the engine optimizes every model it loads",
        ),
        (
            !config.model_warmup.is_empty(),
            "model_warmup",
            "not needed: every batch size is run before the model is ready",
        ),
        (cached, "response_cache", "not used: answers are not kept"),
        (
            config.model_metrics.is_some(),
            "model_metrics",
            "not needed: histograms have an edge at the SLO",
        ),
        (!config.metric_tags.is_empty(), "metric_tags", "not used"),
        (
            !config.cc_model_filenames.is_empty(),
            "cc_model_filenames",
            "not used: every version has one file",
        ),
        (!config.runtime.is_empty(), "runtime", "not used: the server has its own"),
    ];
    let fields = fields.into_iter().filter(|(given, ..)| *given);
    let mut notes: Vec<Note> = fields.map(|(_, field, reason)| Note::new(field, reason)).collect();
    let parameters: BTreeSet<&String> = config.parameters.keys().collect();
    notes.extend(parameters.into_iter().map(|key| {
        Note::new(
            format!("parameters '{}'", key.escape_default()),
            "not used: threads are the server's",
        )
    }));
    let optional = config.input.iter().filter(|input| input.optional);
    notes.extend(optional.map(|input| {
        Note::new(format!("input '{}': optional", input.name), "not used: a request must have it")
    }));
    notes
}

#[cfg(test)]
mod tests {
    use super::super::format::from_text;
    use super::*;

    fn checked(text: &str) -> Result<Vec<Note>, String> {
        let file = Path::new("config.pbtxt");
        let config = from_text(file, text).unwrap();
        check_platform(&config, file)
            .and_then(|()| check(&config, file, "m"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_served_is_refused_by_field() {
        for (text, reason) in [
            ("name: 'n'", "name: 'n' is not the name of its folder, 'm'"),
            ("max_batch_size: -1", "max_batch_size: -1 is below 0"),
            (
                "platform: 'tensorrt_plan'",
                "platform: 'tensorrt_plan' is not supported: ONNX models are",
            ),
            ("backend: 'python'", "backend: 'python' is not supported"),
            ("ensemble_scheduling { }", "ensemble_scheduling: is not supported"),
            ("sequence_batching { }", "sequence_batching: is not supported"),
            (
                "model_transaction_policy { decoupled: true }",
                "model_transaction_policy.decoupled: is not supported",
            ),
            ("input { data_type: TYPE_FP32 }", "input 1: name: missing"),
            ("input { name: 'x' } input { name: 'x' }", "input 'x': name: two inputs have it"),
            ("input { name: 'x' dims: [ 0 ] }", "input 'x': dims: 0 is neither -1"),
            ("output { name: 'x' dims: [ -2 ] }", "output 'x': dims: -2 is neither -1"),
            ("output { name: 'x' reshape { shape: [] } }", "output 'x': reshape: is not supported"),
            (
                "input { name: 'x' allow_ragged_batch: true }",
                "input 'x': allow_ragged_batch: is not supported",
            ),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_not_needed_is_noted() {
        let text = "name: 'm' dynamic_batching { } instance_group { rate_limiter { priority: 1 } } optimization { }
            model_warmup { name: 'w' } response_cache { enable: true } parameters { key: 'b' } parameters { key: 'a' }
            input { name: 'x' optional: true }";
        let fields: Vec<String> =
            checked(text).unwrap().into_iter().map(|note| note.field).collect();
        let expected = [
            "dynamic_batching",
            "instance_group",
            "instance_group.rate_limiter",
            "optimization",
            "model_warmup",
            "response_cache",
            "parameters 'a'",
            "parameters 'b'",
            "input 'x': optional",
        ];
        assert_eq!(fields, expected);
        assert_eq!(checked("model_transaction_policy { } response_cache { }").unwrap(), []);
    }

    #[test]
    fn types_have_the_same_names_both_ways() {
        for known in DataType::ALL {
            assert_eq!(datatype(data_type(known)), Some(known));
        }
        assert_eq!(datatype(proto::DataType::TypeInvalid), None);
    }
}
