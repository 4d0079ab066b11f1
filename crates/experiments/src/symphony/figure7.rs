//! Figure 7: every policy on the 5,880 workloads of table 1.

use anyhow::Context;
use fermata_chart::{Axis, Lines, Mark, Panel, Series, grouped};
use fermata_files::InputError;

use super::Bench;
use crate::document::{Section, Table, figure};
use crate::store::{self, Row, Store};
use crate::trials::symphony::{
    Contender, GRID_POLICIES, GRID_REQUESTS, Lab, Workload, grid, measure, sample,
};

/// How many workloads are a look.
const SAMPLE: usize = 300;
/// How many of the lowest are named.
const LOWEST: usize = 20;

/// A goodput for each policy; `None` where it is to be measured again.
type Goodputs = [Option<f64>; GRID_POLICIES.len()];
/// What is known of every workload, by its name.
type Rows = store::Rows<Goodputs>;

impl<const POLICIES: usize> Row for [Option<f64>; POLICIES] {
    type Key = String;
    const WHAT: &'static str = "a workload and its goodputs";

    fn read(cells: &str) -> Option<Self> {
        let number = |cell: &str| match cell {
            "" => Some(None),
            cell => cell.parse().ok().map(Some),
        };
        let numbers: Option<Vec<Option<f64>>> = cells.split(',').map(number).collect();
        numbers?.try_into().ok()
    }

    fn cells(&self) -> String {
        let cell =
            |goodput: &Option<f64>| goodput.map_or(String::new(), |rate| format!("{rate:.2}"));
        self.iter().map(cell).collect::<Vec<String>>().join(",")
    }
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let requests = bench.args.requests.unwrap_or(GRID_REQUESTS);
    let file = bench.document.folder().join("figure7.csv");
    let setting = format!("# {requests} requests a run, seed {}", bench.suite.seed);
    let store = Store::new(file, setting, format!("workload,{}", GRID_POLICIES.join(",")));
    let mut rows = store.read(|_, _| Ok(()))?;
    if let Some(policy) = &bench.args.refresh {
        forget(&mut rows, policy)?;
    }
    let workloads = grid();
    if !bench.args.report {
        let chosen = choose(bench, &workloads, &rows);
        fill(&bench.lab(), requests, &store, &mut rows, &chosen)?;
    }
    let known: Vec<Known> =
        workloads.iter().filter_map(|workload| Known::of(workload, &rows)).collect();
    if known.is_empty() {
        let reason = "nothing is stored yet".to_owned();
        return Err(InputError::Argument { name: "--report", reason }.into());
    }
    Ok(report(&known, workloads.len(), requests))
}

/// What is stored, if a policy is to be measured again; else all workloads, or an even sample.
fn choose<'a>(bench: &Bench<'_>, workloads: &'a [Workload], rows: &Rows) -> Vec<&'a Workload> {
    if bench.args.refresh.is_some() {
        return workloads.iter().filter(|workload| rows.contains_key(&workload.name)).collect();
    }
    let count = match (bench.args.workloads, bench.suite.quick) {
        (Some(count), _) => count as usize,
        (None, true) => SAMPLE,
        (None, false) => workloads.len(),
    };
    sample(count, workloads.len()).into_iter().map(|at| &workloads[at]).collect()
}

fn forget(rows: &mut Rows, policy: &str) -> Result<(), InputError> {
    let Some(at) = GRID_POLICIES.iter().position(|name| *name == policy) else {
        let reason = format!("no policy '{policy}' here: use {}", GRID_POLICIES.join(", "));
        return Err(InputError::Argument { name: "--refresh", reason });
    };
    rows.values_mut().for_each(|row| row[at] = None);
    Ok(())
}

