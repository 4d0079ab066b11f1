//! `fermata bench symphony`: the experiments of Symphony's paper, and ours beside them.

mod args;
mod changing;
mod distribution;
mod figure7;
mod goodput;
mod matrix;
mod sweep;
mod targets;

use fermata_files::InputError;

use crate::trials::symphony::{Effort, Lab};
pub(crate) use args::SymphonyArgs;

use super::document::Document;
use super::experiment::{self, Experiment};

/// In the order of the document.
pub(crate) const EXPERIMENTS: [Experiment<SymphonyArgs>; 14] = [
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

/// What an experiment needs.
type Bench<'a> = experiment::Bench<'a, SymphonyArgs>;

const INTRODUCTION: &str = "# Symphony's experiments, repeated

What `fermata bench symphony` found: the experiments of *Symphony: Optimized DNN Model Serving \
using Deferred Batch
Scheduling* (Chen and others) in Fermata's simulator, which runs the dispatcher that serves. Every \
number here was
measured by the command named below its section; `paper` is what the paper prints in its text and \
tables (what it only
draws is left out).

- *goodput*: the highest rate, in requests a second, at which every model has at least 99 % of its \
requests in time.
- *deferred*: Symphony's rule, with early drop. *fermata*: our default policy.
- *clockwork, shepherd, nexus, clipper, tfserving*: our implementations of those systems' \
schedulers, without their
  systems' overheads. *eager*: an ideal central scheduler that never lets an executor idle while \
  something waits;
  with early drop, as `deferred`, or without (*eager-prefix*). *tfserving* is untuned: it waits \
  for 10 ms and has batches of at most 32. *timeout:25%*: a batch waits for a quarter
  of the SLO.
- *bound*: staggered execution under perfectly regular arrivals (Symphony 3.3, equations 1 and 2); \
in pools of several
  models, every model at its largest staggered batch and the executors' time fully used. Random \
  arrivals can be a little
  above it now and then: a hundredth may be lost, and a burst fills a large batch at once.

Policies see the same arrivals. Executors take exactly as long as their profile says.
";

/// Runs the command.
pub(super) fn run(args: &SymphonyArgs) -> anyhow::Result<()> {
    let chosen = experiment::choose(&EXPERIMENTS, &args.suite)?;
    check(args)?;
    let document = Document {
        name: "symphony",
        out: args.suite.out.clone(),
        introduction: INTRODUCTION,
        headings: EXPERIMENTS.iter().map(Experiment::heading).collect(),
    };
    experiment::run(&chosen, args, &args.suite, &document)
}

/// What goes together.
fn check(args: &SymphonyArgs) -> Result<(), InputError> {
    let refuse = |name, reason: &str| Err(InputError::Argument { name, reason: reason.to_owned() });
    let only_figure7 = args.suite.only.as_deref() == Some("figure7");
    if args.report && !only_figure7 {
        return refuse("--report", "goes with --only figure7");
    }
    if args.refresh.is_some() && (args.report || !only_figure7) {
        return refuse("--refresh", "goes with --only figure7, without --report");
    }
    Ok(())
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
        let effort = match (self.args.requests, self.suite.quick) {
            (Some(requests), _) => Effort { requests, seconds: 0.0, precision: 0.005 },
            (None, true) => Effort::QUICK,
            (None, false) => full,
        };
        let (seed, threads) = (self.suite.seed, self.suite.threads());
        Lab { effort, seed, threads, meter: self.progress }
    }
}
