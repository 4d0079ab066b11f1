//! What was measured, as text, as JSON, and as a document.

use std::time::Duration;

use fermata_chart::{Axis, Figure, Lines, Panel, Row, Series};
use fermata_core::Span;
use fermata_dispatch::Rules;
use fermata_files::output;
use serde_json::{Value, json};

use super::search::{Measured, measure};
use super::{SchedulerArgs, count, name_of, say, trial_at};
use crate::document::Table;
use crate::machine::{Machine, Start};
use crate::trials::scheduler::{Outcome, Trial};

/// Of one setting, for people.
pub(super) fn text(trial: &Trial, measured: &Measured, instructions: Option<f64>) -> String {
    let lag = |outcome: &Outcome| {
        let [p50, p99, p9999] = lags(outcome);
        format!("{p50:.1} / {p99:.1} / {p9999:.0} us")
    };
    let stalls = &measured.stalls;
    let mut table = fermata_files::Table::new(["", ""].into_iter());
    let mut row = |name: String, value: String| table.row([name, value].into_iter());
    row("policy".to_owned(), name_of(trial.rules));
    row("models, GPUs".to_owned(), format!("{}, {}", trial.models, trial.executors));
    row("threads".to_owned(), format!("{} of models, 1 of GPUs", trial.model_threads));
    row("requests/s".to_owned(), million(measured.rate));
    row("lost".to_owned(), percent(measured.bad()));
    row("lost in virtual time".to_owned(), percent(measured.bad_virtual));
    row("mean batch".to_owned(), format!("{:.1}", batch(&measured.outcome)));
    row("waiting at most".to_owned(), grouped(measured.outcome.waiting_max as f64));
    let at = format!("lag P50 / P99 / P99.99 at {}", million(measured.lag_rate));
    row(at, lag(&measured.lag));
    let (p99, p9999) = (micros(stalls.p99), micros(stalls.p9999));
    row("the machine's own P99 / P99.99".to_owned(), format!("{p99:.1} / {p9999:.0} us"));
    let instructions = instructions.map_or("not counted".to_owned(), |n| format!("{n:.0}"));
    row("instructions/request".to_owned(), instructions);
    table.render()
}

/// Of one setting, for programs.
pub(super) fn json(trial: &Trial, measured: &Measured, instructions: Option<f64>) -> String {
    let lag = |outcome: &Outcome| {
        let [p50, p99, p9999] = lags(outcome);
        json!({ "p50": p50, "p99": p99, "p9999": p9999 })
    };
    let stalls = &measured.stalls;
    let value: Value = json!({
        "policy": name_of(trial.rules),
        "models": trial.models,
        "gpus": trial.executors,
        "model_threads": trial.model_threads,
        "seconds": trial.length.as_secs(),
        "spin": trial.spin,
        "pin": trial.pin,
        "requests_per_s": measured.rate,
        "bad_rate": measured.bad(),
        "bad_rate_virtual": measured.bad_virtual,
        "mean_batch": batch(&measured.outcome),
        "waiting_max": measured.outcome.waiting_max,
        "lag_at_requests_per_s": measured.lag_rate,
        "lag_us": lag(&measured.lag),
        "machine_stalls_us": { "p99": micros(stalls.p99), "p9999": micros(stalls.p9999) },
        "instructions_per_request": instructions,
    });
    format!("{value:#}\n")
}

fn batch(outcome: &Outcome) -> f64 {
    outcome.sent as f64 / outcome.batches.max(1) as f64
}

fn lags(outcome: &Outcome) -> [f64; 3] {
    [0.5, 0.99, 0.9999].map(|quantile| outcome.lag.value_at_quantile(quantile) as f64 / 1e3)
}

