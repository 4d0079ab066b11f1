//! Figure 2: goodput and utilisation against the offered load.

use fermata_chart::{Axis, Lines, Panel, Series, grouped};

use super::Bench;
use crate::document::{Section, Table, figure};
use crate::trials::symphony::{Contender, LoadPoint, figure2_pool, sweep};

const POLICIES: [&str; 7] =
    ["fermata", "deferred", "eager", "shepherd", "nexus", "clockwork", "tfserving"];
/// The loads of the picture, in requests a second; the paper goes to 30,000.
const STEP: f64 = 1_500.0;
const STEPS: u32 = 24;
/// The load about which the paper prints numbers.
const LOW: f64 = 3_000.0;

pub(super) fn figure2(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let (lab, pool, contenders) = (bench.lab(), figure2_pool(), Contender::all(&POLICIES));
    let peaks = lab.goodputs(&pool, &contenders);
    let rates: Vec<f64> = (1..=STEPS).map(|step| STEP * f64::from(step)).collect();
    // Every policy's own goodput is among its loads, so that no peak falls between two of them.
    let with_peak = |peak: f64| {
        let mut rates: Vec<f64> =
            rates.iter().copied().chain([peak]).filter(|r| *r > 0.0).collect();
        rates.sort_by(f64::total_cmp);
        rates
    };
    let asked: Vec<(Contender, Vec<f64>)> = contenders
        .iter()
        .zip(&peaks)
        .map(|(&contender, &peak)| (contender, with_peak(peak)))
        .collect();
    let curves = sweep(&lab, &pool, &asked);

    let mut section = Section::default();
    section.say(format!(
        "Ten ResNet50 (alpha 1.053 ms, beta 5.072 ms), SLO 100 ms, on 24 GPUs, Poisson. Staggered \
         execution is bounded by {} \
         requests a second.",
        grouped(pool.bound(), 0)
    ));
    let low: Vec<f64> = curves.iter().map(|curve| busy_at(curve, LOW)).collect();
    let mut table = Table::new([
        "policy",
        "paper: busy at 3,000",
        "busy at 3,000 (%)",
        "goodput",
        "busy at the goodput (%)",
        "highest in time",
        "in time at 36,000 / highest",
    ]);
    for (((name, curve), peak), low) in POLICIES.iter().zip(&curves).zip(&peaks).zip(&low) {
        let printed = match *name {
            "deferred" => "20 %",
            "clockwork" | "nexus" | "shepherd" => "all",
            _ => "-",
        };
        let highest = curve.iter().map(|point| point.in_time).fold(0.0, f64::max);
        let last = curve.last().map_or(0.0, |point| point.in_time);
        table.add([
            (*name).to_owned(),
            printed.to_owned(),
            format!("{:.0}", 100.0 * low),
            grouped(*peak, 0),
            format!("{:.0}", 100.0 * busy_at(curve, *peak)),
            grouped(highest, 0),
            format!("{:.3}", last / highest),
        ]);
    }
    section.say(table.markdown());
    section.say(stronger(&low));
    let lines = |title: &str, y: Axis, value: fn(&LoadPoint) -> f64| -> Box<dyn Panel> {
        let series = POLICIES.iter().zip(&curves).map(|(name, curve)| {
            Series::line(*name, curve.iter().map(|point| (point.offered, value(point))).collect())
        });
        Box::new(Lines {
            title: title.to_owned(),
            x: Axis::from_zero("offered (requests/s)"),
            y,
            series: series.collect(),
            marks: Vec::new(),
        })
    };
    let panels = vec![
        lines("In time", Axis::from_zero("in time (requests/s)"), |point| point.in_time),
        lines("Utilisation", Axis::between("GPUs busy (%)", 0.0, 100.0), |point| {
            100.0 * point.busy
        }),
    ];
    let svg = figure(
        "Goodput and utilisation against the offered load",
        "figure 2: 10 ResNet50, SLO 100 ms, 24 GPUs",
        vec![(380.0, panels)],
    );
    section.show("figure2", "in-time rate and utilisation by offered load", svg);
    Ok(section)
}

/// How busy the executors are at a rate between two of the measured ones.
fn busy_at(curve: &[LoadPoint], rate: f64) -> f64 {
    let after = curve.iter().position(|point| point.offered >= rate).unwrap_or(curve.len() - 1);
    let before = after.saturating_sub(1);
    let (low, high) = (&curve[before], &curve[after]);
    let share = match high.offered > low.offered {
        true => ((rate - low.offered) / (high.offered - low.offered)).clamp(0.0, 1.0),
        false => 1.0,
    };
    low.busy + share * (high.busy - low.busy)
}

/// The paper found all of its baselines fully busy at the low load.
fn stronger(busy: &[f64]) -> String {
    let less = POLICIES
        .iter()
        .zip(busy)
        .filter(|(name, busy)| ["clockwork", "nexus", "shepherd"].contains(name) && **busy < 0.95);
    let less: Vec<String> =
        less.map(|(name, busy)| format!("{name} {:.0} %", 100.0 * busy)).collect();
    match less.is_empty() {
        true => String::new(),
        false => format!(
            "Our baselines are stronger than those the paper measured: at 3,000 requests a second, \
             where it found every GPU \
             busy, they use {}.",
            less.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_read_between_measured_loads() {
        let point = |offered, busy| LoadPoint { offered, in_time: offered, busy };
        let curve = [point(1000.0, 0.2), point(2000.0, 0.4)];
        for (rate, busy) in [(500.0, 0.2), (1500.0, 0.3), (2000.0, 0.4), (9000.0, 0.4)] {
            assert!((busy_at(&curve, rate) - busy).abs() < 1e-9, "{rate}");
        }
    }
}
