//! `fermata bench orloj`: models whose run time depends on the input, by every policy, beside what
//! the paper printed.

mod args;
mod cost;
mod lab;
mod paper;
mod sweep;
mod tables;
mod targets;

pub(crate) use args::OrlojArgs;

use super::document::{Document, Heading};
use super::experiment::{self, Experiment};

/// In the order of the document.
pub(super) const EXPERIMENTS: [Experiment<OrlojArgs>; 9] = [
    Experiment { name: "targets", title: "What Fermata must show", run: targets::run },
    Experiment {
        name: "table2",
        title: "Two applications, near and far apart",
        run: tables::table2,
    },
    Experiment { name: "table3", title: "One to eight applications", run: tables::table3 },
    Experiment { name: "table4", title: "Static models", run: tables::table4 },
    Experiment { name: "table5", title: "Ten real workloads", run: tables::table5 },
    Experiment { name: "load", title: "The load that the paper leaves open", run: sweep::load },
    Experiment { name: "figure11", title: "The anticipated delay", run: sweep::figure11 },
    Experiment { name: "figure12", title: "Short requests far away", run: sweep::figure12 },
    Experiment { name: "cost", title: "What a decision costs", run: cost::run },
];

/// A real encoder behind the server: `bench/variable/variable.py` writes it.
const VARIABLE: Heading =
    Heading { name: "variable", title: "A real encoder, requests that differ in length" };

/// What an experiment needs.
type Bench<'a> = experiment::Bench<'a, OrlojArgs>;

const INTRODUCTION: &str = "# Orloj's experiments, repeated

What `fermata bench orloj` found: the experiments of *Orloj: Predictably Serving Unpredictable \
DNNs* (Yu and others) in Fermata's simulator, which runs
the dispatcher that serves. Every number was measured by the command named below its section; \
`paper` is what the paper's appendix prints.

A request takes some time *alone*; a batch takes as long as its longest request would, times a \
factor that grows with its size. Nobody knows the time of a single
request before it has run. One worker, batches of at most 16.

What the paper leaves open, and what was chosen here:

- *How batches grow*: **A**: `l (0.95 + 0.05 k)` for a batch of `k` whose longest request takes \
`l` alone; **B**: `l (0.8 + 0.2 k)`.
- *The load*: the arrival rate over the best possible `k / E[T_k]`, of requests as they come: 0.5 \
for A and 0.8 for B, and swept in *load*.
- *Arrivals*: Poisson in *targets* and the sweeps; in the tables the rate follows a day of the \
Azure Functions trace (all its functions together, minute by minute), as in the paper, squeezed to \
the
  length of the run.
- *The objective*: so many times the 99th percentile of what requests take alone.
- *The distributions*: equal shares of normal distributions with means evenly spread from 50 to \
150 ms (one alone: 100 ms) and a deviation of 10 ms; `std-0.5`, `-1` and `-2` have 5, 10 and 20 \
ms, `std-2/0.5` has 20 ms at
  the short peak and 5 ms at the long one. The ten workloads of table 1 are log-normal with the \
  printed mean and 99th percentile; the shorter half is one application, the longer half another. \
  Static models take 20 ms.
- *What is known*: distributions from 20,000 runs that are not those of the trial.

Policies: *orloj* is our reading of the paper, complete, with application tags \
(`crates/dispatch/src/baseline/orloj/` says how each open point was read; in setting B another \
reading of its estimate is up to 0.04 better at small objectives, and in setting A it misses the \
paper's row). *clipper*, *nexus* and *clockwork* plan with what they measured, the mean or the \
longest of ten runs,
whichever serves each of them better in each cell (*fair*); the paper's mispredicted because they \
were given neither. *fermata* is the default policy: *tags* knows the application of each request, \
*no tags* nothing, *hints* the length of the input.
";

/// Runs the command.
pub(super) fn run(args: &OrlojArgs) -> anyhow::Result<()> {
    let chosen = experiment::choose(&EXPERIMENTS, &args.suite)?;
    let document = Document {
        name: "orloj",
        out: args.suite.out.clone(),
        introduction: INTRODUCTION,
        headings: EXPERIMENTS.iter().map(Experiment::heading).chain([VARIABLE]).collect(),
    };
    experiment::run(&chosen, args, &args.suite, &document)
}
