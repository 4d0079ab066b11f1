//! What the server and a worker say to each other: lines of JSON over a socket, and where batches lie in the memory that they share.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::provider::Tuning;
use crate::{Cut, DataType, Pressure, Signature};

/// What a worker is asked, with a number that the answer has too.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) id: u64,
    pub(super) what: Question,
}

/// What a worker can be asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// Read a model.
    Load { model: u32, file: PathBuf, threads: usize, memory: Option<u64> },
    /// Forget it, and give its memory back.
    Unload { model: u32 },
    /// Make it ready to run batches that lie in a region of shared memory; in this way and for these sizes, if they are known.
    Open {
        model: u32,
        signature: Signature,
        region: PathBuf,
        form: Form,
        known: Option<(Tuning, Grain)>,
    },
    /// Run the batch in a slot: `heads` for a model that is not captured, by item and input.
    Run { model: u32, slot: usize, size: usize, heads: Option<Vec<Vec<Head>>> },
    /// Make ready for a share, and take it, if so.
    Share { place: Place, takes: bool },
    /// How much memory is used.
    Memory,
    /// Press on what shares have in common.
    Press { what: Pressure, seconds: f64 },
}

/// Which share of which cut.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Multiprocessors of each share; `None` for the whole GPU.
    pub(super) counts: Option<Vec<u32>>,
    pub(super) part: usize,
}

impl Place {
    pub(super) fn of(cut: &Cut, part: usize) -> Self {
        let counts = (!cut.is_whole()).then(|| cut.multiprocessors().to_vec());
        Self { counts, part }
    }
}

/// What a worker answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) what: Result<Reply, Failure>,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It was done.
    Done,
    /// A model was read.
    Loaded { signature: Signature },
    /// A model is ready; captured in this way and for these sizes, or else to be run as it comes.
    Opened { captured: Option<(Tuning, Grain)> },
    /// A batch ran for so long. `heads` are those of its outputs, of a model that is not captured.
    Ran { ns: u64, heads: Option<Vec<Vec<Head>>> },
    /// Bytes.
    Memory { free: u64, total: u64 },
    /// Bytes a second.
    Pressed { rate: f64 },
}

/// Why not.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) reason: String,
}

/// A tensor but for its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) datatype: DataType,
    pub(super) shape: Vec<i64>,
    pub(super) bytes: usize,
}

/// Writes a line.
pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a line; `None` at the end.
pub(super) fn read<T: DeserializeOwned>(
    from: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> io::Result<Option<T>> {
    line.clear();
    if from.read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(line)?))
}

/// How batches lie in a region: some slots, each with room for the inputs of the largest batch and then for its outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Form {
    pub(super) slots: usize,
    /// The largest batch.
    pub(super) largest: usize,
    pub(super) inputs: Vec<Column>,
    pub(super) outputs: Vec<Column>,
    /// Bytes of a slot.
    pub(super) slot: usize,
}

/// One input or output of all items of a batch: one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Column {
    /// Where it begins in the slot.
    pub(super) at: usize,
    /// Bytes of one item.
    pub(super) item: usize,
}

/// Copies are fastest from and to a line of the device's memory.
const ALIGNMENT: usize = 256;
/// One batch runs, one is on its way in, one on its way out.
const SLOTS: usize = 3;
/// More are on their way in where they are short, which those of small models are. Where there is no slot, whoever begins a batch waits for one.
const SMALL_SLOTS: usize = 5;
const SMALL: usize = 1 << 20;
/// For models whose tensors have any shape: the memory is only taken when it is used.
const PLAIN_ROOM: usize = 256 << 20;

impl Form {
    /// Of a model all of whose items have the same number of bytes; `None` for others.
    pub(super) fn fixed(signature: &Signature) -> Option<Self> {
        let largest = signature.max_batch.max(1);
        let mut end = 0_usize;
        let mut columns = |specs: &[crate::TensorSpec]| {
            specs
                .iter()
                .map(|spec| {
                    let item =
                        crate::Tensor::elements(&spec.shape)?.checked_mul(spec.datatype.size()?)?;
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

    /// Of a model whose items differ: half of each slot for what goes in, half for what comes out.
    pub(super) fn plain(signature: &Signature) -> Self {
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
    pub(super) fn bytes(&self) -> usize {
        self.slots * self.slot
    }
}

/// The batch sizes that are captured: the next one is run for those between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Grain {
    /// Each costs memory and a few milliseconds. A step is at most a quarter of the size, and where the steps are largest, latency hardly grows with
    /// size.
    Fine,
    /// Each costs seconds, since kernels are compiled for it: the steps are those of sizes twice as large.
    Coarse,
}

impl Grain {
    /// The size at which a batch of so many is run.
    pub(super) fn size(self, size: usize, largest: usize) -> usize {
        let times = match self {
            Self::Fine => 1,
            Self::Coarse => 2,
        };
        let step = match times * size {
            0..=4 => 1,
            5..=8 => 2,
            9..=32 => 4,
            33..=64 => 8,
            _ => 16,
        };
        size.next_multiple_of(step).min(largest.max(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorSpec;

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

    #[test]
    fn a_batch_runs_at_the_next_captured_size() {
        let captured = [1, 3, 5, 7, 9, 30, 33, 60, 65].map(|size| Grain::Fine.size(size, 128));
        assert_eq!(captured, [1, 3, 6, 8, 12, 32, 40, 64, 80]);
        let few = |size: &usize| Grain::Coarse.size(*size, 64) == *size;
        assert_eq!((1..=64).filter(few).collect::<Vec<_>>(), [1, 2, 4, 8, 12, 16, 24, 32, 48, 64]);
        for grain in [Grain::Fine, Grain::Coarse] {
            assert_eq!(grain.size(30, 31), 31);
            for size in 1..=128 {
                let captured = grain.size(size, 128);
                assert!(captured >= size && grain.size(captured, 128) == captured);
            }
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut wire = Vec::new();
        let place = Place { counts: Some(vec![64, 68]), part: 1 };
        let what = Question::Share { place, takes: true };
        write(&mut wire, &Ask { id: 7, what }).unwrap();
        let mut from = wire.as_slice();
        let mut line = Vec::new();
        let ask: Ask = read(&mut from, &mut line).unwrap().unwrap();
        let part = |what| matches!(what, Question::Share { place: Place { part: 1, .. }, .. });
        assert!(ask.id == 7 && part(ask.what));
        assert!(read::<Ask>(&mut from, &mut line).unwrap().is_none());
        read::<Ask>(&mut &b"nonsense\n"[..], &mut line).unwrap_err();
        let mut wire = Vec::new();
        let captured = Some((Tuning::default(), Grain::Coarse));
        write(&mut wire, &Answer { id: 8, what: Ok(Reply::Opened { captured }) }).unwrap();
        let answer: Answer = read(&mut wire.as_slice(), &mut line).unwrap().unwrap();
        assert!(matches!(answer.what, Ok(Reply::Opened { captured: found }) if found == captured));
    }
}
