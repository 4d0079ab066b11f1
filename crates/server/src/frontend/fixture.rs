//! Models to check requests against, for tests.

use std::collections::BTreeMap;

use fermata_engine::{DataType, Length, Padding, Signature, TensorSpec};

use super::check::Model;
use crate::kinds::Tags;

/// A signature and its labels, to be viewed as a model `m`.
pub(crate) struct Fixture {
    signature: Signature,
    labels: BTreeMap<String, Vec<String>>,
    tags: Tags,
}

impl Fixture {
    /// Inputs `IN` of FP32 and `TEXT` of BYTES, outputs `OUT` and `TEXT_OUT` of the same; batches
    /// to 8.
    pub(crate) fn batched() -> Self {
        let tensor = |name: &str, datatype, shape: &[i64]| TensorSpec {
            name: name.to_owned(),
            datatype,
            shape: shape.to_vec(),
        };
        let signature = Signature {
            max_batch: 8,
            inputs: vec![
                tensor("IN", DataType::Fp32, &[2]),
                tensor("TEXT", DataType::Bytes, &[-1]),
            ],
            outputs: vec![
                tensor("OUT", DataType::Fp32, &[2]),
                tensor("TEXT_OUT", DataType::Bytes, &[-1]),
            ],
            length: None,
        };
        Self { signature, labels: BTreeMap::new(), tags: Tags::default() }
    }

    /// The input `IN` of a model without a batch axis, FP32[2].
    pub(crate) fn unbatched() -> Self {
        let mut fixture = Self::batched();
        fixture.signature.max_batch = 0;
        fixture.signature.inputs.truncate(1);
        fixture
    }

    /// One input `IN` and one output `OUT`, both of this datatype and any length, without a batch
    /// axis.
    pub(crate) fn of(datatype: DataType) -> Self {
        let mut fixture = Self::unbatched();
        fixture.signature.outputs.truncate(1);
        for spec in fixture.signature.inputs.iter_mut().chain(&mut fixture.signature.outputs) {
            spec.datatype = datatype;
            spec.shape = vec![-1];
        }
        fixture
    }

    /// Inputs `ids` and `mask` of INT64, equally long and up to 8; batches to 8.
    pub(crate) fn encoder() -> Self {
        let mut fixture = Self::of(DataType::Int64);
        let inputs = &mut fixture.signature.inputs;
        inputs.push(inputs[0].clone());
        for (spec, name) in inputs.iter_mut().zip(["ids", "mask"]) {
            name.clone_into(&mut spec.name);
        }
        fixture.signature.max_batch = 8;
        fixture.signature.length = Some(Length {
            inputs: vec![Some(0), Some(0)],
            outputs: vec![Some(0)],
            longest: 8,
            padding: Some(Padding { fill: vec![0, 0] }),
        });
        fixture
    }

    pub(crate) fn model(&self) -> Model<'_> {
        let Self { signature, labels, tags } = self;
        Model { name: "m", signature, labels, tags }
    }
}