/// Measures what is missing of the chosen workloads, and stores each as soon as it is known.
fn fill(
    lab: &Lab<'_>,
    requests: u64,
    store: &Store,
    rows: &mut Rows,
    chosen: &[&Workload],
) -> anyhow::Result<()> {
    let policies: Vec<_> = Contender::all(&GRID_POLICIES).iter().map(|one| one.policy).collect();
    let missing: Vec<&Workload> = chosen
        .iter()
        .filter(|workload| rows.get(&workload.name).is_none_or(|row| row.contains(&None)))
        .copied()
        .collect();
    let appender = store.open(rows)?;
    let stored = &*rows;
    let found = lab.spread(&missing, |workload| {
        let mut row = stored.get(&workload.name).copied().unwrap_or_default();
        measure(workload, &policies, &mut row, requests, lab.seed);
        appender.add(&workload.name, &row).map(|()| row)
    });
    for (workload, row) in missing.iter().zip(found) {
        rows.insert(workload.name.clone(), row.context("figure7.csv")?);
    }
    Ok(())
}

/// A workload of which every goodput is known.
struct Known {
    name: String,
    bound: f64,
    goodputs: Vec<f64>,
}

impl Known {
    fn of(workload: &Workload, rows: &Rows) -> Option<Self> {
        let goodputs = rows.get(&workload.name)?.iter().copied().collect::<Option<Vec<f64>>>()?;
        Some(Self { name: workload.name.clone(), bound: workload.pool.bound(), goodputs })
    }

    fn goodput(&self, policy: &str) -> f64 {
        let at = GRID_POLICIES.iter().position(|name| *name == policy);
        at.map_or(f64::NAN, |at| self.goodputs[at])
    }

    fn best_other(&self) -> (&'static str, f64) {
        let others =
            GRID_POLICIES.iter().zip(&self.goodputs).filter(|(name, _)| **name != "fermata");
        let best = others.max_by(|a, b| a.1.total_cmp(b.1));
        best.map_or(("", f64::NAN), |(name, goodput)| (*name, *goodput))
    }

    /// Infinite where only `fermata` serves anything, one where nobody does.
    fn fermata_over_best(&self) -> f64 {
        ratio(self.goodput("fermata"), self.best_other().1)
    }

    fn deferred_over_eager(&self) -> f64 {
        ratio(self.goodput("deferred"), self.goodput("eager"))
    }
}

fn ratio(above: f64, below: f64) -> f64 {
    if above == 0.0 && below == 0.0 { 1.0 } else { above / below }
}

