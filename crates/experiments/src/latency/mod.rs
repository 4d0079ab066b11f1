//! `fermata bench latency`: how long requests take below the goodput, and what that costs.

mod alone;
mod args;
mod goodput;
mod load;
mod sequence;
mod zoo;

use fermata_dispatch::Policy;

use crate::trials::symphony::{Effort, Lab};
pub(crate) use args::LatencyArgs;

use super::document::Document;
use super::experiment::{self, Experiment};

/// In the order of the document.
const EXPERIMENTS: [Experiment<LatencyArgs>; 5] = [
    Experiment { name: "load", title: "ResNet50 on 8 GPUs by load", run: load::run },
    Experiment { name: "zoo", title: "Many models on 64 GPUs", run: zoo::run },
    Experiment { name: "goodput", title: "What answering soon costs", run: goodput::run },
    Experiment { name: "alone", title: "A lone client after other traffic", run: alone::run },
    Experiment { name: "sequence", title: "A sequence of loads on one model", run: sequence::run },
];

/// What an experiment needs.
type Bench<'a> = experiment::Bench<'a, LatencyArgs>;

const INTRODUCTION: &str = "# Latency below the goodput

What `fermata bench latency` found in the simulator, which runs the dispatcher that serves. Every \
number was measured by the
command named below its section.

- *fermata*: the default policy. Executors that no batch needs are used to answer sooner.
- *fermata:release*: the same where spare executors can be given away. It fills batches, so that \
as few executors as possible are busy.
- *eager*: a batch starts as soon as an executor is idle. *timeout:1ms*: a batch waits 1 ms for \
more requests. Both drop early.
- *goodput*: the highest rate, in requests a second, at which every model has at least 99 % of its \
requests in time.
- *bad*: dropped or late.

All policies see the same arrivals. Executors take exactly as long as the profile says. Latencies \
run from arrival to answer. Numbers in bold are not what is asked of the default policy.
";

/// The policies that are compared, the default first.
const POLICIES: [&str; 6] =
    ["fermata", "fermata:release", "eager", "timeout:1ms", "timeout:2ms", "timeout:4ms"];

/// Runs the command.
pub(super) fn run(args: &LatencyArgs) -> anyhow::Result<()> {
    let chosen = experiment::choose(&EXPERIMENTS, &args.suite)?;
    let document = Document {
        name: "latency",
        out: args.suite.out.clone(),
        introduction: INTRODUCTION,
        headings: EXPERIMENTS.iter().map(Experiment::heading).collect(),
    };
    experiment::run(&chosen, args, &args.suite, &document)
}

impl Bench<'_> {
    /// Where goodputs are measured.
    fn lab(&self) -> Lab<'_> {
        let effort = if self.suite.quick { Effort::QUICK } else { Effort::THOROUGH };
        let (seed, threads) = (self.suite.seed, self.suite.threads());
        Lab { effort, seed, threads, meter: self.progress }
    }
}

/// A policy by its name, which is ours: a wrong one is a mistake of this program.
fn policy(name: &str) -> Policy {
    name.parse().expect("an experiment names policies that exist")
}
