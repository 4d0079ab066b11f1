//! What the tests share: the engine, models by name, tensors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fermata_engine::{
    DataType, Engine, EngineError, Inputs, Model, OnnxRuntime, Outputs, Session, Source, Tensor,
};

/// The root of the workspace, where `make setup` puts `.fermata`.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A model that `make setup` fetches.
pub(crate) fn fetched(name: &str) -> PathBuf {
    root().join(".fermata/models").join(name)
}

/// A model in the folder of the tests.
pub(crate) fn small(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

pub(crate) fn load(file: PathBuf) -> Result<Arc<dyn Model>, EngineError> {
    let engine = OnnxRuntime::new([root().join(".fermata/lib")]).unwrap_or_else(|e| panic!("{e}"));
    engine.load(&Source { file, threads: 1, memory: None })
}

/// A session with the signature of the file.
pub(crate) fn session(file: PathBuf) -> Box<dyn Session> {
    let model = load(file).expect("the model can be read");
    model.session(model.signature()).expect("its own signature fits")
}

pub(crate) fn tensor(datatype: DataType, shape: &[i64], data: impl Into<Bytes>) -> Tensor {
    Tensor { datatype, shape: shape.to_vec(), data: data.into() }
}

pub(crate) fn floats(shape: &[i64], values: impl IntoIterator<Item = f32>) -> Tensor {
    let data: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
    tensor(DataType::Fp32, shape, data)
}

pub(crate) fn integers(shape: &[i64], values: &[i64]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(DataType::Int64, shape, data)
}

pub(crate) fn strings(shape: &[i64], strings: &[&[u8]]) -> Tensor {
    let prefixed = |string: &&[u8]| [&(string.len() as u32).to_le_bytes(), *string].concat();
    tensor(DataType::Bytes, shape, strings.iter().flat_map(prefixed).collect::<Vec<u8>>())
}

pub(crate) fn as_floats(tensor: &Tensor) -> Vec<f32> {
    assert_eq!(tensor.datatype, DataType::Fp32);
    let (values, rest) = tensor.data.as_chunks();
    assert!(rest.is_empty());
    values.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// Runs each item by itself.
pub(crate) fn one_by_one(session: &mut dyn Session, batch: &[Inputs]) -> Vec<Outputs> {
    batch
        .iter()
        .flat_map(|item| session.run(std::slice::from_ref(item)).expect("it runs"))
        .collect()
}
