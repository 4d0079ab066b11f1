//! Figures 1 and 12: how large batches are and how long requests wait, at each policy's own
//! goodput.

use fermata_chart::{Axis, Lines, Panel, Series, Shape, grouped};
use fermata_sim::Stats;

use super::Bench;
use super::goodput::ALL;
use crate::document::{Section, Table, figure};
use crate::trials::symphony::{self, Case, Contender};

/// What the paper prints as the median batch size: policy, ResNet50, InceptionResNetV2.
const PAPER_MEDIANS: [(&str, [usize; 2]); 4] =
    [("clockwork", [1, 1]), ("nexus", [6, 2]), ("shepherd", [9, 4]), ("deferred", [14, 8])];
/// What the paper says about queueing delays.
const PAPER_DELAYS: [(&str, &str); 4] = [
    ("deferred", "shortest"),
    ("shepherd", "like Symphony's"),
    ("nexus", "2-3x Symphony's; longest about half the SLO"),
    ("clockwork", "2-3x Symphony's"),
];
const PICTURED: [&str; 8] =
    ["fermata", "deferred", "eager", "shepherd", "nexus", "clockwork", "tfserving", "clipper"];

/// A policy at its goodput; `None`, where it has none.
type Peak = Option<(f64, Stats)>;

fn measure(bench: &Bench<'_>) -> Vec<(Case, Vec<Peak>)> {
    let (lab, contenders) = (bench.lab(), Contender::all(&ALL));
    let measured = |case: Case| {
        let peaks = lab.at_goodput(&case.pool, &contenders);
        (case, peaks)
    };
    symphony::table2().into_iter().map(measured).collect()
}

pub(super) fn figure1(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let measured = measure(bench);
    let mut section = Section::default();
    section.say(
        "Table 2's models on 8 GPUs, each policy at its own goodput. A quantile is over requests: \
         half of all requests \
         were in batches of at most the median.",
    );
    for (number, (case, peaks)) in measured.iter().enumerate() {
        section.say(format!("### {}", case.name));
        let head =
            ["policy", "paper's median", "p10", "median", "p90", "mean batch", "at requests/s"];
        let mut table = Table::new(head);
        for (name, peak) in ALL.iter().zip(peaks) {
            let printed = PAPER_MEDIANS.iter().find(|(policy, _)| policy == name);
            let printed = printed.map_or("-".to_owned(), |(_, sizes)| sizes[number].to_string());
            let cells = match peak {
                Some((rate, stats)) => {
                    let batches = stats.total().batches;
                    let quantile = |share| batch_quantile(&batches, share).to_string();
                    let mean = requests(&batches) / batches.iter().sum::<u64>().max(1) as f64;
                    [
                        quantile(0.1),
                        quantile(0.5),
                        quantile(0.9),
                        format!("{mean:.1}"),
                        grouped(*rate, 0),
                    ]
                }
                None => std::array::from_fn(|_| "-".to_owned()),
            };
            table.add([(*name).to_owned(), printed].into_iter().chain(cells));
        }
        section.say(table.markdown());
    }
    let panel = |(case, peaks): &(Case, Vec<Peak>)| {
        let series = |stats: &Stats| shares_by_batch(&stats.total().batches);
        panel(case, "batch size (requests)", peaks, series, Shape::Stairs)
    };
    let panels = measured.iter().map(panel).collect();
    let svg = figure("Batch sizes at the goodput", "figure 1", vec![(360.0, panels)]);
    section.show("figure1", "distribution of batch sizes", svg);
    Ok(section)
}

pub(super) fn figure12(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let measured = measure(bench);
    let mut section = Section::default();
    section.say(
        "From a request's arrival to the start of its batch, in milliseconds, of table 2's models \
         on 8 GPUs, each policy at \
         its own goodput.",
    );
    for (case, peaks) in &measured {
        section.say(format!("### {}", case.name));
        let mut table =
            Table::new(["policy", "paper", "median", "p90", "p99", "longest", "longest / SLO"]);
        for (name, peak) in ALL.iter().zip(peaks) {
            let printed = PAPER_DELAYS.iter().find(|(policy, _)| policy == name);
            let printed = printed.map_or("-", |(_, words)| words).to_owned();
            let cells = match peak {
                Some((_, stats)) => {
                    let waits = stats.total().queueing;
                    let ms = |share| waits.quantile(share).as_ms();
                    let part = ms(1.0) / case.pool.models[0].slo_ms;
                    let number = |value: f64| format!("{value:.1}");
                    [
                        number(ms(0.5)),
                        number(ms(0.9)),
                        number(ms(0.99)),
                        number(ms(1.0)),
                        format!("{part:.2}"),
                    ]
                }
                None => std::array::from_fn(|_| "-".to_owned()),
            };
            table.add([(*name).to_owned(), printed].into_iter().chain(cells));
        }
        section.say(table.markdown());
    }
    let waits = |stats: &Stats| -> Vec<(f64, f64)> {
        let waits = stats.total().queueing;
        (0..=200).map(|at| f64::from(at) / 200.0).map(|q| (waits.quantile(q).as_ms(), q)).collect()
    };
    let panels = measured
        .iter()
        .map(|(case, peaks)| panel(case, "queueing delay (ms)", peaks, waits, Shape::Line));
    let svg = figure("Queueing delay at the goodput", "figure 12", vec![(360.0, panels.collect())]);
    section.show("figure12", "distribution of queueing delays", svg);
    Ok(section)
}

fn panel(
    case: &Case,
    x_title: &str,
    peaks: &[Peak],
    points: impl Fn(&Stats) -> Vec<(f64, f64)>,
    shape: Shape,
) -> Box<dyn Panel> {
    let series = PICTURED.iter().filter_map(|name| {
        let at = ALL.iter().position(|other| other == name)?;
        let (_, stats) = peaks[at].as_ref()?;
        Some(Series { shape, ..Series::line(*name, points(stats)) })
    });
    Box::new(Lines {
        title: case.name.clone(),
        x: Axis::from_zero(x_title),
        y: Axis::between("share of requests", 0.0, 1.0),
        series: series.collect(),
        marks: Vec::new(),
    })
}

/// `batches[b]` is how many batches had `b` requests.
fn requests(batches: &[u64]) -> f64 {
    batches.iter().zip(0..).map(|(&count, size): (&u64, u64)| (count * size) as f64).sum()
}

/// The share of requests in batches of at most each size.
fn shares_by_batch(batches: &[u64]) -> Vec<(f64, f64)> {
    let (all, mut seen) = (requests(batches).max(1.0), 0.0);
    let share = |(size, &count): (usize, &u64)| {
        seen += count as f64 * size as f64 / all;
        (size as f64, seen)
    };
    batches.iter().enumerate().map(share).collect()
}

fn batch_quantile(batches: &[u64], share: f64) -> usize {
    let shares = shares_by_batch(batches);
    shares.iter().position(|&(_, seen)| seen >= share - 1e-9).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_batches_count_requests() {
        // Ten requests alone, and ninety in batches of nine.
        let batches = [0, 10, 0, 0, 0, 0, 0, 0, 0, 10];
        assert_eq!(batch_quantile(&batches, 0.1), 1);
        assert_eq!(batch_quantile(&batches, 0.11), 9);
        assert_eq!(shares_by_batch(&batches).last(), Some(&(9.0, 1.0)));
    }
}