fn report(known: &[Known], all: usize, requests: u64) -> Section {
    let mut section = Section::default();
    let some = match known.len() < all {
        true => format!(" These are {} of them.", grouped(known.len() as f64, 0)),
        false => String::new(),
    };
    section.say(format!(
        "Table 1's workloads. The paper does not say how it comes to 5,880; our reading: \
         DenseNet121, InceptionV3, ResNet50V2, \
         VGG16, Xception and BERT (1080Ti) with the SLOs of table 1 in which two batches of two \
         fit (23 pairs) x 8 to 64 models \
         x 1 to 4 GPUs a model x Gamma 0.1 to 1 makes 5,796; the 35 models of table 3 once and \
         twice each x 7 x 6 makes 84. \
         {} requests a run, the same for all policies. Goodputs within 3 % of the best are \
         searched to 0.5 %, lower ones to \
         5 %, those below half of it to 10 %.{some}",
        grouped(requests as f64, 0)
    ));
    section.say("### `fermata` over the best of all other policies");
    let mut ratios: Vec<f64> = known.iter().map(Known::fermata_over_best).collect();
    ratios.sort_by(f64::total_cmp);
    let mut table = Table::new(["what", "min", "p1", "p5", "p10", "median", "p90", "max"]);
    table.add(quantile_row("fermata / best other", &ratios));
    let over = |policy: &str| {
        let mut values: Vec<f64> =
            known.iter().map(|one| ratio(one.goodput("fermata"), one.goodput(policy))).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    for policy in GRID_POLICIES.iter().filter(|policy| **policy != "fermata") {
        table.add(quantile_row(&format!("fermata / {policy}"), &over(policy)));
    }
    section.say(table.markdown());
    section.say("∞: the other policy serves nothing in time.");
    let below = |limit: f64| ratios.iter().filter(|ratio| **ratio < limit).count();
    section.say(format!(
        "Of {} workloads {} are below 0.98, {} below 0.99 and {} below 1.0.",
        grouped(ratios.len() as f64, 0),
        below(0.98),
        below(0.99),
        below(1.0)
    ));
    section.say(winners(known));
    section.say(format!("The {} lowest:", LOWEST.min(known.len())));
    section.say(lowest(known));
    section.say("### `deferred` over `eager`, as the paper draws it");
    section.say(against_eager(known));
    section.say(stronger_eager(known));
    section.show("figure7", "distributions of relative goodput", picture(known));
    section.say("All goodputs: [figure7.csv](./figure7.csv).");
    section
}

fn quantile_row(what: &str, sorted: &[f64]) -> Vec<String> {
    let shares = [0.0, 0.01, 0.05, 0.1, 0.5, 0.9, 1.0];
    let cell = |share| match quantile(sorted, share) {
        endless if endless.is_infinite() => "∞".to_owned(),
        ratio => format!("{ratio:.3}"),
    };
    [what.to_owned()].into_iter().chain(shares.map(cell)).collect()
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted.get(((sorted.len() - 1) as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

/// Who is the best, and how often.
fn winners(known: &[Known]) -> String {
    let count = |policy: &str| known.iter().filter(|one| one.best_other().0 == policy).count();
    let mut counts: Vec<(usize, &str)> = GRID_POLICIES
        .iter()
        .map(|policy| (count(policy), *policy))
        .filter(|(count, _)| *count > 0)
        .collect();
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let list: Vec<String> =
        counts.iter().map(|(count, policy)| format!("{policy} {count}")).collect();
    format!("The best other policy is most often: {}.", list.join(", "))
}

fn lowest(known: &[Known]) -> String {
    let mut order: Vec<&Known> = known.iter().collect();
    order.sort_by(|a, b| a.fermata_over_best().total_cmp(&b.fermata_over_best()));
    let mut table =
        Table::new(["workload", "fermata", "best other", "its goodput", "ratio", "bound"]);
    for one in order.into_iter().take(LOWEST) {
        let (name, best) = one.best_other();
        table.add([
            one.name.clone(),
            grouped(one.goodput("fermata"), 0),
            name.to_owned(),
            grouped(best, 0),
            format!("{:.3}", one.fermata_over_best()),
            grouped(one.bound, 0),
        ]);
    }
    table.markdown()
}

/// The paper's four panels: which workloads, and what it prints about them.
const PANELS: [(&str, &str, &str); 5] = [
    ("a: mixed models", "mixed-", "35 % to 102 % higher"),
    ("b: DenseNet121, SLO 30 ms", "DenseNet121-slo30-", "34 % to 234 % higher"),
    ("b: DenseNet121, SLO 50 ms", "DenseNet121-slo50-", "less prominent"),
    ("c: BERT", "BERT-", "similar"),
    (
        "d: all",
        "",
        "almost all above 0.95; 50 % higher in 16 % of cases; more than double in extreme ones",
    ),
];

fn against_eager(known: &[Known]) -> String {
    let head = [
        "panel",
        "paper",
        "workloads",
        "min",
        "p5",
        "median",
        "p95",
        "max",
        "above 0.95 (%)",
        "above 1.5 (%)",
    ];
    let mut table = Table::new(head);
    for (panel, prefix, printed) in PANELS {
        let ratios = ratios_of(known, prefix, Known::deferred_over_eager);
        if ratios.is_empty() {
            continue;
        }
        let above = |limit: f64| {
            let count = ratios.iter().filter(|ratio| **ratio > limit).count();
            format!("{:.0}", 100.0 * count as f64 / ratios.len() as f64)
        };
        let number = |share| format!("{:.2}", quantile(&ratios, share));
        let numbers = [0.0, 0.05, 0.5, 0.95, 1.0].map(number);
        let first = [panel.to_owned(), printed.to_owned(), ratios.len().to_string()];
        table.add(first.into_iter().chain(numbers).chain([above(0.95), above(1.5)]));
    }
    table.markdown()
}

/// Says so, if the eager scheduler here is stronger than the one that the paper compared with.
fn stronger_eager(known: &[Known]) -> String {
    let ratios = ratios_of(known, "", Known::deferred_over_eager);
    let share = |limit: f64| {
        100.0 * ratios.iter().filter(|ratio| **ratio > limit).count() as f64 / ratios.len() as f64
    };
    let plain = |one: &Known| ratio(one.goodput("deferred"), one.goodput("eager-prefix"));
    let plain = ratios_of(known, "", plain);
    let against_plain =
        plain.iter().filter(|ratio| **ratio > 1.5).count() as f64 / plain.len() as f64;
    match share(1.5) < 16.0 || share(0.95) < 95.0 {
        true => format!(
            "Our eager scheduler is stronger than the paper's: deferred is 50 % above it in {:.0} \
             % of the workloads (paper \
             16 %), and at least 0.95 of it in {:.0} % (paper: almost all). It shares the early \
             drop of deferred; against eager \
             without it (`eager-prefix`) deferred is 50 % higher in {:.0} %.",
            share(1.5),
            share(0.95),
            100.0 * against_plain
        ),
        false => String::new(),
    }
}

/// Sorted; of the workloads whose names begin so.
fn ratios_of(known: &[Known], prefix: &str, ratio: impl Fn(&Known) -> f64) -> Vec<f64> {
    let kept = known.iter().filter(|one| one.name.starts_with(prefix));
    let mut ratios: Vec<f64> = kept.map(ratio).filter(|ratio| ratio.is_finite()).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

fn picture(known: &[Known]) -> String {
    let panel = |title: &str,
                 groups: &[(&str, &str)],
                 x_title: &str,
                 of: fn(&Known) -> f64|
     -> Box<dyn Panel> {
        let mut ends = (1.0f64, 1.0f64);
        let mut series = Vec::new();
        for (name, prefix) in groups {
            let ratios = ratios_of(known, prefix, of);
            let (Some(first), Some(last)) = (ratios.first(), ratios.last()) else { continue };
            ends = (ends.0.min(*first), ends.1.max(*last));
            series.push(Series::cumulative(*name, &ratios));
        }
        // A little room around the data, and always the place where both are equal.
        let room = 0.03 * (ends.1 - ends.0).max(0.1);
        Box::new(Lines {
            title: title.to_owned(),
            x: Axis::between(x_title, ends.0 - room, ends.1 + room),
            y: Axis::between("share of workloads", 0.0, 1.0),
            series,
            marks: vec![Mark::X(1.0, "equal".to_owned())],
        })
    };
    let eager = "deferred / eager";
    let best = "fermata / best other";
    let by_model = [
        ("all", ""),
        ("mixed", "mixed-"),
        ("DenseNet121", "DenseNet121-"),
        ("InceptionV3", "InceptionV3-"),
        ("ResNet50V2", "ResNet50V2-"),
        ("VGG16", "VGG16-"),
        ("Xception", "Xception-"),
        ("BERT", "BERT-"),
    ];
    let strong = [
        ("SLO 30 ms", "DenseNet121-slo30-"),
        ("SLO 40 ms", "DenseNet121-slo40-"),
        ("SLO 50 ms", "DenseNet121-slo50-"),
    ];
    let weak =
        [("SLO 30 ms", "BERT-slo30-"), ("SLO 40 ms", "BERT-slo40-"), ("SLO 50 ms", "BERT-slo50-")];
    let rows = vec![
        (
            300.0,
            vec![
                panel("a: mixed models", &[("mixed", "mixed-")], eager, Known::deferred_over_eager),
                panel("b: DenseNet121", &strong, eager, Known::deferred_over_eager),
                panel("c: BERT", &weak, eager, Known::deferred_over_eager),
            ],
        ),
        (340.0, vec![panel("d: all", &by_model, eager, Known::deferred_over_eager)]),
        (
            340.0,
            vec![panel(
                "fermata over the best of all others",
                &by_model,
                best,
                Known::fermata_over_best,
            )],
        ),
    ];
    figure("Relative goodput on synthetic workloads", "figure 7", rows)
}
