//! What the suites share: experiments that are chosen by name and run one after the other, each of
//! which writes a section of a document.

use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use anyhow::Context;
use clap::Args as Arguments;
use clap::builder::FalseyValueParser;
use fermata_files::{InputError, output};
use fermata_sim::spread;
use fermata_workload::Counts;

use super::document::{Document, Heading, Section};
use super::machine::{Machine, Start};
use super::progress::Progress;
use crate::trials::symphony::Meter;

/// The arguments of every suite of experiments.
#[derive(Debug, Arguments)]
pub(crate) struct SuiteArgs {
    /// Only this experiment, or these with commas between (see below); the sections of the others
    /// stay as they are.
    #[arg(long, value_name = "NAME", env = "FERMATA_ONLY")]
    pub(super) only: Option<String>,

    /// Shorter runs, and fewer of them: a rough look.
    #[arg(long, env = "FERMATA_QUICK", value_parser = FalseyValueParser::new())]
    pub(super) quick: bool,

    /// Where to write the document, and a folder with its sections and pictures.
    #[arg(long, value_name = "DIR", env = "FERMATA_OUT", default_value = "docs/results")]
    pub(super) out: PathBuf,

    /// How many runs go side by side; as many as there are cores, if not given.
    #[arg(long, value_name = "N", env = "FERMATA_THREADS", value_parser = count())]
    threads: Option<u64>,

    /// The seed of all random numbers: the same seed gives the same numbers.
    #[arg(long, value_name = "N", env = "FERMATA_SEED", default_value_t = 1)]
    pub(super) seed: u64,
}

/// The trace of those suites that follow one.
#[derive(Debug, Arguments)]
pub(crate) struct TraceArgs {
    /// A day of traffic: calls a minute, as in the Azure Functions traces of 2019.
    #[arg(
        long,
        value_name = "FILE",
        env = "FERMATA_TRACE",
        default_value = "data/traces/azure_functions_2019_1000x1440.csv"
    )]
    trace: PathBuf,
}

impl TraceArgs {
    /// Reads it.
    pub(super) fn counts(&self) -> Result<Counts, InputError> {
        Counts::read(&self.trace)
            .map_err(|error| InputError::Argument { name: "--trace", reason: error.to_string() })
    }
}

/// At least one.
pub(super) fn count() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

impl SuiteArgs {
    /// How many runs go side by side.
    pub(super) fn threads(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, NonZero::get);
        self.threads.map_or_else(cores, |threads| threads as usize)
    }
}

/// An experiment of a paper, or ours, in a suite with the arguments `A`.
pub(super) struct Experiment<A> {
    /// By which it is asked for.
    pub(super) name: &'static str,
    /// What it is.
    pub(super) title: &'static str,
    pub(super) run: fn(&Bench<'_, A>) -> anyhow::Result<Section>,
}

impl<A> Experiment<A> {
    pub(super) fn heading(&self) -> Heading {
        Heading { name: self.name, title: self.title }
    }
}

/// What an experiment needs.
pub(super) struct Bench<'a, A> {
    /// What its suite was asked for.
    pub(super) args: &'a A,
    /// What every suite can be asked for.
    pub(super) suite: &'a SuiteArgs,
    pub(super) document: &'a Document,
    pub(super) progress: &'a Progress,
}

impl<A> Bench<'_, A> {
    /// Does the same to every item, on several threads, and says how far it is.
    pub(super) fn spread<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        let progress = self.progress;
        progress.expect(items.len());
        spread(items, self.suite.threads(), |item| {
            let result = work(item);
            progress.finish_one();
            result
        })
    }
}

/// The experiments of a suite for its help text, a line each.
pub(super) fn list<A>(experiments: &[Experiment<A>]) -> String {
    let line =
        |experiment: &Experiment<A>| format!("  {:<12} {}", experiment.name, experiment.title);
    experiments.iter().map(line).collect::<Vec<String>>().join("\n")
}

/// Those that were asked for, in that order, or all.
pub(super) fn choose<'a, A>(
    experiments: &'a [Experiment<A>],
    args: &SuiteArgs,
) -> Result<Vec<&'a Experiment<A>>, InputError> {
    let Some(asked) = &args.only else { return Ok(experiments.iter().collect()) };
    let find = |asked: &str| {
        experiments.iter().find(|experiment| experiment.name == asked).ok_or_else(|| {
            let names: Vec<&str> = experiments.iter().map(|experiment| experiment.name).collect();
            let reason = format!("no experiment '{asked}': use {}", names.join(", "));
            InputError::Argument { name: "--only", reason }
        })
    };
    asked.split(',').map(find).collect()
}

/// Runs experiments and writes their sections.
pub(super) fn run<A>(
    chosen: &[&Experiment<A>],
    args: &A,
    suite: &SuiteArgs,
    document: &Document,
) -> anyhow::Result<()> {
    let folder = document.folder();
    fs::create_dir_all(&folder).map_err(|error| InputError::Argument {
        name: "--out",
        reason: format!("{}: cannot be made: {error}", folder.display()),
    })?;
    output::check_writable("--out", &document.file())?;

    let (machine, began) = (Machine::this(), Instant::now());
    for experiment in chosen {
        let start = Start::now();
        let progress = Progress::start(experiment.name);
        let bench = Bench { args, suite, document, progress: &progress };
        let section = (experiment.run)(&bench).with_context(|| experiment.name.to_owned());
        progress.finish();
        let mut section = section.map_err(unwrap_input)?;
        section.body.push_str(&machine.provenance(suite.seed, &start));
        document.write(experiment.heading(), &section)?;
        output::print(&format!(
            "{}: {:.0} s, {}\n",
            experiment.name,
            start.time.elapsed().as_secs_f64(),
            document.section_file(experiment.name).display()
        ))?;
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    output::print(&format!("{}: {minutes:.1} min in all\n", document.file().display()))
}

/// Bad input names itself: which experiment met it does not matter.
fn unwrap_input(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<InputError>() {
        Ok(input) => input.into(),
        Err(other) => other,
    }
}
