//! The A100 zoo on 64 executors: latencies of all models as shares of their objectives.

use fermata_chart::{Axis, Lines, Mark, Panel, Series, Shape, cumulative, grouped};
use fermata_sim::Latencies;

use super::{Bench, POLICIES, policy};
use crate::document::{Section, Table, bold_if, figure};
use crate::trials::symphony::{Contender, Pool, zoo_a100};

const EXECUTORS: usize = 64;
/// The loads, as shares of the peak, with what is asked of the median over the models: of p50 / SLO
/// and of p99 / SLO.
const ASKED: [(f64, f64, f64); 2] = [(0.3, 0.29, 0.32), (0.6, 0.46, 0.66)];
/// How long a run lasts, in simulated seconds.
const SECONDS: f64 = 60.0;
const QUICK_SECONDS: f64 = 10.0;

/// A run.
struct Found {
    /// Of each model, the median over the objective.
    p50: Vec<f64>,
    /// Of each model, the 99th percentile over the objective.
    p99: Vec<f64>,
    busy: f64,
    /// Of all requests, and of the model that has the most.
    bad: f64,
    worst: f64,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let pool = Pool::new(zoo_a100(), EXECUTORS);
    let release = Contender { name: "fermata:release", policy: policy("fermata:release") };
    let peak = bench.lab().goodputs(&pool, &[release])[0];
    let seconds = if bench.suite.quick { QUICK_SECONDS } else { SECONDS };
    let jobs: Vec<(f64, &str)> =
        ASKED.iter().flat_map(|(load, ..)| POLICIES.map(|name| (*load, name))).collect();
    let found = bench.spread(&jobs, |&(load, name)| {
        let rate = load * peak;
        let scenario = pool.scenario(rate, (seconds * rate) as u64, bench.suite.seed);
        let found = Latencies::of(&scenario, policy(name));
        Found {
            p50: found.over_slo(&scenario, 0.5),
            p99: found.over_slo(&scenario, 0.99),
            busy: found.stats.busy_fraction(),
            bad: found.stats.total().bad_rate(),
            worst: found.stats.worst_bad_rate(),
        }
    });
    let mut section = Section::default();
    section.say(format!(
        "The 37 models of Symphony's table 4 on {EXECUTORS} GPUs at equal rates, Poisson, \
         {seconds:.0} simulated seconds. Loads are shares of the goodput of `fermata:release`, {} \
         requests a second. *p50 / SLO*: the median of a model's latency over its objective; the \
         median of that over the models.",
        grouped(peak, 0)
    ));
    section.say(table(&found));
    section.show("zoo", "latencies of all models over their objectives", picture(&found));
    Ok(section)
}

/// The value that half of all do not exceed.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

fn table(found: &[Found]) -> String {
    let mut table = Table::new([
        "load, policy",
        "p50 / SLO",
        "asked",
        "p99 / SLO",
        "asked",
        "busy (%)",
        "bad (%)",
        "bad, worst model (%)",
    ]);
    for ((load, p50, p99), found) in ASKED.iter().zip(found.chunks(POLICIES.len())) {
        for (at, (name, found)) in POLICIES.iter().zip(found).enumerate() {
            let asked = |limit: f64| if at == 0 { limit.to_string() } else { "-".to_owned() };
            let cell = |values: &[f64], limit: f64| {
                // What is asked has two decimals.
                let value = (100.0 * median(values)).round() / 100.0;
                bold_if(at == 0 && value > limit, format!("{value:.2}"))
            };
            table.add([
                format!("{:.0} %, `{name}`", 100.0 * load),
                cell(&found.p50, *p50),
                asked(*p50),
                cell(&found.p99, *p99),
                asked(*p99),
                format!("{:.0}", 100.0 * found.busy),
                bold_if(at == 0 && found.bad > 0.0, format!("{:.3}", 100.0 * found.bad)),
                format!("{:.3}", 100.0 * found.worst),
            ]);
        }
    }
    table.markdown()
}

fn picture(found: &[Found]) -> String {
    let rows = ASKED.iter().zip(found.chunks(POLICIES.len())).map(|((load, ..), found)| {
        let panel = |what: &str, values: fn(&Found) -> &[f64]| {
            let series = POLICIES.iter().zip(found).map(|(name, found)| {
                let points = cumulative(values(found)).into_iter();
                let points = points.map(|(value, share)| (value, 100.0 * share)).collect();
                Series { shape: Shape::Stairs, ..Series::line(*name, points) }
            });
            let panel = Lines {
                title: format!("{:.0} % of the peak: {what} / SLO", 100.0 * load),
                x: Axis::between(format!("{what} / SLO"), 0.0, 1.0),
                y: Axis::between("share of the models (%)", 0.0, 100.0),
                series: series.collect(),
                marks: vec![Mark::Y(50.0, "median".to_owned())],
            };
            Box::new(panel) as Box<dyn Panel>
        };
        (320.0, vec![panel("p50", |found| &found.p50), panel("p99", |found| &found.p99)])
    });
    figure("Latencies of all models over their objectives", "A100 zoo, 64 GPUs", rows.collect())
}
