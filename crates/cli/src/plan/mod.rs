//! `fermata plan`: how many GPUs, and what runs where.

mod args;
mod case;
mod file;
mod keys;
mod method;
mod moves;
mod picture;
mod previous;
mod progress;
mod query;
mod report;
mod sweep;
mod table;
mod what_if;

use std::num::NonZero;
use std::thread;

use fermata_files::{InputError, duration, output};
use fermata_plan::{Method, Plan, solve_with_shares};
use fermata_sim::confirm::{Confirmed, Trial};

pub(crate) use args::PlanArgs;
use case::Case;
use file::PlanFile;
use previous::Previous;
use progress::Progress;
use report::Report;

/// The plan was told, and it does not meet all that was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unmet(String);

/// Runs the command.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<()> {
    let trial = check_arguments(args)?;
    let file = PlanFile::read(&args.file)?;
    let progress = Progress::start(args.confirm && !args.json);
    if let Some(sweep) = &args.what_if {
        let points = what_if::sweep(&file, args.method, sweep, trial, &progress);
        progress.finish();
        return what_if::tell(args, &points);
    }
    let case = file.case(1.0, 1.0);
    let previous = args.previous.as_deref().map(|file| Previous::read(file, &case)).transpose()?;
    let made = make(&case, args.method, previous.as_ref().map(|each| &each.plan), trial, &progress);
    progress.finish();
    let report = Report::new(&case, args.method, &made, previous.as_ref(), args.seed);
    let text = match args.json {
        true => report::json(&report)?,
        false => table::text(&args.file, &report),
    };
    if let Some(out) = &args.plot {
        output::write_file(out, &picture::draw(&args.file, &report))?;
    }
    output::print(&text)?;
    report.shortfall().map_or(Ok(()), |reason| Err(Unmet(reason).into()))
}

/// How plans are to be tried, if at all.
fn check_arguments(args: &PlanArgs) -> Result<Option<Trial>, InputError> {
    let refuse = |name, reason: &str| Err(InputError::Argument { name, reason: reason.to_owned() });
    if args.what_if.is_some() && args.previous.is_some() {
        return refuse("--what-if", "cannot be asked for together with --previous");
    }
    if let Some(out) = &args.plot {
        if *out == args.file || args.previous.as_ref() == Some(out) {
            return refuse("--plot", "would overwrite a file that is read");
        }
        output::check_writable("--plot", out)?;
    }
    let seconds = duration("--seconds", &args.seconds, true)?.as_secs_f64();
    Ok(args.confirm.then(|| Trial {
        requests: args.requests,
        seconds,
        seed: args.seed,
        threads: thread::available_parallelism().map_or(1, NonZero::get),
    }))
}

/// A plan, and what came out when it was tried.
struct Made {
    plan: Plan,
    confirmed: Option<Confirmed>,
}

/// Plans, and tries the plan if that was asked for.
fn make(
    case: &Case,
    method: Method,
    previous: Option<&Plan>,
    trial: Option<Trial>,
    progress: &Progress,
) -> Made {
    let Some(trial) = trial else {
        return Made { plan: solve(case, method, previous), confirmed: None };
    };
    if method == Method::Pools {
        // An estimate may be above a limit where the truth is not.
        let unlimited = case.without_limits();
        let mut plan = solve(&unlimited, method, previous);
        let confirmed = unlimited.confirm(&mut plan, trial, progress);
        if case.allows(&plan) {
            return Made { plan, confirmed: Some(confirmed) };
        }
    }
    let mut plan = solve(case, method, previous);
    let confirmed = case.confirm(&mut plan, trial, progress);
    Made { plan, confirmed: Some(confirmed) }
}

fn solve(case: &Case, method: Method, previous: Option<&Plan>) -> Plan {
    solve_with_shares(&case.problem, method, previous, &case.rules, &case.traits)
}
