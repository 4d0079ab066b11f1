//! What the server and a worker say to each other: lines of JSON over a socket.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::form::Form;
use super::granularity::Granularity;
use super::tuning::Tuning;
use crate::{Cut, DataType, Pressure, Signature};

/// What a worker is asked, with a number that the answer has too.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) id: u64,
    pub(crate) what: Question,
}

/// What a worker can be asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Question {
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
        known: Option<(Tuning, Granularity)>,
    },
    /// Run the batch in a slot: `heads` for a model that is not captured, by item and input.
    Run { model: u32, slot: usize, size: usize, heads: Option<Vec<Vec<Head>>> },
    /// Make ready for a share, and take it, if so.
    Share { place: SharePlace, takes: bool },
    /// How much memory is used.
    Memory,
    /// Press on what shares have in common.
    Press { what: Pressure, seconds: f64 },
}

/// Which share of which cut.
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

/// What a worker answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) what: Result<Reply, Failure>,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It was done.
    Done,
    /// A model was read.
    Loaded { signature: Signature },
    /// A model is ready; captured in this way and for these sizes, or else to be run as it comes.
    Opened { captured: Option<(Tuning, Granularity)> },
    /// A batch ran for so long. `heads` are those of its outputs, of a model that is not captured.
    Ran { ns: u64, heads: Option<Vec<Vec<Head>>> },
    /// Bytes.
    Memory { free: u64, total: u64 },
    /// Bytes a second.
    Pressed { rate: f64 },
}

/// Why not.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) reason: String,
}

/// A tensor but for its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) datatype: DataType,
    pub(crate) shape: Vec<i64>,
    pub(crate) bytes: usize,
}

/// Writes a line.
pub(crate) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a line; `None` at the end.
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
