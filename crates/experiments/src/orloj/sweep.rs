//! What the paper leaves open or varies: the load, the anticipated delay, how short requests may
//! be.

use fermata_chart::{Axis, Lines, Panel, Series};
use fermata_core::Span;
use fermata_dispatch::Network;
use fermata_sim::Alone;

use super::Bench;
use super::lab::{BASELINES, Cell, Contender, Lab};
use crate::document::{Section, Table, figure};
use crate::trials::orloj::{Known, Setting};

const REQUESTS: usize = 20_000;
const SEEDS: u64 = 3;
const LOADS: [f64; 8] = [0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1, 1.3];
const OBJECTIVES: [f64; 5] = [1.5, 2.0, 3.0, 4.0, 5.0];

/// Finish rates by load, of two-modal requests.
pub(super) fn load(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let lab = Lab::new(bench, REQUESTS, SEEDS);
    let mut section = Section::default();
    section.say(format!(
        "Two applications (50 and 150 ms, deviation 10), Poisson ({}). Load 1 is what the worker \
         could do at best if requests went as they come; \
         with tags, batches of short requests alone do more than that.",
        lab.note()
    ));
    let names = ["fermata, tags", "fermata, no tags", "orloj", "best fair baseline"];
    let mut lines = Vec::new();
    for setting in [Setting::A, Setting::B] {
        let mut panels: Vec<Box<dyn Panel>> = Vec::new();
        for times_p99 in [1.5, 3.0] {
            let curves = curves(&lab, setting, times_p99);
            let mut table = Table::new(["load"].into_iter().chain(names));
            for (at, load) in LOADS.iter().enumerate() {
                let rates = curves.iter().map(|curve| format!("{:.3}", curve[at]));
                table.add([format!("{load}")].into_iter().chain(rates));
            }
            section.say(format!(
                "Growth {}, objective {times_p99} times the 99th percentile:",
                setting.name
            ));
            section.say(table.markdown());
            let series = names.iter().zip(&curves).map(|(name, curve)| {
                Series::measured(*name, LOADS.into_iter().zip(curve.iter().copied()).collect())
            });
            panels.push(Box::new(Lines {
                title: format!("growth {}, objective x {times_p99}", setting.name),
                x: Axis::from_zero("load"),
                y: Axis::between("finish rate", 0.0, 1.0),
                series: series.collect(),
                marks: Vec::new(),
            }));
        }
        lines.push((340.0, panels));
    }
    let svg = figure("Finish rates by load", "two applications on one worker", lines);
    section.show("load", "finish rate by load", svg);
    Ok(section)
}

/// By policy and load.
fn curves(lab: &Lab<'_>, setting: Setting, times_p99: f64) -> Vec<Vec<f64>> {
    let alone = Alone::modes(2, 10.0);
    let mut columns = vec![
        vec![Contender::fermata(Known::Application)],
        vec![Contender::fermata(Known::Nothing)],
        vec![Contender::named("orloj", Known::Application)],
    ];
    columns.push(BASELINES.iter().flat_map(|name| Contender::fair(name)).collect());
    let each = columns.iter().map(|column| {
        let cells: Vec<Cell> = LOADS
            .iter()
            .flat_map(|&load| column.iter().map(move |&who| (load, who)))
            .map(|(load, who)| {
                let setting = Setting { load, ..setting };
                Cell { alone: alone.clone(), setting, times_p99, who }
            })
            .collect();
        let found = lab.measure(&cells);
        found.chunks(column.len()).map(|rates| rates.iter().copied().fold(0.0, f64::max)).collect()
    });
    each.collect()
}

