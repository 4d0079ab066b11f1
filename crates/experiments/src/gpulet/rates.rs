//! Gpulet 5.2, figures 12 and 16: the highest rate of game, traffic and five scenarios that each
//! method schedules.

use fermata_chart::{Axis, BarSeries, Bars, grouped};
use fermata_plan::shares::{self, Coefficients};

use super::methods::{ELASTIC, IDEAL, LEGEND, METHODS, SHARES, SQUISHY};
use super::models::{self, Load, Model, World};
use super::{Bench, GPUS};
use crate::document::{Section, Table, figure};
use crate::trials::symphony::Meter;

/// Rates are tried in steps of this part of what a fluid would allow.
const STEP: f64 = 0.0025;
const QUICK_STEP: f64 = 0.02;

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let models = models::nine();
    let cases = cases(&models);
    let step = if bench.suite.quick { QUICK_STEP } else { STEP };
    let worlds = worlds();
    bench.progress.expect(worlds.len() * cases.len());
    let mut found = Vec::new();
    for (_, world) in &worlds {
        let mut rows = Vec::new();
        for case in &cases {
            rows.push(highest(case, world, step)?);
            bench.progress.finish_one();
        }
        found.push(rows);
    }

    let mut section = Section::default();
    section.say(format!(
        "Models of a load are asked for at one rate each, which is raised on four GPUs; rates are \
         multiples of {} % of what GPUs that are a fluid would \
         allow, and the highest that is scheduled counts. *game* is six LeNets and ResNet50 side \
         by side, all within 108 ms. *traffic* is SSD, then GoogLeNet and VGG-16, within 202 ms: \
         the two phases get it in proportion to their latencies at a batch of 32, 118.6 and 83.4 \
         ms. Models, latencies and interference are those of the section \
         *scenarios*.",
        100.0 * step
    ));
    section.say(LEGEND);
    let usual = &found[0];
    let mut table =
        Table::new(["requests/s of each model"].into_iter().chain(METHODS.iter().map(|m| m.name)));
    for (case, row) in cases.iter().zip(usual) {
        let cells = row.iter().map(|&rate| grouped(rate, 0));
        table.add([case.name.to_owned()].into_iter().chain(cells));
    }
    section.say(table.markdown());
    let mut table =
        Table::new(["relative to ideal"].into_iter().chain(METHODS.iter().map(|m| m.name)));
    for (case, row) in cases.iter().zip(usual) {
        let cells = row.iter().map(|&rate| format!("{:.3}", rate / row[IDEAL]));
        table.add([case.name.to_owned()].into_iter().chain(cells));
    }
    let means = (0..METHODS.len()).map(|at| format!("{:.3}", mean(usual, at, IDEAL)));
    table.add(["mean".to_owned()].into_iter().chain(means));
    section.say(table.markdown());
    let least = usual.iter().map(|row| row[SHARES] / row[IDEAL]).fold(f64::INFINITY, f64::min);
    section.say(format!(
        "- Shares against ideal: at least {least:.3} on each load (paper's elastic: 0.926 on \
         average; here {:.3}).\n\
         - Gain over squishy without shares, mean of the loads: shares {:+.1} %, elastic {:+.1} % \
         (paper: +61.7 %).",
        mean(usual, ELASTIC, IDEAL),
        100.0 * (mean(usual, SHARES, SQUISHY) - 1.0),
        100.0 * (mean(usual, ELASTIC, SQUISHY) - 1.0),
    ));
    section.say("How much of that hangs on what was assumed:");
    let mut table = Table::new([
        "means of the loads",
        "shares over ideal",
        "least of them",
        "elastic over ideal",
        "shares over squishy",
        "elastic over squishy",
    ]);
    for ((name, _), rows) in worlds.iter().zip(&found) {
        let least = rows.iter().map(|row| row[SHARES] / row[IDEAL]).fold(f64::INFINITY, f64::min);
        let cells = [
            mean(rows, SHARES, IDEAL),
            least,
            mean(rows, ELASTIC, IDEAL),
            mean(rows, SHARES, SQUISHY),
            mean(rows, ELASTIC, SQUISHY),
        ];
        let cells = cells.map(|ratio| format!("{ratio:.3}"));
        table.add([(*name).to_owned()].into_iter().chain(cells));
    }
    section.say(table.markdown());
    section.show("rates", "highest rates by method", picture(&cases, usual));
    Ok(section)
}

