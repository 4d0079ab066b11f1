//! A client that asks alone, after other models had traffic, and its own model before that: what a
//! policy has learned must be unlearned within a few requests.

use std::sync::Arc;

use fermata_core::Span;
use fermata_dispatch::ModelSpec;
use fermata_sim::{LoadPhase, Source, run_phases};

use super::{Bench, policy};
use crate::document::{Section, Table, bold_if};

/// The models, each with an objective of `SLO_MS`.
const MODELS: [&str; 3] = ["resnet50", "lenet", "bert_short"];
const SLO_MS: f64 = 10.0;
const EXECUTORS: [usize; 3] = [1, 2, 8];
/// Requests a second of the other two models together, before the clients of a model come.
const BEFORE: [f64; 3] = [200.0, 1_000.0, 4_000.0];
const BEFORE_SECONDS: f64 = 3.0;
/// How many clients ask, and for how long.
const CLIENTS: [usize; 2] = [1, 4];
const CLIENTS_SECONDS: f64 = 3.0;
/// A client sends its next request this long after an answer.
pub(super) const THINK: Span = Span(100_000);
/// The median is that of the answers after this many.
const SKIPPED: usize = 9;
/// What is asked of both values of spare: the median over that of eager batching.
const ASKED: f64 = 1.05;
const POLICIES: [&str; 3] = ["eager", "fermata", "fermata:release"];

/// What is run.
#[derive(Clone, Copy)]
struct Job {
    executors: usize,
    clients: usize,
    /// The rate of the other models before.
    before: f64,
    policy: &'static str,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let zoo = bench.args.measured.zoo()?;
    let mut models = Vec::new();
    for name in MODELS {
        let profile = zoo.find(name)?.profile.clone();
        models.push(Arc::new(ModelSpec::uniform(Span::from_ms(SLO_MS), profile)));
    }
    let mut jobs = Vec::new();
    for executors in EXECUTORS {
        for clients in CLIENTS {
            for before in BEFORE {
                jobs.extend(POLICIES.map(|policy| Job { executors, clients, before, policy }));
            }
        }
    }
    let medians = bench.spread(&jobs, |job| measure(&models, *job, bench.suite.seed));

    let mut section = Section::default();
    section.say(format!(
        "Three models of an H200 with an objective of {SLO_MS} ms, one after the other, in one \
         run. \
         For {BEFORE_SECONDS} s, the other two have Poisson traffic, half of it each; for \
         {CLIENTS_SECONDS} s after that, there is nothing but one or four clients of the model, \
         each of which sends its next request {} ms after an answer. Medians from the tenth answer \
         on, in milliseconds under eager batching and over that median under the other policies, \
         by the requests a second of the traffic before. Asked: at most {ASKED}.",
        THINK.as_ms()
    ));
    section.say(table(&jobs, &medians));
    Ok(section)
}

/// The median of the clients of each model.
fn measure(models: &[Arc<ModelSpec>], job: Job, seed: u64) -> Vec<f64> {
    let others = Source::Poisson(job.before / (MODELS.len() - 1) as f64);
    let clients = Source::Clients { count: job.clients, think: THINK };
    let phase = |seconds: f64, model: usize, own: Source, other: Source| {
        let sources = (0..MODELS.len()).map(|at| if at == model { own } else { other }).collect();
        LoadPhase { length: Span::from_secs(seconds), sources }
    };
    let in_turn = (0..MODELS.len()).flat_map(|model| {
        [
            phase(BEFORE_SECONDS, model, Source::Silent, others),
            phase(CLIENTS_SECONDS, model, clients, Source::Silent),
        ]
    });
    let phases: Vec<LoadPhase> = in_turn.collect();
    let answers = run_phases(models, job.executors, &phases, policy(job.policy), seed);
    let with_clients = answers.iter().skip(1).step_by(2).enumerate();
    with_clients.map(|(model, answers)| answers[model].quantile(0.5, SKIPPED).as_ms()).collect()
}

/// A row for each number of executors, number of clients and model.
fn table(jobs: &[Job], medians: &[Vec<f64>]) -> String {
    let after = |name: &'static str| BEFORE.map(|rate| format!("{name}, {rate:.0}/s"));
    let head = ["model, clients", "executors", "eager (ms)"].map(str::to_owned).into_iter();
    let columns = POLICIES[1..].iter().flat_map(|name| after(name));
    let mut table = Table::new(head.chain(columns));
    let in_row = BEFORE.len() * POLICIES.len();
    for (jobs, medians) in jobs.chunks(in_row).zip(medians.chunks(in_row)) {
        for (model, name) in MODELS.iter().enumerate() {
            let of_policy =
                |at: usize| medians.iter().skip(at).step_by(POLICIES.len()).map(|each| each[model]);
            let cells = (1..POLICIES.len()).flat_map(|at| {
                of_policy(at).zip(of_policy(0)).map(|(median, eager)| {
                    let ratio = median / eager;
                    bold_if(ratio > ASKED || ratio.is_nan(), format!("{ratio:.2}"))
                })
            });
            let clients = if jobs[0].clients == 1 { "client" } else { "clients" };
            let head = [
                format!("{name}, {} {clients}", jobs[0].clients),
                jobs[0].executors.to_string(),
                of_policy(0).next().map_or(String::new(), |eager| format!("{eager:.3}")),
            ];
            table.add(head.into_iter().chain(cells));
        }
    }
    table.markdown()
}
