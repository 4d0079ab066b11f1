//! `fermata replay`: runs a recording through the dispatcher again, and holds what it decides
//! against what was decided.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;
use fermata_files::{InputError, output};
use fermata_recording::{Difference, Replay};
use serde::Serialize;

/// Runs a recording of `fermata serve --record` again, event by event, and checks that the
/// dispatcher decides the same.
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
#[derive(Debug, Serialize)]
struct Report {
    pools: usize,
    events: u64,
    actions: u64,
    /// Where the first action differs, if any does.
    difference: Option<Difference>,
    recorded_s: f64,
    replayed_s: f64,
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
    let open =
        File::open(file).map_err(|source| InputError::Read { file: file.to_owned(), source })?;
    let began = Instant::now();
    let Replay { pools, events, actions, end, difference } =
        fermata_recording::replay(BufReader::new(open)).map_err(|error| InputError::Argument {
            name: "FILE",
            reason: format!("{}: {error}", file.display()),
        })?;
    let (recorded_s, replayed_s) = (end.as_secs(), began.elapsed().as_secs_f64());
    Ok(Report { pools, events, actions, difference, recorded_s, replayed_s })
}
