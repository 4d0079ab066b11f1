//! Reads a recording, line by line.

use std::io::{self, BufRead};
use std::str::FromStr;

use fermata_core::{Span, Time};
use fermata_dispatch::{Event, Network, Policy};

use super::check::Check;
use super::text;

/// A pool, as the recording's head describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Its number.
    pub pool: usize,
    /// Its name.
    pub name: String,
    /// How it decided.
    pub policy: Policy,
    /// How far away its executors were.
    pub network: Network,
}

/// One line of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// What a dispatcher asked for after the event before, as words.
    Action(String),
    /// What happened to it.
    Event {
        /// Which pool.
        pool: usize,
        /// When.
        time: Time,
        /// What.
        event: Event,
        /// The name of the model that was added.
        name: Option<String>,
    },
    /// A pool.
    Pool(Header),
}

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line that says nothing known, or what cannot have happened.
    #[error("line {line}: {reason}")]
    Line {
        /// Which line, from one.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// The entries of a recording, in order, each held against those before: what it gives can be
/// handed to a dispatcher.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    line: usize,
    text: String,
    pools: Vec<Check>,
    /// The pool of the last event: the actions that follow are its own.
    last: Option<usize>,
}

impl<R: BufRead> Reader<R> {
    /// Begins to read; the first line must say what it is.
    pub fn new(source: R) -> Result<Self, ReadError> {
        let mut reader =
            Self { source, line: 0, text: String::new(), pools: Vec::new(), last: None };
        if !reader.advance()? || reader.text != "fermata recording 1" {
            let reason = "is not a recording: it must begin with 'fermata recording 1'".to_owned();
            return Err(ReadError::Line { line: 1, reason });
        }
        Ok(reader)
    }

    /// Which line was read last.
    pub fn line(&self) -> usize {
        self.line
    }

    fn advance(&mut self) -> io::Result<bool> {
        self.text.clear();
        self.line += 1;
        let read = self.source.read_line(&mut self.text)?;
        // A line that a crash cut off is not a line.
        let whole = self.text.ends_with('\n');
        self.text.truncate(self.text.trim_end().len());
        Ok(read > 0 && whole)
    }

    fn entry(&mut self) -> Result<Entry, String> {
        if let Some(words) = self.text.strip_prefix("> ") {
            let pool = self.last.ok_or("an action without an event before it")?;
            self.pools[pool].action(&text::read_action(words)?)?;
            return Ok(Entry::Action(words.to_owned()));
        }
        if let Some(words) = self.text.strip_prefix("pool ") {
            let header =
                read_header(words).ok_or("expected pool NUMBER NAME POLICY [CTRL DATA RESP]")?;
            if header.pool != self.pools.len() {
                return Err(format!("expected pool {}", self.pools.len()));
            }
            self.pools.push(Check::default());
            return Ok(Entry::Pool(header));
        }
        let mut words = self.text.splitn(3, ' ');
        let mut number = |what| {
            let word = words.next().unwrap_or_default();
            word.parse().map_err(|_| format!("expected {what}, found '{word}'"))
        };
        let (pool, time) = (number("the number of a pool")?, Time(number("a time")?));
        let known =
            usize::try_from(pool).ok().and_then(|pool| Some((pool, self.pools.get_mut(pool)?)));
        let (pool, check) = known.ok_or_else(|| format!("there is no pool {pool}"))?;
        let (event, name) = text::read_event(words.next().unwrap_or_default())?;
        check.event(time, &event)?;
        self.last = Some(pool);
        let name = name.map(str::to_owned);
        Ok(Entry::Event { pool, time, event, name })
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Err(error) => Some(Err(error.into())),
            Ok(false) => None,
            Ok(true) => {
                let line = self.line;
                Some(self.entry().map_err(|reason| ReadError::Line { line, reason }))
            }
        }
    }
}

fn read_header(words: &str) -> Option<Header> {
    let mut words = words.split(' ');
    let pool = words.next()?.parse().ok()?;
    let name = words.next()?.to_owned();
    let policy = Policy::from_str(words.next()?).ok()?;
    let mut network = Network::default();
    if let Some(ctrl) = words.next() {
        let span = |word: &str| word.parse().ok().map(Span).filter(|&span| span <= FAR);
        let (data, resp) = (words.next()?, words.next()?);
        network = Network { ctrl: span(ctrl)?, data: span(data)?, resp: span(resp)? };
    }
    words.next().is_none().then_some(Header { pool, name, policy, network })
}

/// Farther away than this, an hour, is nobody.
const FAR: Span = Span(3_600_000_000_000);
