//! Writes a recording, off the dispatcher's thread.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::thread::{self, JoinHandle};

use crossbeam_channel::Sender;
use fermata_core::{Span, Time};
use fermata_dispatch::{Actions, Event, Network, Policy};

/// A piece is handed to the file when it is so long, or so old.
const PIECE: usize = 64 << 10;
const PIECE_AGE: Span = Span(500_000_000);

/// A file that is being recorded to, by one recorder for each pool.
#[derive(Debug)]
pub struct Recording {
    pieces: Sender<String>,
    pools: usize,
    thread: JoinHandle<io::Result<()>>,
}

impl Recording {
    /// Begins a file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(b"fermata recording 1\n")?;
        let (pieces, received) = crossbeam_channel::unbounded::<String>();
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(move || {
            received.into_iter().try_for_each(|piece| file.write_all(piece.as_bytes()))
        })?;
        Ok(Self { pieces, pools: 0, thread })
    }

    /// The recorder of one more pool. A policy is written as the words that name it.
    pub fn pool(&mut self, name: &str, policy: Policy, network: Network) -> Recorder {
        let pool = self.pools;
        self.pools += 1;
        // At once: heads must come in order, however long a pool has nothing to tell after its own.
        let mut head = format!("pool {pool} {name} {policy}");
        if network != Network::default() {
            let Network { ctrl, data, resp } = network;
            let _ = write!(head, " {} {} {}", ctrl.0, data.0, resp.0);
        }
        let _ = self.pieces.send(head + "\n");
        Recorder { pool, pieces: self.pieces.clone(), piece: String::new(), handed: Time::START }
    }

    /// Writes what is left, once all recorders are gone.
    pub fn finish(self) -> io::Result<()> {
        drop(self.pieces);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the recorder panicked")))
    }
}

/// Records one pool.
#[derive(Debug)]
pub struct Recorder {
    pool: usize,
    pieces: Sender<String>,
    piece: String,
    handed: Time,
}

impl Recorder {
    /// Notes what the dispatcher is told. `name` is that of the model in `AddModel`.
    pub fn event(&mut self, now: Time, event: &Event, name: &str) {
        if self.piece.len() > PIECE || now - self.handed > PIECE_AGE {
            self.hand_over();
            self.handed = now;
        }
        write!(self.piece, "{} {} ", self.pool, now.0).expect("a string takes everything");
        super::text::write_event(event, name, &mut self.piece);
        self.piece.push('\n');
    }

    /// Notes what it asked for.
    pub fn actions(&mut self, actions: &Actions) {
        super::text::write_actions(actions, &mut self.piece);
    }

    fn hand_over(&mut self) {
        let piece = std::mem::replace(&mut self.piece, String::with_capacity(PIECE + PIECE / 4));
        // A disk that is full was reported by the writer's thread.
        let _ = self.pieces.send(piece);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hand_over();
    }
}
