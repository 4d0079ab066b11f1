//! Rates that change: a model that falls silent and returns, and two models that swap their rates.

use fermata_chart::grouped;

use super::Bench;
use super::named::{Case, cases, policy};
use crate::document::{Section, Table, bold_if};
use crate::trials::mixes::{AfterChange, Change, after_change};

const POLICIES: [&str; 3] = ["fermata", "fermata:release", "eager"];
const EXECUTORS: [usize; 2] = [1, 2];
/// How much of the steady goodput is asked of the default policy, from a second after a change on.
const ASKED: f64 = 0.98;
const PRECISION: f64 = 0.002;
const QUICK_PRECISION: f64 = 0.02;
/// With `--quick`, phases are this much shorter.
const QUICK_STRETCH: f64 = 0.2;

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let cases = cases(&bench.args.measured.zoo()?, &EXECUTORS, bench.suite.seed)?;
    let quick = bench.suite.quick;
    let (stretch, precision) =
        if quick { (QUICK_STRETCH, QUICK_PRECISION) } else { (1.0, PRECISION) };
    let kinds = [
        (
            Change::Silence,
            "The model with the tightest objective falls silent and returns",
            "Ten seconds at equal rates, then five without the model that has the tightest \
             objective, four times.",
        ),
        (
            Change::Swap,
            "Two models swap their rates",
            "Ten seconds in which the first and the last model of the mix share their requests 90 \
             to 10, and ten in which they share them 10 to 90, four times.",
        ),
    ];
    let jobs: Vec<(Change, &Case, &str)> = kinds
        .iter()
        .flat_map(|(change, ..)| cases.iter().map(move |case| (*change, case)))
        .flat_map(|(change, case)| POLICIES.map(|name| (change, case, name)))
        .collect();
    let found = bench.spread(&jobs, |&(change, case, name)| {
        after_change(&case.mix, change, policy(name), stretch, precision)
    });

    let mut section = Section::default();
    section.say(format!(
        "A policy learns rates, and must unlearn them. *After*: the highest total rate at which \
         every model has 99 % of those requests in time that arrive at least a second after a \
         change (the start is one). *Steady*: the same where the rates of each phase are those of \
         the whole run, counted over the same seconds. *At once*: at 90 % of the steady goodput, \
         the highest share of a model's requests that are bad among those of the first second \
         after a change. Asked: after / steady at least {ASKED}. Each phase begins with one more \
         second, which is not counted."
    ));
    for ((_, title, text), found) in kinds.iter().zip(found.chunks(cases.len() * POLICIES.len())) {
        section.say(format!("### {title}"));
        section.say(*text);
        section.say(table(&cases, found));
    }
    Ok(section)
}

/// The columns of a policy: how much is lost by the change.
fn table(cases: &[Case], found: &[AfterChange]) -> String {
    let head = ["mix".to_owned(), "executors".to_owned()].into_iter();
    let columns = POLICIES.iter().enumerate().flat_map(|(at, name)| {
        let steady = (at == 0).then(|| format!("{name}: steady (requests/s)"));
        let others = ["after / steady", "bad at once (%)"].map(|what| format!("{name}: {what}"));
        steady.into_iter().chain(others)
    });
    let mut table = Table::new(head.chain(columns));
    for (case, found) in cases.iter().zip(found.chunks(POLICIES.len())) {
        let cells = found.iter().enumerate().flat_map(|(at, found)| {
            let ratio = found.changing / found.steady;
            let steady = (at == 0).then(|| grouped(found.steady, 0));
            let ratio = bold_if(at == 0 && ratio < ASKED, format!("{ratio:.3}"));
            steady.into_iter().chain([ratio, format!("{:.2}", 100.0 * found.bad_at_once)])
        });
        let head = [case.named.title.to_owned(), case.mix.executors.to_string()].into_iter();
        table.add(head.chain(cells));
    }
    table.markdown()
}
