//! `fermata bench scheduler`: how much the scheduler takes, how punctually, and at what cost.

mod args;
mod count;
mod report;
mod search;

use std::io::{self, IsTerminal};
use std::thread::available_parallelism;

use fermata_core::Span;
use fermata_dispatch::{Policy, Rules};
use fermata_files::{InputError, output};

use crate::trials::scheduler::Trial;
pub(crate) use args::SchedulerArgs;

use search::measure;

/// More makes no sense, and would not fit.
const COUNT_MAX: usize = 1_000_000;

/// Runs the command.
pub(super) fn run(args: &SchedulerArgs) -> anyhow::Result<()> {
    let (trial, rules_name) = configure(args)?;
    if args.counted {
        return count::be_counted(&trial);
    }
    if args.all {
        return report::write(args, &trial);
    }
    let measured = measure(&trial, args.rate, |line| {
        if io::stderr().is_terminal() {
            say(line);
        }
    })?;
    let instructions = (!args.no_count)
        .then(|| count::instructions(&trial_at(&trial, measured.rate), &rules_name));
    let instructions = instructions.and_then(|counted| {
        counted.map_err(|error| eprintln!("instructions are not counted: {error:#}")).ok()
    });
    output::print(&match args.json {
        true => report::json(&trial, &measured, instructions),
        false => report::text(&trial, &measured, instructions),
    })
}

/// The same with another rate: it takes as long.
fn trial_at(trial: &Trial, rate: f64) -> Trial {
    Trial { rate, ..trial.clone() }
}

fn say(line: &str) {
    eprintln!("{line}");
}

/// The first trial, and the policy's name.
fn configure(args: &SchedulerArgs) -> Result<(Trial, String), InputError> {
    let refuse = |name, reason: String| Err(InputError::Argument { name, reason });
    let policy: Policy = match args.policy.parse() {
        Ok(policy) => policy,
        Err(reason) => return refuse("--policy", reason),
    };
    let Some(rules) = policy.rules() else {
        return refuse("--policy", format!("{policy} has no machines that run on threads"));
    };
    for (name, number) in [("--models", args.models), ("--gpus", args.gpus)] {
        if !(1..=COUNT_MAX).contains(&number) {
            return refuse(name, format!("{number} is not between 1 and {COUNT_MAX}"));
        }
    }
    if !(0.01..=3600.0).contains(&args.seconds) {
        return refuse("--seconds", format!("{} is not between 0.01 and 3600", args.seconds));
    }
    if args.rate.is_some_and(|rate| !(1.0..=1e9).contains(&rate)) {
        return refuse("--rate", "not between 1 and 1e9 requests a second".to_owned());
    }
    let model_threads = threads(args);
    Ok((
        Trial {
            rules,
            model_threads,
            models: args.models,
            executors: args.gpus,
            rate: args.rate.unwrap_or(search::FIRST),
            length: Span::from_secs(args.seconds),
            spin: args.spin,
            pin: args.pin,
            seed: args.seed,
        },
        name_of(rules),
    ))
}

/// How many model threads: what was asked for makes no sense now and then, and then the nearest
/// that does is taken.
fn threads(args: &SchedulerArgs) -> usize {
    let cores = available_parallelism().map_or(1, usize::from);
    let asked = match args.model_threads {
        None => return (cores - 1).clamp(1, args.models),
        Some(asked) => asked,
    };
    let threads = asked.clamp(1, args.models);
    if threads != asked {
        let why = if asked == 0 {
            "somebody must have the models"
        } else {
            "a thread has at least one model"
        };
        eprintln!("--model-threads: {threads} in place of {asked}: {why}");
    }
    threads
}

/// Whether it is the rule of a paper, for the tables.
fn name_of(rules: Rules) -> String {
    // On threads nothing else is tried: fixed rules go without saying.
    Policy::Rules(rules).to_string().replace(":fixed", "")
}