/// A load of several models.
struct Case<'a> {
    name: &'static str,
    /// Each with its objective in milliseconds.
    models: Vec<(&'a Model, f64)>,
}

fn cases(models: &[Model]) -> Vec<Case<'_>> {
    let model = |short: &str| {
        let found = models.iter().find(|model| model.short == short);
        found.expect("loads are of the nine models")
    };
    let (lenet, resnet) = (model("le"), model("res"));
    let (ssd, googlenet, vgg) = (model("ssd"), model("goo"), model("vgg"));
    let mut game = vec![(lenet, resnet.slo_ms); 6];
    game.push((resnet, resnet.slo_ms));
    // The second phase takes as long as the longer of its two.
    let whole = ssd.slo_ms;
    let first = whole * ssd.slo_ms / (ssd.slo_ms + vgg.slo_ms.max(googlenet.slo_ms));
    let traffic = vec![(ssd, first), (googlenet, whole - first), (vgg, whole - first)];
    let mut cases =
        vec![Case { name: "game", models: game }, Case { name: "traffic", models: traffic }];
    for (name, shorts) in models::five() {
        let models = shorts.into_iter().map(|short| (model(short), model(short).slo_ms)).collect();
        cases.push(Case { name, models });
    }
    cases
}

/// As published, and otherwise.
fn worlds() -> Vec<(&'static str, World)> {
    let usual = World::usual();
    vec![
        ("as above", usual),
        ("half of the fixed parts", World { fixed: 0.5, ..usual }),
        ("no fixed parts", World { fixed: 0.0, ..usual }),
        ("no interference", World { coefficients: Coefficients::NONE, ..usual }),
        (
            "the prototype's slack: latencies x 1.1, 15 requests/s left over",
            World { margin: 1.1, left_over: 15.0, ..usual },
        ),
    ]
}

/// The highest rate of each model, by method.
fn highest(case: &Case<'_>, world: &World, step: f64) -> anyhow::Result<[f64; METHODS.len()]> {
    let load = |world: &World, rate: f64| {
        Load::new(world, case.models.iter().map(|&(model, slo_ms)| (model, slo_ms, rate)))
    };
    let probe = load(&World { left_over: 0.0, ..*world }, 1.0);
    let fluid = shares::scene(&probe.problem, &probe.rules, &probe.traits).load();
    let most = GPUS as f64 / fluid + world.left_over;
    let steps = (1.0 / step).round() as usize;
    let mut rates = [0.0; METHODS.len()];
    for (method, highest) in METHODS.iter().zip(&mut rates) {
        // From above, since a method may schedule a rate and fail at a lower one.
        for at in (1..=steps).rev() {
            let rate = most * at as f64 / steps as f64;
            if method.schedules(&load(world, rate))? {
                *highest = rate;
                break;
            }
        }
    }
    Ok(rates)
}

fn mean(rows: &[[f64; METHODS.len()]], of: usize, over: usize) -> f64 {
    rows.iter().map(|row| row[of] / row[over]).sum::<f64>() / rows.len() as f64
}

fn picture(cases: &[Case<'_>], rows: &[[f64; METHODS.len()]]) -> String {
    let series = METHODS.iter().enumerate().map(|(at, method)| BarSeries {
        name: method.name.to_owned(),
        values: rows.iter().map(|row| row[at] / row[IDEAL]).collect(),
    });
    let bars = Bars {
        title: "The highest rate that is scheduled on four GPUs, relative to ideal".to_owned(),
        x_title: String::new(),
        y: Axis::from_zero("of ideal's rate"),
        groups: cases.iter().map(|case| case.name.to_owned()).collect(),
        series: series.collect(),
        values: Some(2),
    };
    figure("Highest rates", "gpulet, figures 12 and 16", vec![(380.0, vec![Box::new(bars)])])
}
