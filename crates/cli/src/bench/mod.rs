//! `fermata bench symphony`: runs the experiments, and writes a section with tables and pictures for each.
//! `fermata bench scheduler` is in its own folder.
//!
//! Every section is a file of its own; the whole document is put together from those that there are, so that one
//! experiment can be repeated and the others stay.

mod changing;
mod distribution;
mod document;
mod figure7;
mod goodput;
mod machine;
mod matrix;
mod progress;
mod scheduler;
mod store;
mod sweep;
mod targets;

use std::fs;
use std::num::NonZero;
use std::thread;
use std::time::Instant;

use anyhow::Context;
use fermata_sim::symphony::{Effort, Lab};

use crate::args::{BenchArgs, Suite, SymphonyArgs};
use crate::input::InputError;
use crate::output;
use document::{Document, Section};
use machine::Machine;
use progress::Progress;
pub(crate) use scheduler::SchedulerArgs;

/// An experiment of the paper, or ours.
pub(crate) struct Experiment {
    /// By which it is asked for.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) title: &'static str,
    run: fn(&Bench<'_>) -> anyhow::Result<Section>,
}

/// In the order of the document.
pub(crate) const EXPERIMENTS: [Experiment; 14] = [
    Experiment { name: "targets", title: "What Fermata must show", run: targets::run },
    Experiment {
        name: "table2",
        title: "Goodput of single models on 8 GPUs",
        run: goodput::table2,
    },
    Experiment { name: "figure1", title: "Batch sizes", run: distribution::figure1 },
    Experiment {
        name: "figure2",
        title: "Goodput and utilisation against the offered load",
        run: sweep::figure2,
    },
    Experiment { name: "figure6a", title: "Deferred against eager", run: goodput::figure6a },
    Experiment { name: "figure6b", title: "Deferred against timeouts", run: goodput::figure6b },
    Experiment { name: "figure7", title: "5,880 synthetic workloads", run: figure7::run },
    Experiment { name: "figure9", title: "Mixed models on 64 GPUs", run: goodput::figure9 },
    Experiment { name: "figure10", title: "GPUs for 15,000 requests/s", run: goodput::figure10 },
    Experiment {
        name: "figure11",
        title: "SLO, popularity and burstiness",
        run: goodput::figure11,
    },
    Experiment { name: "figure12", title: "Queueing delay", run: distribution::figure12 },
    Experiment { name: "figure13", title: "Goodput by number of GPUs", run: goodput::figure13 },
    Experiment { name: "figure14", title: "Network latency", run: goodput::figure14 },
    Experiment { name: "figure15", title: "A changing load on 512 GPUs", run: changing::figure15 },
];

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    match &args.suite {
        Suite::Scheduler(args) => scheduler::run(args),
        Suite::Symphony(args) => repeat(args),
    }
}

fn repeat(args: &SymphonyArgs) -> anyhow::Result<()> {
    let chosen = choose(args)?;
    let document = Document::new(&args.out);
    let folder = document.folder();
    fs::create_dir_all(&folder).map_err(|error| InputError::Argument {
        name: "--out",
        reason: format!("{}: cannot be made: {error}", folder.display()),
    })?;
    output::check_writable("--out", &document.file())?;

    let machine = Machine::this();
    for experiment in chosen {
        let start = Instant::now();
        let progress = Progress::start(experiment.name);
        let bench = Bench { args, document: &document, progress: &progress };
        let section = (experiment.run)(&bench).with_context(|| experiment.name.to_owned());
        progress.finish();
        let mut section = section.map_err(unwrap_input)?;
        section.body.push_str(&machine.provenance(args.seed, start.elapsed()));
        document.write(experiment, &section)?;
        output::print(&format!(
            "{}: {:.0} s, {}\n",
            experiment.name,
            start.elapsed().as_secs_f64(),
            document.section_file(experiment.name).display()
        ))?;
    }
    output::print(&format!("{}\n", document.file().display()))
}

/// Bad input names itself: which experiment met it does not matter.
fn unwrap_input(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<InputError>() {
        Ok(input) => input.into(),
        Err(other) => other,
    }
}

fn choose(args: &SymphonyArgs) -> Result<Vec<&'static Experiment>, InputError> {
    let refuse = |name, reason: String| Err(InputError::Argument { name, reason });
    let chosen: Vec<&Experiment> = match &args.only {
        None => EXPERIMENTS.iter().collect(),
        Some(name) => EXPERIMENTS.iter().filter(|experiment| experiment.name == name).collect(),
    };
    if chosen.is_empty() {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        let asked = args.only.as_deref().unwrap_or_default();
        return refuse("--only", format!("no experiment '{asked}': use {}", names.join(", ")));
    }
    let only_figure7 = args.only.as_deref() == Some("figure7");
    if args.report && !only_figure7 {
        return refuse("--report", "goes with --only figure7".to_owned());
    }
    if args.refresh.is_some() && (args.report || !only_figure7) {
        return refuse("--refresh", "goes with --only figure7, without --report".to_owned());
    }
    Ok(chosen)
}

/// What an experiment needs.
struct Bench<'a> {
    args: &'a SymphonyArgs,
    document: &'a Document,
    progress: &'a Progress,
}

impl Bench<'_> {
    /// Where curves are measured.
    fn lab(&self) -> Lab<'_> {
        self.lab_with(Effort::USUAL)
    }

    /// Where the numbers are measured that are promised.
    fn thorough_lab(&self) -> Lab<'_> {
        self.lab_with(Effort::THOROUGH)
    }

    fn lab_with(&self, full: Effort) -> Lab<'_> {
        let effort = match (self.args.requests, self.args.quick) {
            (Some(requests), _) => Effort { requests, seconds: 0.0, precision: 0.005 },
            (None, true) => Effort::QUICK,
            (None, false) => full,
        };
        Lab { effort, seed: self.args.seed, threads: self.threads(), meter: self.progress }
    }

    fn threads(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, NonZero::get);
        self.args.threads.map_or_else(cores, |threads| threads as usize)
    }
}
