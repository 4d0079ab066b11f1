//! What the server and a worker send each other: lines of JSON over a socket.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::form::Form;
use super::granularity::Granularity;
use super::tuning::Tuning;
use crate::{Cut, DataType, Pressure, Signature};

/// A question to a worker, with a number that its answer repeats.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) id: u64,
    pub(crate) what: Question,
}

/// What a worker can be asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Read a model.
    Load { model: u32, file: PathBuf, threads: usize, memory: Option<u64> },
    /// Forget a model and free its memory.
    Unload { model: u32 },
    /// Make a model ready to run batches that lie in a region of shared memory. `known` is the
    /// tuning and the sizes to capture, if another seat has found them.
    Open {
        model: u32,
        signature: Signature,
        region: PathBuf,
        form: Form,
        known: Option<(Tuning, Granularity)>,
    },
    /// Run the batch in a slot. For a model that is not captured, `heads` describes each item's
    /// inputs.
    Run { model: u32, slot: usize, size: usize, heads: Option<Vec<Vec<Head>>> },
    /// Prepare a share, and take it if `takes` is set.
    Share { place: SharePlace, takes: bool },
    /// Report how much memory is used.
    Memory,
    /// Keep what the shares of a GPU have in common busy.
    Press { what: Pressure, seconds: f64 },
}

/// A share of a cut.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharePlace {
    /// Multiprocessors of each share; `None` for the whole GPU.
    pub(crate) counts: Option<Vec<u32>>,
    pub(crate) part: usize,
}

impl SharePlace {
    pub(crate) fn of(cut: &Cut, part: usize) -> Self {
        let counts = (!cut.is_whole()).then(|| cut.multiprocessors().to_vec());
        Self { counts, part }
    }
}

/// An answer to the question with the same number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) what: Result<Reply, Failure>,
}

/// The answers of a worker that did what it was asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It was done.
    Done,
    /// A model was read.
    Loaded { signature: Signature },
    /// The model is ready. `captured` is its tuning and the captured sizes; without it, the model
    /// runs uncaptured.
    Opened { captured: Option<(Tuning, Granularity)> },
    /// The batch took `ns` nanoseconds. For a model that is not captured, `heads` describes each
    /// item's outputs.
    Ran { ns: u64, heads: Option<Vec<Vec<Head>>> },
    /// Bytes of the GPU's memory.
    Memory { free: u64, total: u64 },
    /// Bytes per second.
    Pressed { rate: f64 },
}

/// Why a worker could not do what it was asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) reason: String,
}

/// A tensor without its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) datatype: DataType,
    pub(crate) shape: Vec<i64>,
    pub(crate) bytes: usize,
}

/// Writes a message as a line.
pub(crate) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a message; `None` at the end.
pub(crate) fn read<T: DeserializeOwned>(
    from: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> io::Result<Option<T>> {
    line.clear();
    if from.read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut wire = Vec::new();
        let place = SharePlace { counts: Some(vec![64, 68]), part: 1 };
        let what = Question::Share { place, takes: true };
        write(&mut wire, &Ask { id: 7, what }).unwrap();
        let mut from = wire.as_slice();
        let mut line = Vec::new();
        let ask: Ask = read(&mut from, &mut line).unwrap().unwrap();
        let part = |what| matches!(what, Question::Share { place: SharePlace { part: 1, .. }, .. });
        assert!(ask.id == 7 && part(ask.what));
        assert!(read::<Ask>(&mut from, &mut line).unwrap().is_none());
        read::<Ask>(&mut &b"nonsense\n"[..], &mut line).unwrap_err();
        let mut wire = Vec::new();
        let captured = Some((Tuning::default(), Granularity::Coarse));
        write(&mut wire, &Answer { id: 8, what: Ok(Reply::Opened { captured }) }).unwrap();
        let answer: Answer = read(&mut wire.as_slice(), &mut line).unwrap().unwrap();
        assert!(matches!(answer.what, Ok(Reply::Opened { captured: found }) if found == captured));
    }
}
