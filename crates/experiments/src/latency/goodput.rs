//! What it costs in goodput to use spare executors for latency, and how busy executors are below
//! the peak where they can be given away.

use fermata_chart::{Axis, Lines, Panel, Series, grouped};

use super::{Bench, policy};
use crate::document::{Section, Table, bold_if, figure};
use crate::trials::symphony::{
    Contender, LoadPoint, Model, Pool, figure2_pool, sweep, zoo_1080ti, zoo_a100,
};

const OURS: [&str; 2] = ["fermata", "fermata:release"];
/// What is asked of the goodput of the default policy, over that of `fermata:release`.
const RATIO: f64 = 0.995;
/// The loads below the peak, as shares of it.
const BELOW: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// By how many points busy executors may differ from their share of the peak, up to which load.
const POINTS: f64 = 4.0;
const POINTS_UNTIL: f64 = 0.75;

/// A pool, and the goodput that is asked of the default policy; zero, if only the ratio is asked.
type Target = (&'static str, Pool, f64);

fn targets() -> Vec<Target> {
    let [resnet, inception] = [Model::resnet50(25.0), Model::inception_resnet(70.0)];
    vec![
        ("A100 zoo, 64 GPUs", Pool::new(zoo_a100(), 64), 0.0),
        ("1080Ti zoo, 64 GPUs", Pool::new(zoo_1080ti(), 64), 0.0),
        ("ResNet50, SLO 25 ms, 8 GPUs", Pool::alike(&resnet, 1, 8), 0.0),
        ("InceptionResNetV2, SLO 70 ms, 8 GPUs", Pool::alike(&inception, 1, 8), 0.0),
        ("ResNet50, SLO 25 ms, 1 GPU", Pool::alike(&resnet, 1, 1), 430.0),
        ("ResNet50, SLO 25 ms, 2 GPUs", Pool::alike(&resnet, 1, 2), 1_100.0),
    ]
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let lab = bench.lab();
    let contenders = OURS.map(|name| Contender { name, policy: policy(name) });
    let targets = targets();
    let pools: Vec<&Pool> = targets.iter().map(|(_, pool, _)| pool).collect();
    let found = lab.goodputs_on(&pools, &contenders);
    let mut section = Section::default();
    section.say(format!(
        "Goodputs from runs of at least {} requests and {:.0} simulated seconds, searched to {:.1} \
         %. Asked: a ratio of at least {RATIO} where no goodput is asked.",
        grouped(lab.effort.requests as f64, 0),
        lab.effort.seconds,
        100.0 * lab.effort.precision
    ));
    section.say(table(&targets, &found));

    let pool = figure2_pool();
    let peaks = lab.goodputs(&pool, &contenders);
    let shares = || BELOW.into_iter().chain([1.0]);
    let asked: Vec<(Contender, Vec<f64>)> = contenders
        .iter()
        .zip(&peaks)
        .map(|(&contender, peak)| (contender, shares().map(|share| share * peak).collect()))
        .collect();
    let curves = sweep(&lab, &pool, &asked);
    section.say("### Busy below the peak: 10 ResNet50, SLO 100 ms, 24 GPUs");
    section.say(proportionality(&peaks, &curves));
    section.show("goodput", "utilisation below the peak", picture(&curves));
    Ok(section)
}

fn table(targets: &[Target], found: &[Vec<f64>]) -> String {
    let mut table = Table::new([
        "goodput (requests/s)",
        "fermata",
        "asked",
        "fermata:release",
        "fermata / release",
        "asked",
    ]);
    for ((what, _, at_least), found) in targets.iter().zip(found) {
        let ratio = found[0] / found[1];
        let only_ratio = *at_least == 0.0;
        let dash = || "-".to_owned();
        table.add([
            (*what).to_owned(),
            bold_if(found[0] < *at_least, grouped(found[0], 0)),
            if only_ratio { dash() } else { grouped(*at_least, 0) },
            grouped(found[1], 0),
            bold_if(only_ratio && ratio < RATIO, format!("{ratio:.4}")),
            if only_ratio { RATIO.to_string() } else { dash() },
        ]);
    }
    table.markdown()
}

/// How far busy executors are from a share of the peak's: asked of `fermata:release`.
fn proportionality(peaks: &[f64], curves: &[Vec<LoadPoint>]) -> String {
    let loads = BELOW.map(|share| format!("{:.0} %", 100.0 * share));
    let head = ["busy - load x busy at peak (points)", "peak (requests/s)", "busy at peak (%)"];
    let mut table = Table::new(head.map(str::to_owned).into_iter().chain(loads));
    for ((name, curve), peak) in OURS.iter().zip(curves).zip(peaks) {
        let top = curve[BELOW.len()].busy;
        let cells = BELOW.iter().zip(curve).map(|(share, point)| {
            let points = 100.0 * (point.busy - share * top);
            let is_asked = *name == "fermata:release" && *share < POINTS_UNTIL;
            bold_if(is_asked && points.abs() > POINTS, format!("{points:+.1}"))
        });
        let head = [(*name).to_owned(), grouped(*peak, 0), format!("{:.1}", 100.0 * top)];
        table.add(head.into_iter().chain(cells));
    }
    format!(
        "{}\nAsked of `fermata:release`: within {POINTS} points up to 70 %. The default policy \
         uses spare executors on purpose.\n",
        table.markdown()
    )
}

fn picture(curves: &[Vec<LoadPoint>]) -> String {
    let series = OURS.iter().zip(curves).map(|(name, curve)| {
        let shares = BELOW.into_iter().chain([1.0]);
        let points = shares.zip(curve).map(|(share, point)| (100.0 * share, 100.0 * point.busy));
        Series::measured(*name, points.collect())
    });
    let panel = Lines {
        title: "Utilisation up to the peak".to_owned(),
        x: Axis::between("load (% of the policy's peak)", 0.0, 100.0),
        y: Axis::between("GPUs busy (%)", 0.0, 100.0),
        series: series.collect(),
        marks: Vec::new(),
    };
    let panels: Vec<Box<dyn Panel>> = vec![Box::new(panel)];
    figure("Below the peak", "10 ResNet50, SLO 100 ms, 24 GPUs", vec![(360.0, panels)])
}
