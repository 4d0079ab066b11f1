//! Tensors in shared memory: written once, named in every request, so that only names go over the
//! network.
//!
//! One object holds the inputs of all requests, and room for their outputs if those are wanted
//! there too. It has a name only until the server has opened it, so that nothing is left behind
//! whatever happens to this process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use fermata_engine::TensorSpec;
use fermata_files::InputError;
use fermata_protocol::proto;
use rustix::shm;
use serde_json::json;

use super::args::Passed;
use super::draw::Drawn;
use crate::client::{CallError, Protocol, Target, grpc, http};

/// How long a server may take to open a region, or to forget it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Tensors begin where cache lines do.
const ALIGNED: u64 = 64;
/// More than this is a slip of the keyboard.
const BYTES_MAX: u64 = 8 << 30;

/// A part of the region with one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Where the tensors of one request are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) inputs: Vec<Place>,
    /// Empty, if they are in the answer.
    pub(super) outputs: Vec<Place>,
}

/// A region that a server was told of.
#[derive(Debug)]
pub(super) struct Region {
    /// By which requests name it.
    pub(super) name: String,
    target: Target,
    /// By model and variant.
    places: Vec<Vec<Places>>,
}

impl Region {
    /// Puts all requests into shared memory and tells the server of it.
    pub(super) async fn register(
        target: &Target,
        drawn: &[Drawn<'_>],
        passed: Passed,
    ) -> Result<Self, InputError> {
        let (places, bytes) = lay_out(drawn, passed).map_err(refuse)?;
        let name = format!("fermata-load-{}", std::process::id());
        let key = format!("/{name}");
        let cannot = |error: &dyn std::fmt::Display| refuse(format!("'{key}': {error}"));
        let flags = shm::OFlags::CREATE | shm::OFlags::EXCL | shm::OFlags::RDWR;
        let object = shm::open(&key, flags, shm::Mode::RUSR | shm::Mode::WUSR);
        let file = File::from(object.map_err(|error| cannot(&error))?);
        let written = fill(&file, bytes, drawn, &places);
        let registered = match written {
            Ok(()) => tell(target, &name, Some((&key, bytes)))
                .await
                .map_err(|error| refuse(error.at(target))),
            Err(error) => Err(cannot(&error)),
        };
        // The server has it open by now, and nobody else needs its name.
        let _ = shm::unlink(&key);
        registered.map(|()| Self { name, target: target.clone(), places })
    }

    /// Where the tensors of a request are.
    pub(super) fn places(&self, model: usize, variant: usize) -> &Places {
        &self.places[model][variant]
    }

    /// Tells the server that it is not needed any more. A server that is gone has forgotten it
    /// anyway.
    pub(super) async fn unregister(&self) {
        let _ = tell(&self.target, &self.name, None).await;
    }
}

/// Tells the server of a region: its key and size, or that it is to be forgotten.
async fn tell(target: &Target, name: &str, region: Option<(&str, u64)>) -> Result<(), CallError> {
    let name = name.to_owned();
    match (target.protocol, region) {
        (Protocol::Http, region) => {
            let (verb, body) = match region {
                Some((key, bytes)) => {
                    ("register", json!({ "key": key, "offset": 0, "byte_size": bytes }).to_string())
                }
                None => ("unregister", String::new()),
            };
            let path = format!("/v2/systemsharedmemory/region/{}/{verb}", http::escape(&name));
            http::call(target, "POST", &path, &body, PATIENCE).await.map(drop)
        }
        (Protocol::Grpc, Some((key, byte_size))) => {
            let key = key.to_owned();
            let request =
                proto::SystemSharedMemoryRegisterRequest { name, key, offset: 0, byte_size };
            let call = grpc::call::<proto::SystemSharedMemoryRegisterResponse>(
                target,
                "SystemSharedMemoryRegister",
                &request,
            );
            patiently(call).await.map(drop)
        }
        (Protocol::Grpc, None) => {
            let request = proto::SystemSharedMemoryUnregisterRequest { name };
            let call = grpc::call::<proto::SystemSharedMemoryUnregisterResponse>(
                target,
                "SystemSharedMemoryUnregister",
                &request,
            );
            patiently(call).await.map(drop)
        }
    }
}

async fn patiently<T>(call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let answer = tokio::time::timeout(PATIENCE, call).await;
    answer.unwrap_or_else(|_| {
        Err(CallError::Unreachable(format!("no answer within {} s", PATIENCE.as_secs())))
    })
}

/// Where everything goes, and how large the region is.
fn lay_out(drawn: &[Drawn<'_>], passed: Passed) -> Result<(Vec<Vec<Places>>, u64), String> {
    let mut end = 0_u64;
    let mut place = |bytes: u64| {
        let offset = end;
        end = (end + bytes).next_multiple_of(ALIGNED);
        Place { offset, bytes }
    };
    let mut places = Vec::new();
    for model in drawn {
        let outputs: Vec<u64> = match passed {
            Passed::Inputs => Vec::new(),
            Passed::Outputs => model
                .outputs
                .iter()
                .map(|spec| room(spec, model.batch))
                .collect::<Result<_, String>>()?,
        };
        let request = |inputs: &Vec<super::draw::Input<'_>>| Places {
            inputs: inputs.iter().map(|input| place(input.tensor.data.len() as u64)).collect(),
            outputs: outputs.iter().map(|&bytes| place(bytes)).collect(),
        };
        places.push(model.variants.iter().map(request).collect());
    }
    match end {
        0..=BYTES_MAX => Ok((places, end.max(1))),
        _ => Err(format!("{end} bytes are more than {BYTES_MAX}")),
    }
}

/// How much room an output needs.
fn room(spec: &TensorSpec, batch: i64) -> Result<u64, String> {
    let refuse = |why: &str| format!("output '{}' {why}, so nobody knows its size", spec.name);
    let size = spec.datatype.size().ok_or_else(|| refuse("is of strings"))?;
    let mut shape = spec.shape.clone();
    if let Some(first) = shape.first_mut().filter(|first| **first < 0) {
        *first = batch;
    }
    if shape.iter().any(|&axis| axis < 0) {
        return Err(refuse("has a free axis"));
    }
    let elements =
        fermata_engine::Tensor::elements(&shape).ok_or_else(|| refuse("is too large"))?;
    Ok(elements as u64 * size as u64)
}

fn fill(
    file: &File,
    bytes: u64,
    drawn: &[Drawn<'_>],
    places: &[Vec<Places>],
) -> std::io::Result<()> {
    file.set_len(bytes)?;
    for (model, places) in drawn.iter().zip(places) {
        for (inputs, places) in model.variants.iter().zip(places) {
            for (input, place) in inputs.iter().zip(&places.inputs) {
                file.write_all_at(&input.tensor.data, place.offset)?;
            }
        }
    }
    Ok(())
}

fn refuse(reason: String) -> InputError {
    InputError::Argument { name: "--shared-memory", reason }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fermata_engine::{DataType, Tensor};

    use super::*;
    use crate::draw::Input;

    fn spec(shape: &[i64], datatype: DataType) -> TensorSpec {
        TensorSpec { name: "y".to_owned(), datatype, shape: shape.to_vec() }
    }

    #[test]
    fn tensors_do_not_overlap_and_begin_where_cache_lines_do() {
        let input = |bytes: usize| Input {
            name: "x",
            tensor: Tensor {
                datatype: DataType::Uint8,
                shape: vec![bytes as i64],
                data: Bytes::from(vec![0; bytes]),
            },
        };
        let outputs = [spec(&[-1, 10], DataType::Fp32)];
        let model = |sizes: &[usize]| Drawn {
            variants: sizes.iter().map(|&size| vec![input(size), input(1)]).collect(),
            outputs: &outputs,
            batch: 2,
        };
        let drawn = [model(&[100, 64]), model(&[3])];
        let (places, bytes) = lay_out(&drawn, Passed::Outputs).unwrap();
        let mut all: Vec<Place> = Vec::new();
        for request in places.iter().flatten() {
            all.extend(request.inputs.iter().chain(&request.outputs));
        }
        assert_eq!(all.len(), 9);
        assert!(all.windows(2).all(|pair| pair[0].offset + pair[0].bytes <= pair[1].offset));
        assert!(all.iter().all(|place| place.offset % ALIGNED == 0));
        assert!(all.iter().all(|place| place.offset + place.bytes <= bytes));
        assert_eq!(places[0][0].outputs[0].bytes, 80);
        let (places, _) = lay_out(&drawn, Passed::Inputs).unwrap();
        assert!(places[1][0].outputs.is_empty());
    }

    #[test]
    fn outputs_of_unknown_size_are_refused() {
        assert_eq!(room(&spec(&[-1, 3], DataType::Fp16), 4), Ok(24));
        assert_eq!(room(&spec(&[], DataType::Fp64), 4), Ok(8));
        assert!(room(&spec(&[-1, -1], DataType::Fp16), 4).unwrap_err().contains("free axis"));
        assert!(room(&spec(&[-1], DataType::Bytes), 4).unwrap_err().contains("strings"));
        assert!(room(&spec(&[i64::MAX, 9], DataType::Fp16), 4).unwrap_err().contains("too large"));
    }
}
