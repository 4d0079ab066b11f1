//! What Fermata must show: goodputs, the flat top, proportionality, a lone request, and speed.

use std::time::Instant;

use fermata_chart::{Axis, Lines, Mark, Series, grouped};
use fermata_dispatch::Policy;
use fermata_sim::{Drawn, Scenario, Search, goodput, run_drawn};

use super::Bench;
use crate::document::{Section, Table, figure};
use crate::trials::symphony::{
    Contender, Lab, LoadPoint, Model, Pool, figure2_pool, lone_wait, sweep, zoo_1080ti, zoo_a100,
};

const OURS: [&str; 2] = ["deferred", "fermata"];

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let lab = bench.thorough_lab();
    let mut section = Section::default();
    let effort = lab.effort;
    let seconds = match effort.seconds > 0.0 {
        true => format!(" and {:.0} simulated seconds", effort.seconds),
        false => String::new(),
    };
    section.say(format!(
        "Goodputs from runs of at least {} requests{seconds}, searched to {:.1} %.",
        grouped(effort.requests as f64, 0),
        100.0 * effort.precision
    ));
    section.say(goodputs(&lab));

    let pool = figure2_pool();
    let contenders = Contender::all(&OURS);
    let peaks = lab.goodputs(&pool, &contenders);
    let curves = around_the_peak(&lab, &pool, &contenders, &peaks);
    section.say("### Above and below the peak: 10 ResNet50, SLO 100 ms, 24 GPUs");
    section.say(flat_top(&peaks, &curves));
    section.say(proportionality(&curves));
    section.show("targets", "utilisation below the peak", picture(&peaks, &curves));

    section.say("### A lone request on an idle executor");
    let waits = contenders.iter().map(|contender| {
        format!(
            "`{}` starts it after {:.3} ms",
            contender.name,
            lone_wait(contender.policy).as_ms()
        )
    });
    section.say(format!("{} (ResNet50, SLO 25 ms).", waits.collect::<Vec<_>>().join("; ")));

    section.say("### Speed of dispatch and event loop, one thread");
    section.say(speeds(&lab));
    Ok(section)
}

/// One row of the goodput table.
struct Target {
    what: &'static str,
    pool: Pool,
    paper: &'static str,
    /// By the names of `OURS`; zero where nothing is asked.
    at_least: [f64; 2],
}

fn targets() -> Vec<Target> {
    let [resnet, inception] = [Model::resnet50(25.0), Model::inception_resnet(70.0)];
    let single = |model: &Model, gpus| Pool::alike(model, 1, gpus);
    vec![
        Target {
            what: "ResNet50, SLO 25 ms, 8 GPUs",
            pool: single(&resnet, 8),
            paper: "5,264",
            at_least: [5250.0, 5500.0],
        },
        Target {
            what: "InceptionResNetV2, SLO 70 ms, 8 GPUs",
            pool: single(&inception, 8),
            paper: "926",
            at_least: [930.0, 977.0],
        },
        Target {
            what: "A100 zoo, 64 GPUs",
            pool: Pool::new(zoo_a100(), 64),
            paper: "-",
            at_least: [17000.0, 18450.0],
        },
        Target {
            what: "1080Ti zoo, 64 GPUs",
            pool: Pool::new(zoo_1080ti(), 64),
            paper: "-",
            at_least: [7250.0, 7730.0],
        },
        Target {
            what: "ResNet50, SLO 25 ms, 1 GPU",
            pool: single(&resnet, 1),
            paper: "-",
            at_least: [0.0, 426.0],
        },
        Target {
            what: "ResNet50, SLO 25 ms, 2 GPUs",
            pool: single(&resnet, 2),
            paper: "-",
            at_least: [0.0, 1093.0],
        },
    ]
}

fn goodputs(lab: &Lab<'_>) -> String {
    let names = ["eager", OURS[0], OURS[1]];
    let contenders = Contender::all(&names);
    let mut table = Table::new([
        "goodput (requests/s)",
        "paper",
        "eager",
        "deferred",
        "at least",
        "fermata",
        "at least",
        "bound",
    ]);
    let targets = targets();
    let pools: Vec<&Pool> = targets.iter().map(|target| &target.pool).collect();
    for (target, found) in targets.iter().zip(lab.goodputs_on(&pools, &contenders)) {
        let number = |value: f64| if value > 0.0 { grouped(value, 0) } else { "-".to_owned() };
        let [deferred, fermata] = [0, 1].map(|at| mark(found[at + 1], target.at_least[at], 0));
        table.add([
            target.what.to_owned(),
            target.paper.to_owned(),
            grouped(found[0], 0),
            deferred,
            number(target.at_least[0]),
            fermata,
            number(target.at_least[1]),
            grouped(target.pool.bound(), 0),
        ]);
    }
    format!("{}\nBold: below what is asked.\n", table.markdown())
}

/// A number, in bold where it is below what is asked.
fn mark(value: f64, at_least: f64, decimals: usize) -> String {
    let text = grouped(value, decimals);
    if value < at_least { format!("**{text}**") } else { text }
}

const ABOVE: [f64; 3] = [1.1, 1.5, 3.0];
const BELOW: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// For each policy the loads below its peak, the peak, and the loads above it.
fn around_the_peak(
    lab: &Lab<'_>,
    pool: &Pool,
    contenders: &[Contender],
    peaks: &[f64],
) -> Vec<Vec<LoadPoint>> {
    let shares: Vec<f64> = BELOW.into_iter().chain([1.0]).chain(ABOVE).collect();
    let asked: Vec<(Contender, Vec<f64>)> = contenders
        .iter()
        .zip(peaks)
        .map(|(&contender, peak)| (contender, shares.iter().map(|share| share * peak).collect()))
        .collect();
    sweep(lab, pool, &asked)
}

