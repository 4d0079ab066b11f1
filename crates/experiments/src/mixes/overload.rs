//! What is served of half as much again as the goodput.

use fermata_chart::grouped;

use super::Bench;
use super::named::{Case, EXECUTORS, cases, policy};
use crate::document::{Section, Table, bold_if};
use crate::trials::mixes::{DrawnMix, Overload, overload};

const POLICIES: [&str; 3] = ["fermata", "fermata:release", "eager"];
/// The load, over the policy's own goodput.
const TIMES: f64 = 1.5;
/// What is asked of the default policy: of all requests together, and of each model.
const ASKED_IN_ALL: f64 = 0.95;
const ASKED_OF_EACH: f64 = 0.5;
const REQUESTS: u64 = 400_000;
const QUICK_REQUESTS: u64 = 60_000;
const PRECISION: f64 = 0.002;

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let cases = cases(&bench.args.measured.zoo()?, &EXECUTORS, bench.suite.seed)?;
    let requests = if bench.suite.quick { QUICK_REQUESTS } else { REQUESTS };
    let jobs: Vec<(&Case, &str)> =
        cases.iter().flat_map(|case| POLICIES.map(|name| (case, name))).collect();
    let found = bench.spread(&jobs, |&(case, name)| {
        let drawn = DrawnMix::new(&case.mix, requests.max(case.mix.requests()), PRECISION);
        let goodput = drawn.goodput(policy(name)).rate;
        (goodput, overload(&drawn, policy(name), goodput, TIMES))
    });
    let mut section = Section::default();
    section.say(format!(
        "Each policy is offered {TIMES} times its own goodput. *In time*: the rate of all requests \
         that are in time, over the goodput (asked: {ASKED_IN_ALL}). *Least model*: the same of \
         each model over its share of the goodput, the lowest of them (asked: {ASKED_OF_EACH})."
    ));
    section.say(table(&cases, &found));
    Ok(section)
}

fn table(cases: &[Case], found: &[(f64, Overload)]) -> String {
    let columns = POLICIES.iter().flat_map(|name| {
        ["goodput", "in time", "least model"].map(|what| format!("{name}: {what}"))
    });
    let head = ["mix".to_owned(), "executors".to_owned()].into_iter();
    let mut table = Table::new(head.chain(columns));
    for (case, found) in cases.iter().zip(found.chunks(POLICIES.len())) {
        let cells = found.iter().enumerate().flat_map(|(at, (goodput, overload))| {
            let least = overload.by_model.iter().copied().fold(f64::INFINITY, f64::min);
            let cell =
                |value: f64, asked: f64| bold_if(at == 0 && value < asked, format!("{value:.3}"));
            [grouped(*goodput, 0), cell(overload.in_time, ASKED_IN_ALL), cell(least, ASKED_OF_EACH)]
        });
        let head = [case.named.title.to_owned(), case.mix.executors.to_string()].into_iter();
        table.add(head.chain(cells));
    }
    table.markdown()
}
