//! Ten thousand sessions: best fit against the configuration program and against the fluid bound.

use std::time::Instant;

use fermata_plan::{Packer, best_fit, configuration_bound, fluid_bound, squishy};

use super::Bench;
use super::instances::Models;
use crate::document::{Section, Table};
use crate::trials::symphony::Meter;

/// Knots of the prices of each model: more bound better, and take longer.
const KNOTS: usize = 24;

struct Case {
    slo_times: f64,
    /// At longer objectives sets are large, and pricing them takes hours.
    knots: Option<usize>,
    configured_most: &'static str,
    fluid_most: &'static str,
}

const CASES: [Case; 2] = [
    Case { slo_times: 1.0, knots: Some(KNOTS), configured_most: "2.5 %", fluid_most: "" },
    Case { slo_times: 3.0, knots: None, configured_most: "", fluid_most: "4 %" },
];

/// One problem at the objectives of the zoo, one at three times as long ones.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let sessions = if bench.suite.quick { 1_000 } else { 10_000 };
    let mut section = Section::default();
    section.say(format!(
        "{sessions} sessions, drawn as above, by best fit in two orders on one core. The \
         configuration program takes fractions \
         of sets; it is bounded from below by prices that are piecewise linear in the rates of \
         each model ({KNOTS} knots a \
         model), which loses a little, so the true distance is smaller. The fluid bound counts \
         each session at its least \
         share of a GPU, in whatever round suits it best."
    ));
    let mut table = Table::new([
        "SLOs",
        "GPUs",
        "seconds",
        "at most",
        "configuration program",
        "above it",
        "at most",
        "fluid bound",
        "above it",
        "at most",
        "squishy",
    ]);
    bench.progress.expect(2 * CASES.len());
    let models: Vec<Models> = CASES.iter().map(|case| Models::new(case.slo_times)).collect();
    let packers: Vec<Packer<'_>> =
        models.iter().map(|models| models.packer(sessions, bench.suite.seed)).collect();
    // All times are taken before the long work begins.
    let timed = |packer: &Packer<'_>| {
        let start = Instant::now();
        let sets = best_fit(packer);
        let seconds = start.elapsed().as_secs_f64();
        packer.assert_packed(&sets);
        bench.progress.finish_one();
        (sets.len(), seconds)
    };
    let packed: Vec<(usize, f64)> = packers.iter().map(timed).collect();
    for ((case, packer), (gpus, seconds)) in CASES.iter().zip(&packers).zip(packed) {
        let fluid = fluid_bound(packer);
        let above = |bound: f64| format!("{:.2} %", 100.0 * (gpus as f64 / bound - 1.0));
        let configured = case.knots.and_then(|knots| configuration_bound(packer, Some(knots)));
        bench.progress.finish_one();
        table.add([
            format!("× {}", case.slo_times),
            gpus.to_string(),
            format!("{seconds:.2}"),
            "2".to_owned(),
            configured.map_or("-".to_owned(), |bound| format!("{bound:.1}")),
            configured.map_or("-".to_owned(), above),
            case.configured_most.to_owned(),
            fluid.to_string(),
            above(fluid as f64),
            case.fluid_most.to_owned(),
            squishy(packer).len().to_string(),
        ]);
    }
    section.say(table.markdown());
    Ok(section)
}