fn grouped(number: f64) -> String {
    fermata_chart::grouped(number, 0)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn million(rate: f64) -> String {
    format!("{:.2} million", rate / 1e6)
}

fn percent(share: f64) -> String {
    format!("{:.3} %", 100.0 * share)
}

/// A rate for each GPU: with so much each, pools of any size have the same batches.
const PER_GPU: f64 = 12_000.0;
const MODELS: [usize; 6] = [1, 10, 37, 100, 1_000, 10_000];
const GPUS: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// Measures everything, and writes the document.
pub(super) fn write(args: &SchedulerArgs, trial: &Trial) -> anyhow::Result<()> {
    let file = args.out.join("scheduler.md");
    output::check_writable("--out", &file)?;
    let (start, machine) = (Start::now(), Machine::this());
    let mut text = INTRODUCTION.to_owned();
    text.push_str(&targets(trial)?);
    text.push_str(&idling(trial));
    text.push_str(&memory(trial));
    let (counted, picture) = growth(trial);
    text.push_str(&counted);
    text.push_str(&machine.provenance(args.seed, &start));
    output::write_file(&file, &text)?;
    output::write_file(&args.out.join("scheduler.svg"), &picture)?;
    output::print(&format!("{}\n", file.display()))
}

const INTRODUCTION: &str = "# The scheduler, measured

What `fermata bench scheduler --all` found: requests offered in the process as an open loop \
(Poisson), to emulated GPUs, without network and payload (Symphony 5.5).
Threads and clock are real. Models are alike: a batch of b takes as long as b + 4.8 requests, \
scaled so that the GPUs are 80 % busy in batches of 16, the largest; the SLO is 25 ms, or
twice what it takes to gather and run a batch, if that is longer. *Lost* are requests that were \
dropped because they could not be in time. *Sustained* is the highest rate at which no more
than one in a thousand is lost beyond what virtual time loses. *Lag* is the time from the moment \
at which a batch could have been decided (its candidate ready, its GPU free) to the
decision. *The machine's own* is how long threads that only look at the clock are kept from it, on \
the same cores just before: nobody is more punctual than that.
`docs/scheduler.md` has the design, and what it was expected to cost.

";

fn targets(trial: &Trial) -> anyhow::Result<String> {
    let mut table = Table::new([
        "policy, models x GPUs",
        "sustained (requests/s)",
        "at least",
        "lost",
        "in virtual time",
        "mean batch",
        "waiting, most",
        "lag P99 at half (us)",
        "at most",
        "lag P99.99 (us)",
        "at most",
        "the machine's own P99, P99.99",
    ]);
    let settings = [
        (Rules::DEFERRED, 37, 1_000, "12 million"),
        (Rules::RELEASE, 37, 1_000, "8 million"),
        (Rules::DEFERRED, 1_000, 10_000, "8 million"),
        (Rules::RELEASE, 1_000, 10_000, ""),
    ];
    for (rules, models, executors, least) in settings {
        let trial = Trial { rules, models, executors, ..trial.clone() };
        let what = format!("{}, {models} x {}", name_of(rules), grouped(executors as f64));
        say(&what);
        let found = measure(&trial, None, say)?;
        let [_, p99, p9999] = lags(&found.lag);
        let stalls = format!("{:.0}, {:.0}", micros(found.stalls.p99), micros(found.stalls.p9999));
        table.add([
            what,
            million(found.rate),
            least.to_owned(),
            percent(found.bad()),
            percent(found.bad_virtual),
            format!("{:.1}", batch(&found.outcome)),
            grouped(found.outcome.waiting_max as f64),
            format!("{p99:.1}"),
            "20".to_owned(),
            format!("{p9999:.0}"),
            "200".to_owned(),
            stalls,
        ]);
    }
    Ok(format!("## Sustained\n\n{}\n", table.markdown()))
}

/// What it brings to keep looking in place of sleeping.
fn idling(trial: &Trial) -> String {
    let mut table =
        Table::new(["requests/s", "lag P50 (us)", "P99", "P50, spinning", "P99, spinning"]);
    for rate in [1e4, 1e5, 1e6, 6e6] {
        let trial = Trial { rules: Rules::DEFERRED, ..trial_at(trial, rate) };
        let mut cells = vec![grouped(rate)];
        for spin in [false, true] {
            let [p50, p99, _] = lags(&Trial { spin, ..trial.clone() }.run());
            cells.extend([format!("{p50:.1}"), format!("{p99:.1}")]);
        }
        table.add(cells);
    }
    format!(
        "## Asleep or spinning\n\nThreads that have nothing to do sleep, unless they are told to \
         spin (`--spin`): lags of `deferred`, 37 x 1,000.\n\n{}\n",
        table.markdown()
    )
}

/// What a waiting request takes, in memory that the process has got from the machine.
fn memory(trial: &Trial) -> String {
    const WAITING: usize = 4_000_000;
    let taken = crate::trials::scheduler::memory(trial, WAITING, || resident().unwrap_or_default());
    format!(
        "## Memory\n\n{} requests that wait for {} models take {:.1} bytes each (at most 64 \
         asked): the resident memory of the process, after less before.\n\n",
        grouped(WAITING as f64),
        trial.models,
        taken as f64 / WAITING as f64
    )
}

/// Bytes of memory that this process has.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// What a request costs, by models and by GPUs.
fn growth(trial: &Trial) -> (String, String) {
    let mut text = String::from(
        "## Instructions of a request\n\nCounted one by one, in virtual time and on one thread: \
         drawing the request, its way through the shard, its share of a batch in shard, mailbox \
         and hub, the GPU's end. \
         12,000 requests a second for each GPU.\n\n",
    );
    let count = |rules: Rules, models: usize, executors: usize| {
        let rate = PER_GPU * executors as f64;
        let length = Span::from_secs(1e4);
        let trial =
            Trial { rules, models, executors, rate, length, model_threads: 1, ..trial.clone() };
        count::instructions(&trial, &name_of(rules))
            .map_err(|error| say(&format!("{error:#}")))
            .ok()
    };
    let cell = |found: Option<f64>| found.map_or("not counted".to_owned(), |n| format!("{n:.0}"));
    let mut panels: Vec<Box<dyn Panel>> = Vec::new();
    let mut by = |head: &str, numbers: &[usize], setting: &dyn Fn(usize) -> (usize, usize)| {
        let mut table = Table::new([head, "deferred", "fermata"]);
        let mut points = [Vec::new(), Vec::new()];
        for &number in numbers {
            let (models, executors) = setting(number);
            say(&format!("instructions of {models} x {executors}"));
            let found =
                [Rules::DEFERRED, Rules::RELEASE].map(|rules| count(rules, models, executors));
            for (points, found) in points.iter_mut().zip(found) {
                points.extend(found.map(|found| (number as f64, found)));
            }
            table.add([grouped(number as f64), cell(found[0]), cell(found[1])]);
        }
        let series = ["deferred", "fermata"].into_iter().zip(points);
        panels.push(Box::new(Lines {
            title: format!("by {head}"),
            x: Axis::log(head),
            y: Axis::from_zero("instructions / request"),
            series: series.map(|(name, points)| Series::measured(name, points)).collect(),
            marks: Vec::new(),
        }));
        table.markdown()
    };
    let gpus = by("GPUs", &GPUS, &|gpus| (37, gpus));
    let models = by("models", &MODELS, &|models| (models, 1_000));
    text.push_str(&format!(
        "37 models:\n\n{gpus}\n1,000 GPUs:\n\n{models}\n![Instructions of a \
         request](./scheduler.svg)\n"
    ));
    let figure = Figure {
        title: "Instructions of a request".to_owned(),
        subtitle: "37 models on the left, 1,000 GPUs on the right".to_owned(),
        width: 900.0,
        rows: vec![Row { height: 280.0, panels }],
    };
    (text, figure.render())
}
