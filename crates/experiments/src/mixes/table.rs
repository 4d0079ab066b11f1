//! The goodput of the four named mixes, beside that of the best limit on the length of batches.

use fermata_chart::{Axis, BarSeries, Bars, Panel, grouped};

use super::Bench;
use super::named::{Case, EXECUTORS, NAMED, cases, policy};
use crate::document::{Section, Table, bold_if, figure};
use crate::trials::mixes::{DrawnMix, limited_rivals};

/// The policies with a column of their own; what is asked is asked of the first two.
const POLICIES: [&str; 4] = ["fermata", "fermata:release", "deferred", "eager"];
const ASKED: usize = 2;
/// The limits on the length of a batch, in milliseconds.
const LIMITS_MS: [f64; 9] = [0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 6.0, 9.0, 14.0];
/// A run has at least this many requests, and lasts at least this long at the rate that is asked.
const REQUESTS_MIN: u64 = 400_000;
const SECONDS_MIN: f64 = 10.0;
const QUICK_REQUESTS: u64 = 60_000;
const PRECISION: f64 = 0.002;
const QUICK_PRECISION: f64 = 0.01;

/// What was found of one case.
struct Found {
    /// By the names of `POLICIES`.
    goodputs: Vec<f64>,
    /// The best of all limits, and its name.
    limited: (f64, String),
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let cases = cases(&bench.args.measured.zoo()?, &EXECUTORS, bench.suite.seed)?;
    let found = measure(bench, &cases);
    let mut section = Section::default();
    let precision = if bench.suite.quick { QUICK_PRECISION } else { PRECISION };
    section.say(format!(
        "Goodput of both or all three models at equal rates, Poisson, in requests a second, \
         searched to {:.1} %. Profiles of an H200 (`profiles/h200`), linear between the measured \
         sizes (an engine that pads batches up to captured sizes is slower). *Best limit*: the \
         best of eager batching, and of eager batching and the default policy with each of nine \
         limits on the length of a batch ({} ms).",
        100.0 * precision,
        LIMITS_MS.map(|ms| ms.to_string()).join(", ")
    ));
    section.say(markdown(&cases, &found));
    section.show("table", "goodput over what is asked", picture(&cases, &found));
    Ok(section)
}

fn measure(bench: &Bench<'_>, cases: &[Case]) -> Vec<Found> {
    let quick = bench.suite.quick;
    let precision = if quick { QUICK_PRECISION } else { PRECISION };
    let rivals = limited_rivals(&LIMITS_MS);
    // The search for the best limit takes longest, and so comes first.
    let columns = [None].into_iter().chain(POLICIES.map(Some));
    let jobs: Vec<(&Case, Option<&str>)> =
        columns.flat_map(|column| cases.iter().map(move |case| (case, column))).collect();
    let mut each = bench.spread(&jobs, |(case, column)| {
        let requests = match quick {
            true => QUICK_REQUESTS,
            false => REQUESTS_MIN.max((SECONDS_MIN * case.asked) as u64),
        };
        let drawn = DrawnMix::new(&case.mix, requests.max(case.mix.requests()), precision);
        match column {
            Some(name) => (drawn.goodput(policy(name)).rate, String::new()),
            None => {
                let best = drawn.best_rival(&rivals);
                (best.goodput.rate, best.name)
            }
        }
    });
    let goodputs = each.split_off(cases.len());
    let of_case = |at: usize| goodputs.iter().skip(at).step_by(cases.len()).map(|(rate, _)| *rate);
    let found = each.into_iter().enumerate();
    found.map(|(at, limited)| Found { goodputs: of_case(at).collect(), limited }).collect()
}

fn markdown(cases: &[Case], found: &[Found]) -> String {
    let head = ["mix", "executors", "asked"].into_iter().chain(POLICIES);
    let mut table = Table::new(head.chain(["best limit", "which"]));
    let mut previous = "";
    for (case, found) in cases.iter().zip(found) {
        let title = if case.named.title == previous { "" } else { case.named.title };
        previous = case.named.title;
        let goodputs = found
            .goodputs
            .iter()
            .enumerate()
            .map(|(at, &rate)| bold_if(at < ASKED && rate < case.asked, grouped(rate, 0)));
        let head = [title.to_owned(), case.mix.executors.to_string(), grouped(case.asked, 0)];
        let limited = [grouped(found.limited.0, 0), found.limited.1.clone()];
        table.add(head.into_iter().chain(goodputs).chain(limited));
    }
    table.markdown()
}

/// Each mix in a panel: goodputs as a share of what is asked, by number of executors.
fn picture(cases: &[Case], found: &[Found]) -> String {
    let panels = NAMED.iter().map(|named| -> Box<dyn Panel> {
        let of_mix: Vec<(&Case, &Found)> =
            cases.iter().zip(found).filter(|(case, _)| case.named.title == named.title).collect();
        let series = |name: &str, rate: &dyn Fn(&Found) -> f64| BarSeries {
            name: name.to_owned(),
            values: of_mix.iter().map(|(case, found)| 100.0 * rate(found) / case.asked).collect(),
        };
        let policies = POLICIES.iter().enumerate();
        let mut all: Vec<BarSeries> =
            policies.map(|(at, name)| series(name, &|found| found.goodputs[at])).collect();
        all.push(series("best limit", &|found| found.limited.0));
        Box::new(Bars {
            title: named.title.to_owned(),
            x_title: "executors".to_owned(),
            y: Axis::from_zero("goodput (% of what is asked)"),
            groups: of_mix.iter().map(|(case, _)| case.mix.executors.to_string()).collect(),
            series: all,
            values: Some(0),
        })
    });
    let mut panels: Vec<Box<dyn Panel>> = panels.collect();
    let second = panels.split_off(2);
    figure("Goodput of four mixes", "equal rates, Poisson", vec![(320.0, panels), (320.0, second)])
}
