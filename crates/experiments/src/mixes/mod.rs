//! `fermata bench mixes`: models with different objectives on few executors.

mod args;
mod changes;
mod named;
mod overload;
mod random;
mod row;
mod table;
mod verdict;

use fermata_files::InputError;

pub(crate) use args::MixesArgs;

use super::document::Document;
use super::experiment::{self, Experiment};

/// In the order of the document.
const EXPERIMENTS: [Experiment<MixesArgs>; 5] = [
    Experiment { name: "table", title: "Four mixes on 1, 2 and 8 executors", run: table::run },
    Experiment { name: "random", title: "Random mixes", run: random::random },
    Experiment {
        name: "frozen",
        title: "Random mixes that were drawn after the policy was frozen",
        run: random::frozen,
    },
    Experiment { name: "changes", title: "Rates that change", run: changes::run },
    Experiment { name: "overload", title: "More than the goodput", run: overload::run },
];

/// What an experiment needs.
type Bench<'a> = experiment::Bench<'a, MixesArgs>;

const INTRODUCTION: &str = "# Mixes of models on few executors

What `fermata bench mixes` found in the simulator, which runs the dispatcher that serves. A *mix* \
is several models with
different objectives on few executors: a batch of a model with a long objective blocks the \
executor for a model with a short
one. Every number was measured by the command named below its section.

- *goodput*: the highest total rate, in requests a second, at which every model has at least 99 % \
of its requests in time.
- *fermata*: the default policy. *fermata:release*: the same where spare executors can be given \
away.
- *deferred*: Symphony's rule, with early drop. *eager*: a batch starts as soon as an executor is \
idle, with early drop.
- *limit*: no batch is longer than this, except batches of one request.

All policies see the same arrivals. Executors take exactly as long as the profile says. Numbers in \
bold are not what is asked of the default policy.
";

/// Runs the command.
pub(super) fn run(args: &MixesArgs) -> anyhow::Result<()> {
    let chosen = experiment::choose(&EXPERIMENTS, &args.suite)?;
    check(args)?;
    let document = Document {
        name: "mixes",
        out: args.suite.out.clone(),
        introduction: INTRODUCTION,
        headings: EXPERIMENTS.iter().map(Experiment::heading).collect(),
    };
    experiment::run(&chosen, args, &args.suite, &document)
}

/// What goes together.
fn check(args: &MixesArgs) -> Result<(), InputError> {
    let refuse = |name, reason| Err(InputError::Argument { name, reason });
    let is_stored = |name: &str| ["random", "frozen"].contains(&name);
    let all_stored = args.suite.only.as_ref().is_some_and(|only| only.split(',').all(is_stored));
    if args.report && !all_stored {
        return refuse("--report", "goes with --only random or --only frozen".to_owned());
    }
    let Some(policy) = &args.refresh else { return Ok(()) };
    if args.report || !all_stored {
        let reason = "goes with --only random or --only frozen, without --report";
        return refuse("--refresh", reason.to_owned());
    }
    if policy != "fermata" {
        return refuse("--refresh", format!("no policy '{policy}' here: use fermata"));
    }
    Ok(())
}
