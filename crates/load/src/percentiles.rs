//! The latencies of a load by percentile: a line for each of the busiest models, and one for all
//! the others.

use fermata_chart::{Axis, Lines, Mark, PALETTE, Scale, Series};

use super::plan::{ModelPlan, Plan};
use super::record::{ModelRecord, Record};

/// As many lines as there are colours; the last one is grey, and has all the others where there are
/// more models.
const LINES_MAX: usize = PALETTE.len();
/// So many objectives can be told apart. Beyond, latencies are drawn as shares of them, and have
/// one in common.
const SLOS_MAX: usize = 3;

type Measured<'a> = (&'a ModelPlan, &'a ModelRecord);

/// Latency against how many are slower, each tenth of them as wide as the last.
pub(super) fn percentiles(plan: &Plan, record: &Record) -> Lines {
    let models: Vec<Measured<'_>> = plan.models.iter().zip(&record.models).collect();
    let slos = objectives_ms(&plan.models);
    let is_share = slos.len() > SLOS_MAX && plan.models.iter().all(|model| model.slo.is_some());
    let unit_ns = |model: &ModelPlan| match model.slo {
        Some(slo) if is_share => slo.as_nanos() as f64 / 100.0,
        _ => 1e6,
    };
    let series: Vec<Series> = by_line(models)
        .into_iter()
        .map(|(name, models)| Series::line(name, curve(&distribution(&models, unit_ns))))
        .collect();
    let points = || series.iter().flat_map(|line| &line.points);
    let (fewest, highest) =
        points().fold((0.0, 0.0), |(x, y): (f64, f64), point| (x.max(point.0), y.max(point.1)));
    let (y, mut marks) = match is_share {
        true => {
            let axis = Axis::from_zero("latency (% of the SLO)");
            (
                Axis { high: (highest < 110.0).then_some(110.0), ..axis },
                vec![Mark::Y(100.0, "SLO".to_owned())],
            )
        }
        false => latency_axis(highest, if slos.len() > SLOS_MAX { &[] } else { &slos }),
    };
    let names = [(2.0, "p50"), (10.0, "p90"), (100.0, "p99"), (1000.0, "p99.9")];
    let told = names.into_iter().filter(|(at, _)| *at <= fewest);
    marks.extend(told.map(|(at, name)| Mark::X(at, name.to_owned())));
    Lines {
        title: "Latency: one request in so many takes longer".to_owned(),
        x: Axis { scale: Scale::Log, ..Axis::fitting("one request in") },
        y,
        series,
        marks,
    }
}

/// The objectives, each once.
fn objectives_ms(models: &[ModelPlan]) -> Vec<f64> {
    let mut slos: Vec<f64> =
        models.iter().filter_map(|model| Some(model.slo?.as_secs_f64() * 1e3)).collect();
    slos.sort_by(f64::total_cmp);
    slos.dedup();
    slos
}

/// The models of each line, with its name.
fn by_line(mut models: Vec<Measured<'_>>) -> Vec<(String, Vec<Measured<'_>>)> {
    let mut others = Vec::new();
    if models.len() > LINES_MAX {
        models.sort_by_key(|(_, record)| std::cmp::Reverse(record.sent));
        others = models.split_off(LINES_MAX - 1);
    }
    let mut groups: Vec<_> =
        models.into_iter().map(|measured| (measured.0.name.clone(), vec![measured])).collect();
    if !others.is_empty() {
        groups.push((format!("{} others", others.len()), others));
    }
    groups
}

