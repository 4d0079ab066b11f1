//! `fermata sim`: one load on one pool, under one policy or several.

mod alone;
mod args;
mod fault;
mod file;
mod picture;
mod policies;
mod progress;
mod recording;
mod report;
mod table;
mod watch;

use std::num::NonZero;
use std::path::Path;
use std::thread;

use fermata_core::Time;
use fermata_files::{Checker, InputError, output};
use fermata_sim::{End, Scenario, Search, goodput, min_executors, simulate, spread};

use crate::input::GPUS_MAX;
pub(crate) use args::SimArgs;
use file::SimFile;
use policies::NamedPolicy;
use progress::Progress;
use report::Report;
use watch::{Tape, Watch};

/// Runs the command.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    let policies = policies::choose(&args.policy)?;
    check_arguments(args, &policies)?;
    let source = source(args);
    let SimFile { mut scenario, names, spare } = read(args)?;
    let policies = policies::settle(policies, args.spare, spare);
    scenario.seed = args.seed;
    let question = Question::of(args, &scenario)?;

    let progress = Progress::start(&scenario, &policies, question, args.json);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let answers = spread(&policies, threads, |policy| {
        answer(policy, &scenario, question, args.plot.is_some(), &progress)
    });
    progress.finish();
    let answers = answers.into_iter().collect::<Result<Vec<Answer>, Unbounded>>();
    let answers = answers.map_err(|Unbounded| too_short(source, scenario.end))?;

    let report = |answer: &Answer| Report::new(answer, &names);
    let reports: Vec<Report> = answers.iter().map(report).collect();
    let text = if args.json { report::json(&reports)? } else { table::text(source, &reports) };
    if let (Some(out), [answer], [report]) = (&args.plot, &answers[..], &reports[..]) {
        output::write_file(out, &picture::draw(source, answer, report, &names))?;
    }
    output::print(&text)
}

/// Where the load is from.
fn source(args: &SimArgs) -> &Path {
    args.file.as_deref().or(args.recording.as_deref()).expect("one of them must be given")
}

fn read(args: &SimArgs) -> Result<SimFile, InputError> {
    let Some(recording) = &args.recording else { return SimFile::read(source(args)) };
    let slo = args.slo_ms.map(fermata_files::objective).transpose()?;
    let gpus = args.gpus.map(|gpus| gpus as usize);
    recording::read(recording, recording::Changes { pool: args.pool.as_deref(), slo, gpus })
}

fn check_arguments(args: &SimArgs, policies: &[NamedPolicy]) -> Result<(), InputError> {
    let refuse = |name, reason: &str| Err(InputError::Argument { name, reason: reason.to_owned() });
    if args.goodput && args.min_gpus {
        return refuse("--goodput", "cannot be asked for together with --min-gpus");
    }
    if args.plot.is_some() && policies.len() > 1 {
        return refuse("--plot", "draws one policy, and several were given");
    }
    if args.plot.as_deref() == Some(source(args)) {
        return refuse("--plot", "would overwrite the file that describes the run");
    }
    args.plot.as_deref().map_or(Ok(()), |out| output::check_writable("--plot", out))
}

/// What is asked of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// What happens.
    Run,
    /// How high the rate can be.
    Goodput,
    /// How few executors are enough, of at most so many.
    MinGpus { most: usize },
}

impl Question {
    fn of(args: &SimArgs, scenario: &Scenario) -> Result<Self, InputError> {
        if args.goodput {
            return Ok(Self::Goodput);
        }
        if !args.min_gpus {
            return Ok(Self::Run);
        }
        if !scenario.faults.is_empty() {
            // A fault names its executor, which a smaller pool may not have.
            let reason = "cannot be searched for while the file has [[fault]]".to_owned();
            return Err(InputError::Argument { name: "--min-gpus", reason });
        }
        // Four times what batches of one would keep busy: more does not help, whatever the bursts.
        let lone = |load: &fermata_sim::Load| {
            let profile =
                load.spec.profiles[0].as_ref().expect("every model runs on the one class");
            load.rate() * profile.shortest().as_secs()
        };
        let busy: f64 = scenario.loads.iter().map(lone).sum();
        let most = ((4.0 * busy) as usize).saturating_add(64);
        Ok(Self::MinGpus { most: most.clamp(scenario.executors.len(), GPUS_MAX) })
    }
}

/// What came out under one policy.
struct Answer {
    policy: String,
    /// What was run in the end.
    scenario: Scenario,
    stats: fermata_sim::Stats,
    /// What each model used.
    usage: Vec<watch::Usage>,
    /// How long requests came.
    offered_until: Time,
    /// Where it was asked for; zero if there is none.
    goodput: Option<f64>,
    /// Where it was asked for; `Err` with the largest number that was not enough.
    min_gpus: Option<Result<usize, usize>>,
    tape: Option<Tape>,
}

fn answer(
    NamedPolicy { name, policy }: &NamedPolicy,
    asked: &Scenario,
    question: Question,
    taped: bool,
    progress: &Progress,
) -> Result<Answer, Unbounded> {
    let mut scenario = asked.clone();
    let (mut found_goodput, mut found_gpus) = (None, None);
    match question {
        Question::Run => {}
        Question::Goodput => {
            let rate = goodput(asked, *policy, Search::default());
            if rate.is_infinite() {
                return Err(Unbounded);
            }
            found_goodput = Some(rate);
            if rate > 0.0 {
                scenario = asked.scaled(rate / asked.rate());
            }
        }
        Question::MinGpus { most } => {
            let fewest = min_executors(asked, *policy, most);
            found_gpus = Some(fewest.ok_or(most));
            if let Some(fewest) = fewest {
                scenario = asked.with_executors(fewest);
            }
        }
    }
    let mut watch = Watch::new(&scenario, taped, progress);
    let mut dispatcher = policy.dispatcher(scenario.network);
    let stats = simulate(&scenario, &mut dispatcher, &mut watch, None);
    let Watch { usage, last_arrival, tape, .. } = watch;
    Ok(Answer {
        policy: name.clone(),
        offered_until: match scenario.end {
            End::At(end) => end,
            End::Requests(_) => last_arrival,
        },
        scenario,
        stats,
        usage,
        goodput: found_goodput,
        min_gpus: found_gpus,
        tape,
    })
}

/// However high the rate, nothing fails: so few requests fit into one batch on each executor.
struct Unbounded;

fn too_short(file: &Path, end: End) -> InputError {
    let key = match end {
        End::At(_) => "duration_s",
        End::Requests(_) => "requests",
    };
    let reason = "too short a run to search for a goodput: no rate fails";
    Checker { file, place: None }.refuse(key, reason)
}