/// Figure 11: the parameter of the anticipated delay.
pub(super) fn figure11(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let lab = Lab::new(bench, REQUESTS, SEEDS);
    let rates: [f64; 6] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1];
    let cells: Vec<Cell> = OBJECTIVES
        .iter()
        .flat_map(|&times_p99| rates.iter().map(move |rate| (times_p99, *rate)))
        .map(|(times_p99, rate)| {
            let who = Contender::named(&format!("orloj:{rate}"), Known::Application);
            Cell { alone: Alone::modes(3, 10.0), setting: Setting::A, times_p99, who }
        })
        .collect();
    let found = lab.measure(&cells);
    let mut section = Section::default();
    section.say(format!(
        "Orloj's finish rate by `b`, per millisecond (figure 11): three applications, setting A, \
         {}. The paper finds no difference; here it makes one of up to {:.3}, where the \
         anticipated delay is no longer long against the objective.",
        lab.note(),
        found.chunks(rates.len()).map(range).fold(0.0, f64::max)
    ));
    let names = rates.map(|rate| format!("{rate:e}"));
    let mut table = Table::new(["objective".to_owned()].into_iter().chain(names));
    for (times_p99, row) in OBJECTIVES.iter().zip(found.chunks(rates.len())) {
        let row = row.iter().map(|rate| format!("{rate:.3}"));
        table.add([format!("{times_p99}")].into_iter().chain(row));
    }
    section.say(table.markdown());
    let series = OBJECTIVES.iter().zip(found.chunks(rates.len())).map(|(times_p99, row)| {
        let points = rates.into_iter().zip(row.iter().copied()).collect();
        Series::measured(format!("x {times_p99}"), points)
    });
    let panel = Lines {
        title: "Orloj".to_owned(),
        x: Axis::log("b (per ms)"),
        y: Axis::between("finish rate", 0.0, 1.0),
        series: series.collect(),
        marks: Vec::new(),
    };
    let svg = figure(
        "The anticipated delay",
        "figure 11: three applications, setting A",
        vec![(360.0, vec![Box::new(panel)])],
    );
    section.show("figure11", "finish rate by the parameter of the anticipated delay", svg);
    Ok(section)
}

/// From the least to the greatest.
fn range(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    most - values.iter().copied().fold(f64::MAX, f64::min)
}

/// Figure 12: the same requests, shorter and shorter, with a worker that is some way off.
pub(super) fn figure12(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut lab = Lab::new(bench, REQUESTS, SEEDS);
    let us = |us: u64| Span(us * 1000);
    lab.network = Network { ctrl: us(100), data: us(50), resp: us(100) };
    let scales = [1.0, 0.3, 0.1, 0.03, 0.01];
    let policies = ["fermata", "orloj"];
    let mut section = Section::default();
    section.say(format!(
        "Three applications, scaled down (figure 12), setting A, {}. In the simulator a decision \
         takes no time (*cost* says how much it does); what short requests suffer from is the \
         way: 0.1 ms from the decision to the worker, 0.05 ms for each request's input, 0.1 ms \
         back.",
        lab.note()
    ));
    let mut panels: Vec<Box<dyn Panel>> = Vec::new();
    let mut table = Table::new(
        ["policy, objective".to_owned()]
            .into_iter()
            .chain(scales.map(|scale| format!("P99 {:.1} ms", 170.0 * scale))),
    );
    for policy in policies {
        let mut series = Vec::new();
        for times_p99 in OBJECTIVES {
            let cells = scales.map(|scale| Cell {
                alone: scaled(&Alone::modes(3, 10.0), scale),
                setting: Setting::A,
                times_p99,
                who: Contender::named(policy, Known::Application),
            });
            let found = lab.measure(&cells);
            let name = format!("{policy}, x {times_p99}");
            table.add([name].into_iter().chain(found.iter().map(|rate| format!("{rate:.3}"))));
            let points = scales.iter().map(|scale| 170.0 * scale).rev();
            let points = points.zip(found.iter().rev().copied()).collect();
            series.push(Series::measured(format!("x {times_p99}"), points));
        }
        panels.push(Box::new(Lines {
            title: policy.to_owned(),
            x: Axis::log("99th percentile (ms)"),
            y: Axis::between("finish rate", 0.0, 1.0),
            series,
            marks: Vec::new(),
        }));
    }
    section.say(table.markdown());
    let svg = figure(
        "Short requests",
        "figure 12: three applications, a worker 0.25 ms away",
        vec![(360.0, panels)],
    );
    section.show("figure12", "finish rate by how long requests take", svg);
    Ok(section)
}

fn scaled(alone: &Alone, factor: f64) -> Alone {
    let Alone::Peaks(peaks) = alone else { return alone.clone() };
    let scale = |peak: &fermata_sim::Peak| fermata_sim::Peak {
        mean: factor * peak.mean,
        deviation: factor * peak.deviation,
        ..*peak
    };
    Alone::Peaks(peaks.iter().map(scale).collect())
}
