//! How the default policy compares with the best of all others over many mixes.

use std::collections::BTreeMap;

use fermata_chart::{Axis, Lines, Mark, Panel, Series, Shape, grouped};

use super::row::MixRow;
use crate::document::{Section, Table, bold_if, figure};
use crate::trials::mixes::BestRival;

/// Where the best policy keeps executors less busy than this, the objectives leave so little room
/// that chance decides: such a mix is listed, but not counted.
const BUSY_MIN: f64 = 0.05;
/// How many of the worst mixes are named.
const WORST: usize = 10;

/// One mix.
pub(super) struct Comparison {
    pub(super) seed: u64,
    /// What it is, in one line.
    pub(super) mix: String,
    pub(super) executors: usize,
    /// The goodput of the default policy.
    pub(super) ours: f64,
    /// The best of the other policies.
    pub(super) best: BestRival,
}

impl Comparison {
    /// What is known of the mix with this seed; `None` if the default policy is not measured.
    pub(super) fn of(seed: u64, row: &MixRow) -> Option<Self> {
        let MixRow { executors, best, fermata, mix } = row.clone();
        Some(Self { seed, mix, executors, ours: fermata?, best })
    }

    /// The goodput of the default policy over that of the best other policy.
    fn ratio(&self) -> f64 {
        self.ours / self.best.goodput.rate
    }

    fn counts(&self) -> bool {
        self.best.goodput.busy >= BUSY_MIN
    }
}

/// Reports on an experiment of this name.
pub(super) fn report(name: &str, comparisons: &[Comparison], section: &mut Section) {
    let counted: Vec<&Comparison> =
        comparisons.iter().filter(|comparison| comparison.counts()).collect();
    let left_out = comparisons.len() - counted.len();
    section.say(format!(
        "{} mixes are counted. On {left_out} the best policy keeps executors less than {:.0} % \
         busy: they are listed, but not counted. All are in [`{name}.csv`](./{name}.csv).",
        grouped(counted.len() as f64, 0),
        100.0 * BUSY_MIN
    ));
    if counted.is_empty() {
        return;
    }
    section.say(quantiles(&counted));
    section.show(name, "goodput over that of the best other policy", picture(&counted));
    section.say(best_rivals(&counted));
    section.say(worst(&counted));
}

