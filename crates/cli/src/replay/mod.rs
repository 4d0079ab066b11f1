//! `fermata replay`: runs a recording through the dispatcher again, and holds what it decides against what was
//! decided.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;
use fermata_dispatch::{Actions, Dispatch, Network};
use fermata_server::recording::{self, Entry, Reader};
use serde::Serialize;

use crate::input::InputError;
use crate::output;

/// Runs a recording of `fermata serve --record` again, event by event, and checks that the dispatcher decides
/// the same.
#[derive(Debug, Arguments)]
#[command(after_help = "Examples:
  fermata serve models --record run.txt
  fermata replay run.txt                              the same actions again?
  fermata sim --recording run.txt --policy deferred   what another policy would have made of it")]
pub(crate) struct ReplayArgs {
    /// The recording.
    pub(crate) file: PathBuf,

    /// Print JSON.
    #[arg(long, env = "FERMATA_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,
}

/// What came out.
#[derive(Debug, Default, Serialize)]
struct Report {
    pools: usize,
    events: u64,
    actions: u64,
    /// Where the first action differs, if any does.
    difference: Option<Difference>,
    recorded_s: f64,
    replayed_s: f64,
}

#[derive(Debug, Serialize)]
struct Difference {
    line: usize,
    recorded: Option<String>,
    replayed: Option<String>,
}

/// Replays, and fails if an action differs.
pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    let report = replay(&args.file)?;
    if args.json {
        output::print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        output::print(&describe(&report))?;
    }
    match report.difference {
        None => Ok(()),
        Some(difference) => anyhow::bail!(
            "{}: line {}: the recording is not what this program decides",
            args.file.display(),
            difference.line
        ),
    }
}

fn describe(report: &Report) -> String {
    let Report { pools, events, actions, recorded_s, replayed_s, .. } = report;
    let mut text = format!(
        "{events} events of {pools} pools, {recorded_s:.1} s long, replayed in {replayed_s:.3} s: \
         {actions} actions"
    );
    match &report.difference {
        None => text.push_str(", all the same\n"),
        Some(Difference { line, recorded, replayed }) => {
            let none = || "nothing".to_owned();
            let (recorded, replayed) = (recorded.clone(), replayed.clone());
            text.push_str(&format!(
                " until line {line}\n  recorded: {}\n  replayed: {}\n",
                recorded.unwrap_or_else(none),
                replayed.unwrap_or_else(none)
            ));
        }
    }
    text
}

fn replay(file: &Path) -> anyhow::Result<Report> {
    let refuse = |error: recording::ReadError| InputError::Argument {
        name: "FILE",
        reason: format!("{}: {error}", file.display()),
    };
    let open =
        File::open(file).map_err(|source| InputError::Read { file: file.to_owned(), source })?;
    let mut reader = Reader::new(BufReader::new(open)).map_err(refuse)?;
    let mut dispatchers: Vec<Box<dyn Dispatch>> = Vec::new();
    let mut actions = Actions::default();
    // What the last event led to, and how much of it the recording has confirmed.
    let (mut expected, mut confirmed) = (Vec::new(), 0);
    let mut report = Report::default();
    let began = Instant::now();
    while let Some(entry) = reader.next() {
        let line = reader.line();
        let difference = match entry.map_err(refuse)? {
            Entry::Pool(header) => {
                dispatchers.push(header.policy.dispatcher(Network::default()));
                report.pools += 1;
                None
            }
            Entry::Action(recorded) => {
                let replayed = expected.get(confirmed).cloned();
                confirmed += 1;
                report.actions += 1;
                let same = replayed.as_ref() == Some(&recorded);
                (!same).then_some(Difference { line, recorded: Some(recorded), replayed })
            }
            Entry::Event { pool, time, event, .. } => {
                let left_over = expected.get(confirmed).cloned();
                dispatchers[pool].handle(time, event, &mut actions);
                (expected, confirmed) = (recording::words(&actions), 0);
                actions.clear();
                report.events += 1;
                report.recorded_s = time.as_secs();
                left_over.map(|action| Difference { line, recorded: None, replayed: Some(action) })
            }
        };
        if difference.is_some() {
            report.difference = difference;
            break;
        }
    }
    report.replayed_s = began.elapsed().as_secs_f64();
    Ok(report)
}
