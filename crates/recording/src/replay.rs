//! Runs a recording through its dispatchers again, and holds what they decide against what was
//! decided.

use std::io::BufRead;

use fermata_core::Time;
use fermata_dispatch::{Actions, Dispatch};
use serde::Serialize;

use super::reader::{Entry, ReadError, Reader};
use super::text;

/// What came of a recording that was run again, up to the first difference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// How many pools it has.
    pub pools: usize,
    /// How many events were handled.
    pub events: u64,
    /// How many actions were compared.
    pub actions: u64,
    /// When it was over.
    pub end: Time,
    /// Where the first action differs, if any does.
    pub difference: Option<Difference>,
}

/// An action that is not the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The line of the recording.
    pub line: usize,
    /// What it says, if it has an action there.
    pub recorded: Option<String>,
    /// What was decided now, if anything was.
    pub replayed: Option<String>,
}

/// Replays a recording.
pub fn replay(source: impl BufRead) -> Result<Replay, ReadError> {
    let mut reader = Reader::new(source)?;
    let mut dispatchers: Vec<Box<dyn Dispatch>> = Vec::new();
    let mut actions = Actions::default();
    // What the last event led to, and how much of it the recording has confirmed.
    let (mut expected, mut confirmed) = (Vec::<String>::new(), 0);
    let mut replay = Replay::default();
    while let Some(entry) = reader.next() {
        let line = reader.line();
        let replayed = expected.get(confirmed).cloned();
        match entry? {
            Entry::Pool(header) => {
                dispatchers.push(header.policy.dispatcher(header.network));
                replay.pools += 1;
            }
            Entry::Action(recorded) => {
                confirmed += 1;
                replay.actions += 1;
                if replayed.as_ref() != Some(&recorded) {
                    let recorded = Some(recorded);
                    replay.difference = Some(Difference { line, recorded, replayed });
                    break;
                }
            }
            Entry::Event { .. } if replayed.is_some() => {
                // To go on is of no use: what the world tells is of another dispatcher.
                replay.difference = Some(Difference { line, recorded: None, replayed });
                break;
            }
            Entry::Event { pool, time, event, .. } => {
                dispatchers[pool].handle(time, event, &mut actions);
                (expected, confirmed) = (text::words(&actions), 0);
                actions.clear();
                replay.events += 1;
                replay.end = replay.end.max(time);
            }
        }
    }
    Ok(replay)
}