fn flat_top(peaks: &[f64], curves: &[Vec<LoadPoint>]) -> String {
    let mut table = Table::new([
        "in-time rate / peak",
        "peak (requests/s)",
        "at 110 %",
        "at 150 %",
        "at 300 %",
        "at least",
    ]);
    for ((name, peak), curve) in OURS.iter().zip(peaks).zip(curves) {
        let asked = if *name == "fermata" { 0.99 } else { 0.0 };
        let cells =
            curve[BELOW.len() + 1..].iter().map(|point| mark(point.in_time / peak, asked, 3));
        let asked = if asked > 0.0 { format!("{asked}") } else { "-".to_owned() };
        table.add([(*name).to_owned(), grouped(*peak, 0)].into_iter().chain(cells).chain([asked]));
    }
    table.markdown()
}

fn proportionality(curves: &[Vec<LoadPoint>]) -> String {
    let loads = BELOW.map(|share| format!("{:.0} %", 100.0 * share));
    let head = ["busy - load x busy at peak (points)".to_owned(), "busy at peak (%)".to_owned()];
    let mut table = Table::new(head.into_iter().chain(loads));
    for (name, curve) in OURS.iter().zip(curves) {
        let top = curve[BELOW.len()].busy;
        let difference = |(share, point): (&f64, &LoadPoint)| {
            let points = 100.0 * (point.busy - share * top);
            let text = format!("{points:+.1}");
            // Asked of the default policy up to 70 %.
            let missed = *name == "fermata" && *share < 0.75 && points.abs() > 4.0;
            if missed { format!("**{text}**") } else { text }
        };
        let cells = BELOW.iter().zip(curve).map(difference);
        table.add([(*name).to_owned(), format!("{:.1}", 100.0 * top)].into_iter().chain(cells));
    }
    format!("{}\nAsked: within 4 points up to 70 %.\n", table.markdown())
}

fn picture(peaks: &[f64], curves: &[Vec<LoadPoint>]) -> String {
    let series = |value: fn(&LoadPoint, f64) -> f64| -> Vec<Series> {
        let each = OURS.iter().zip(curves).zip(peaks).rev();
        each.map(|((name, curve), &peak)| {
            let points =
                curve.iter().map(|point| (100.0 * point.offered / peak, value(point, peak)));
            Series::measured(*name, points.collect())
        })
        .collect()
    };
    let in_time = Lines {
        title: "In time".to_owned(),
        x: Axis::from_zero("offered (% of the policy's peak)"),
        y: Axis::from_zero("in time (% of the peak)"),
        series: series(|point, peak| 100.0 * point.in_time / peak),
        marks: vec![Mark::Y(99.0, "99 %".to_owned())],
    };
    let busy = Lines {
        title: "Utilisation up to the peak".to_owned(),
        x: Axis::between("offered (% of the policy's peak)", 0.0, 100.0),
        y: Axis::between("GPUs busy (%)", 0.0, 100.0),
        series: series(
            |point, peak| if point.offered > 1.01 * peak { f64::NAN } else { 100.0 * point.busy },
        ),
        marks: Vec::new(),
    };
    figure(
        "Above and below the peak",
        "10 ResNet50, SLO 100 ms, 24 GPUs",
        vec![(340.0, vec![Box::new(in_time), Box::new(busy)])],
    )
}

/// Of each policy's own goodput: busy, and not overloaded.
const SPEED_LOAD: f64 = 0.9;
const SPEED_RUNS: usize = 5;

/// Nanoseconds a request: the median of several runs, from arrivals drawn beforehand.
fn speeds(lab: &Lab<'_>) -> String {
    let large = zoo_a100().into_iter().cycle().take(200).collect();
    let pools = [
        ("A100 zoo, 37 models, 64 GPUs", Pool::new(zoo_a100(), 64)),
        ("A100 zoo, 200 models, 1,000 GPUs", Pool::new(large, 1000)),
    ];
    let mut table =
        Table::new(["load", "policy", "requests/s", "ns a request (median of 5)", "at most"]);
    for (what, pool) in pools {
        let requests = lab.effort.requests;
        let scenario = pool.scenario(pool.likely_rate(), requests, lab.seed);
        for (name, at_most) in OURS.into_iter().zip([60.0, 120.0]) {
            let policy = Contender::all(&[name])[0].policy;
            let search = Search { precision: 0.02, guess: Some(scenario.rate()) };
            let rate = SPEED_LOAD * goodput(&scenario, policy, search);
            let scenario = scenario.scaled(rate / scenario.rate());
            let drawn = Drawn::new(&scenario, 1.0);
            let mut times: Vec<f64> =
                (0..SPEED_RUNS).map(|_| time(&scenario, &drawn, policy)).collect();
            times.sort_by(f64::total_cmp);
            let median = times[SPEED_RUNS / 2] / requests as f64;
            let text = format!("{median:.1}");
            table.add([
                what.to_owned(),
                name.to_owned(),
                grouped(rate, 0),
                if median > at_most { format!("**{text}**") } else { text },
                format!("{at_most:.0}"),
            ]);
        }
    }
    table.markdown()
}

/// Nanoseconds of one run of dispatch and event loop, the arrivals drawn before, nothing but counts
/// kept.
fn time(scenario: &Scenario, drawn: &Drawn, policy: Policy) -> f64 {
    let start = Instant::now();
    let stats = run_drawn(scenario, drawn, 1.0, policy, None);
    let took = start.elapsed();
    assert!(stats.total().offered > 0, "requests came");
    took.as_secs_f64() * 1e9
}