/// The ratios from the lowest to the highest.
fn sorted<'a>(comparisons: impl Iterator<Item = &'a Comparison>) -> Vec<f64> {
    let mut ratios: Vec<f64> = comparisons.map(Comparison::ratio).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// The lowest ratio that at least this share of all is not above.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

/// How many ratios are below a number.
fn below(sorted: &[f64], limit: f64) -> usize {
    sorted.partition_point(|&ratio| ratio < limit)
}

/// The quantiles of a table, and what is asked of each.
const SHARES: [(&str, f64, Option<f64>); 6] = [
    ("least", 0.0, Some(0.95)),
    ("1 %", 0.01, Some(0.98)),
    ("5 %", 0.05, Some(0.99)),
    ("25 %", 0.25, None),
    ("median", 0.5, Some(1.0)),
    ("75 %", 0.75, None),
];

/// Ratios below these are counted; the second number is the share of all mixes that may be below.
const LIMITS: [(f64, f64); 3] = [(0.95, 0.0), (0.98, 0.01), (0.99, 0.05)];

fn quantiles(counted: &[&Comparison]) -> String {
    let head = ["fermata / best other".to_owned(), "mixes".to_owned()].into_iter();
    let head = head.chain(SHARES.map(|(name, _, _)| name.to_owned()));
    let mut table = Table::new(head.chain(LIMITS.map(|(limit, _)| format!("below {limit}"))));
    let asked = SHARES.map(|(_, _, asked)| asked.map_or("-".to_owned(), |asked| asked.to_string()));
    let allowed = LIMITS.map(|(_, share)| match share {
        0.0 => "0".to_owned(),
        share => format!("{:.0} %", 100.0 * share),
    });
    let first = ["*asked*".to_owned(), "-".to_owned()].into_iter();
    table.add(first.chain(asked).chain(allowed));
    let mut row = |name: String, ratios: &[f64], is_asked: bool| {
        let quantiles = SHARES.map(|(_, share, asked)| {
            let value = quantile(ratios, share);
            let missed = is_asked && asked.is_some_and(|asked| value < asked);
            bold_if(missed, format!("{value:.3}"))
        });
        let counts = LIMITS.map(|(limit, share)| {
            let count = below(ratios, limit);
            let missed = is_asked && count as f64 > share * ratios.len() as f64;
            bold_if(missed, count.to_string())
        });
        let first = [name, ratios.len().to_string()].into_iter();
        table.add(first.chain(quantiles).chain(counts));
    };
    row("all".to_owned(), &sorted(counted.iter().copied()), true);
    for executors in executor_counts(counted) {
        let ratios = sorted(on(counted, executors));
        row(format!("on {executors}"), &ratios, false);
    }
    table.markdown()
}

/// The numbers of executors that occur.
fn executor_counts(counted: &[&Comparison]) -> Vec<usize> {
    let all: std::collections::BTreeSet<usize> =
        counted.iter().map(|comparison| comparison.executors).collect();
    all.into_iter().collect()
}

/// The mixes with this number of executors.
fn on<'a>(counted: &'a [&'a Comparison], executors: usize) -> impl Iterator<Item = &'a Comparison> {
    counted.iter().copied().filter(move |comparison| comparison.executors == executors)
}

fn best_rivals(counted: &[&Comparison]) -> String {
    let mut by_name: BTreeMap<&str, Vec<&Comparison>> = BTreeMap::new();
    for comparison in counted {
        by_name.entry(&comparison.best.name).or_default().push(comparison);
    }
    let mut rows: Vec<(&str, Vec<&Comparison>)> = by_name.into_iter().collect();
    rows.sort_by_key(|(_, mixes)| std::cmp::Reverse(mixes.len()));
    let mut table =
        Table::new(["best other policy", "mixes", "median of the ratio", "least ratio"]);
    for (name, mixes) in rows {
        let ratios = sorted(mixes.iter().copied());
        let [median, least] = [0.5, 0.0].map(|share| format!("{:.3}", quantile(&ratios, share)));
        table.add([format!("`{name}`"), mixes.len().to_string(), median, least]);
    }
    table.markdown()
}

fn worst(counted: &[&Comparison]) -> String {
    let mut worst = counted.to_vec();
    worst.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let mut table = Table::new(["the worst mixes", "seed", "fermata", "best other", "by", "ratio"]);
    for comparison in worst.into_iter().take(WORST) {
        table.add([
            comparison.mix.clone(),
            comparison.seed.to_string(),
            grouped(comparison.ours, 0),
            grouped(comparison.best.goodput.rate, 0),
            format!("`{}`", comparison.best.name),
            format!("{:.3}", comparison.ratio()),
        ]);
    }
    table.markdown()
}

/// The sorted ratios of all mixes, and their distributions by number of executors.
fn picture(counted: &[&Comparison]) -> String {
    let ratios = sorted(counted.iter().copied());
    // Round ends a little outside of nearly all ratios; what is beyond is drawn at the edge.
    let low = (10.0 * quantile(&ratios, 0.0)).floor() / 10.0;
    let high = (20.0 * quantile(&ratios, 0.98)).ceil() / 20.0;
    let axis = || Axis::between("fermata / best other", low.min(0.9), high.max(1.05));
    let count = ratios.len() as f64;
    let points = (1..).zip(&ratios).map(|(rank, &ratio)| (100.0 * f64::from(rank) / count, ratio));
    let curve = Lines {
        title: "All mixes, from the worst to the best".to_owned(),
        x: Axis::between("share of the mixes (%)", 0.0, 100.0),
        y: axis(),
        series: vec![Series::line("fermata / best other", points.collect())],
        marks: vec![Mark::Y(1.0, "1".to_owned()), Mark::Y(0.95, "0.95".to_owned())],
    };
    let series = executor_counts(counted).into_iter().map(|executors| {
        let points = fermata_chart::cumulative(&sorted(on(counted, executors)));
        let points = points.into_iter().map(|(ratio, share)| (ratio, 100.0 * share));
        let name = if executors == 1 { "executor" } else { "executors" };
        let line = Series::line(format!("{executors} {name}"), points.collect());
        Series { shape: Shape::Stairs, ..line }
    });
    let by_executors = Lines {
        title: "By number of executors".to_owned(),
        x: axis(),
        y: Axis::between("share of the mixes (%)", 0.0, 100.0),
        series: series.collect(),
        marks: vec![Mark::X(1.0, "1".to_owned())],
    };
    let panels: Vec<Box<dyn Panel>> = vec![Box::new(curve), Box::new(by_executors)];
    figure(
        "Goodput over that of the best other policy",
        &format!("{} random mixes", grouped(count, 0)),
        vec![(360.0, panels)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::mixes::Goodput;

    fn comparison(seed: u64, ours: f64, busy: f64) -> Comparison {
        let best = BestRival { goodput: Goodput { rate: 100.0, busy }, name: "eager".to_owned() };
        Comparison { seed, mix: format!("a {seed}.0 ms, b"), executors: 2, ours, best }
    }

    #[test]
    fn idle_mixes_are_listed_and_not_counted() {
        let comparisons =
            [comparison(1, 90.0, 0.5), comparison(2, 110.0, 0.9), comparison(3, 1.0, 0.01)];
        let mut section = Section::default();
        report("random", &comparisons, &mut section);
        for expected in
            ["2 mixes are counted. On 1 the", "| all | 2 | **0.900** |", "| `eager` | 2 | 0.900 |"]
        {
            assert!(section.body.contains(expected), "{expected}: {}", section.body);
        }
    }

    #[test]
    fn a_mix_without_a_goodput_of_the_default_policy_is_not_compared() {
        let Comparison { mix, executors, best, .. } = comparison(7, 0.0, 0.5);
        let row = MixRow { executors, best, fermata: None, mix };
        assert!(Comparison::of(7, &row).is_none());
        let known = Comparison::of(7, &MixRow { fermata: Some(90.0), ..row }).unwrap();
        assert_eq!((known.seed, known.ratio(), known.counts()), (7, 0.9, true));
    }

    #[test]
    fn quantiles_are_ratios_that_occur() {
        let ratios = [0.9, 0.98, 1.0, 1.1];
        assert_eq!(
            [0.0, 0.25, 0.5, 1.0].map(|share| quantile(&ratios, share)),
            [0.9, 0.9, 0.98, 1.1]
        );
        assert_eq!((below(&ratios, 0.98), below(&ratios, 2.0)), (1, 4));
    }
}