/// The latencies of these models in their units, by rising value, each with how many there are of
/// it.
fn distribution(models: &[Measured<'_>], unit_ns: impl Fn(&ModelPlan) -> f64) -> Vec<(f64, u64)> {
    let mut values: Vec<(f64, u64)> = Vec::new();
    for (plan, record) in models {
        let unit = unit_ns(plan);
        let recorded = record.latency.iter_recorded();
        values.extend(recorded.map(|value| {
            (value.value_iterated_to() as f64 / unit, value.count_since_last_iteration())
        }));
    }
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    values
}

/// For each number from one on, the latency that one in so many exceeds, as far as there are enough
/// of them: beyond, it is the maximum again.
fn curve(distribution: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let total: u64 = distribution.iter().map(|(_, count)| count).sum();
    let mut points = Vec::new();
    let mut values = distribution.iter();
    let (mut value, mut below) = (0.0, 0);
    for step in 0..=160 {
        let one_in = f64::powf(10.0, f64::from(step) / 40.0);
        if one_in > total as f64 {
            break;
        }
        let rank = ((1.0 - 1.0 / one_in) * total as f64).ceil().max(1.0) as u64;
        while below < rank
            && let Some((next, count)) = values.next()
        {
            (value, below) = (*next, below + count);
        }
        points.push((one_in, value));
    }
    points
}

/// An axis for latencies, and the objectives' lines where they are not far above all of them.
pub(super) fn latency_axis(longest_ms: f64, slos_ms: &[f64]) -> (Axis, Vec<Mark>) {
    let near = || slos_ms.iter().copied().filter(|slo| *slo < 3.0 * longest_ms);
    let high = near().filter(|slo| *slo > 0.95 * longest_ms).fold(0.0, f64::max);
    let axis = Axis::from_zero("latency (ms)");
    let axis = Axis { high: (high > 0.0).then_some(1.1 * high), ..axis };
    (axis, near().map(|ms| Mark::Y(ms, format!("SLO {ms} ms"))).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;

    fn model(at: usize, slo_ms: u64) -> ModelPlan {
        let slo = Some(Duration::from_millis(slo_ms));
        ModelPlan { name: format!("m{at}"), rate: 1.0, slo }
    }

    fn record(latencies_ms: &[u64]) -> ModelRecord {
        let mut record = Record::new(0..u64::MAX, vec![0]);
        for &ms in latencies_ms {
            let job = super::super::record::Job { model: 0, due: 0 };
            record.send(job, 0);
            record.finish(job, ms * MS, super::super::record::Ending::Answered);
        }
        record.models.remove(0)
    }

    #[test]
    fn the_busiest_have_lines_of_their_own() {
        let plans: Vec<ModelPlan> = (0..12).map(|at| model(at, 10)).collect();
        let records: Vec<ModelRecord> = (0..12).map(|at| record(&vec![5; at])).collect();
        let groups = by_line(plans.iter().zip(&records).collect());
        let names: Vec<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["m11", "m10", "m9", "m8", "m7", "m6", "m5", "5 others"]);
        let few = by_line(plans[..8].iter().zip(&records).collect());
        assert!(
            few.iter()
                .map(|(name, _)| name)
                .eq((0..8).map(|at| format!("m{at}")).collect::<Vec<_>>().iter())
        );
    }

    #[test]
    fn latencies_of_several_models_are_shares_of_their_own_objectives() {
        let (plans, records) =
            ([model(0, 10), model(1, 100)], [record(&[5, 9]), record(&[20, 80])]);
        let models: Vec<Measured<'_>> = plans.iter().zip(&records).collect();
        let shares = distribution(&models, |model| model.slo.unwrap().as_nanos() as f64 / 100.0);
        let points = curve(&shares);
        let at = |one_in: f64| points.iter().rfind(|point| point.0 <= one_in).unwrap().1;
        assert!((at(1.0) - 20.0).abs() < 0.1, "the fastest");
        assert!((at(2.0) - 50.0).abs() < 0.1, "half of them are faster");
        assert!((at(4.0) - 80.0).abs() < 0.1, "{:?}", points.last());
        assert!(points.last().unwrap().0 <= 4.0, "of four, not one in five is told");
        assert!(curve(&[]).is_empty());
    }
}
