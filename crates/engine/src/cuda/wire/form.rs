//! Where batches lie in the memory that the server and a worker share.

use serde::{Deserialize, Serialize};

use crate::{Signature, Tensor, TensorSpec};

/// The layout of a region: slots, each with room for the inputs of the largest batch, followed by
/// room for its outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Form {
    pub(crate) slots: usize,
    /// The largest batch.
    pub(crate) largest: usize,
    pub(crate) inputs: Vec<Column>,
    pub(crate) outputs: Vec<Column>,
    /// Bytes of a slot.
    pub(crate) slot: usize,
}

/// One input or output of a batch, item after item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Column {
    /// Where it begins in the slot.
    pub(crate) at: usize,
    /// Bytes of one item.
    pub(crate) item: usize,
}

/// Copies are fastest from and to a whole line of the device's memory.
const ALIGNMENT: usize = 256;
/// One batch runs, one is on its way in, and one on its way out.
const SLOTS: usize = 3;
/// Batches of small models run so briefly that more of them are on their way in. If no slot is
/// free, beginning a batch waits for one.
const SMALL_SLOTS: usize = 5;
const SMALL: usize = 1 << 20;
/// For models whose tensors can have any shape. The kernel provides the memory only when it is
/// touched.
const PLAIN_ROOM: usize = 256 << 20;

impl Form {
    /// The layout for a model whose items all have the same number of bytes; `None` for any other.
    pub(crate) fn fixed(signature: &Signature) -> Option<Self> {
        let largest = signature.max_batch.max(1);
        let mut end = 0_usize;
        let mut columns = |specs: &[TensorSpec]| {
            specs
                .iter()
                .map(|spec| {
                    let item = Tensor::elements(&spec.shape)?.checked_mul(spec.datatype.size()?)?;
                    let at = end;
                    end = end.checked_add(item.checked_mul(largest)?)?;
                    end = end.checked_next_multiple_of(ALIGNMENT)?;
                    (item > 0).then_some(Column { at, item })
                })
                .collect::<Option<Vec<Column>>>()
        };
        let (inputs, outputs) = (columns(&signature.inputs)?, columns(&signature.outputs)?);
        let slots = if end <= SMALL { SMALL_SLOTS } else { SLOTS };
        Some(Self { slots, largest, inputs, outputs, slot: end })
    }

    /// The layout for a model whose items differ: half of each slot for inputs, half for outputs.
    pub(crate) fn plain(signature: &Signature) -> Self {
        let half = PLAIN_ROOM / 2;
        let [inputs, outputs] = [0, half].map(|at| vec![Column { at, item: half }]);
        Self {
            slots: SLOTS,
            largest: signature.max_batch.max(1),
            inputs,
            outputs,
            slot: PLAIN_ROOM,
        }
    }

    /// Bytes of the whole region.
    pub(crate) fn bytes(&self) -> usize {
        self.slots * self.slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataType;

    fn signature(max_batch: usize, shapes: &[(DataType, &[i64])]) -> Signature {
        let spec = |&(datatype, shape): &(DataType, &[i64])| TensorSpec {
            name: "x".to_owned(),
            datatype,
            shape: shape.to_vec(),
        };
        let inputs: Vec<TensorSpec> = shapes.iter().map(spec).collect();
        Signature { max_batch, outputs: inputs[..1].to_vec(), inputs, length: None }
    }

    #[test]
    fn columns_do_not_overlap_and_are_aligned() {
        let signature = signature(
            3,
            &[(DataType::Uint8, &[5, 7]), (DataType::Fp16, &[]), (DataType::Int64, &[9])],
        );
        let form = Form::fixed(&signature).unwrap();
        assert_eq!(form.inputs[0], Column { at: 0, item: 35 });
        assert_eq!(form.inputs[1], Column { at: 256, item: 2 });
        assert_eq!(form.inputs[2], Column { at: 512, item: 72 });
        assert_eq!(form.outputs, [Column { at: 768, item: 35 }]);
        assert_eq!((form.slot, form.bytes()), (1024, SMALL_SLOTS * 1024));
        let large = self::signature(8, &[(DataType::Uint8, &[224, 224, 3])]);
        assert_eq!(Form::fixed(&large).unwrap().slots, SLOTS);
    }

    #[test]
    fn models_of_any_shape_or_of_strings_have_no_fixed_form() {
        assert_eq!(Form::fixed(&signature(4, &[(DataType::Fp32, &[-1])])), None);
        assert_eq!(Form::fixed(&signature(4, &[(DataType::Bytes, &[1])])), None);
        assert_eq!(Form::fixed(&signature(4, &[(DataType::Fp32, &[i64::MAX, 3])])), None);
        assert_eq!(Form::fixed(&signature(0, &[(DataType::Fp32, &[2])])).unwrap().largest, 1);
    }
}
