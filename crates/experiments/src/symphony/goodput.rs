//! The experiments whose answer is a goodput, or a number of GPUs, for each pool and policy.

use fermata_chart::{Axis, BarSeries, Bars, Lines, Mark, Panel, Series, grouped};

use super::Bench;
use super::matrix::{Matrix, paper_cell};
use crate::document::{Section, Table, figure};
use crate::trials::symphony::{self, Contender};

const GOODPUT: &str = "goodput (requests/s)";

/// Everyone.
pub(super) const ALL: [&str; 10] = [
    "clockwork",
    "shepherd",
    "nexus",
    "clipper",
    "tfserving",
    "eager",
    "eager-prefix",
    "timeout:25%",
    "deferred",
    "fermata",
];
/// Those that can be near the best.
const STRONG: [&str; 8] = [
    "clockwork",
    "shepherd",
    "nexus",
    "eager",
    "eager-prefix",
    "timeout:25%",
    "deferred",
    "fermata",
];

pub(super) fn table2(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let matrix = Matrix::measure(&bench.thorough_lab(), symphony::table2(), &ALL);
    let mut section = Section::default();
    section.say("One model on 8 GPUs under Poisson arrivals; goodput in requests a second.");
    section.say(matrix.table("model"));
    let alone: Vec<String> = matrix
        .cases
        .iter()
        .map(|case| {
            let rate = symphony::uncoordinated(&case.pool.models[0], case.pool.executors);
            format!("{} {}", case.panel, grouped(rate, 0))
        })
        .collect();
    section.say(format!(
        "Without coordination the analysis of section 5.3 gives {} requests a second.",
        alone.join(" and ")
    ));
    section.say(matrix.findings());
    let panels = matrix.cases.iter().enumerate().map(|(at, case)| -> Box<dyn Panel> {
        let one = Matrix {
            cases: vec![case.clone()],
            policies: matrix.policies.clone(),
            goodputs: vec![matrix.goodputs[at].clone()],
            bounds: vec![matrix.bounds[at]],
        };
        let mut bars = one.bars(&case.name, GOODPUT);
        let printed = case.paper.numbers.iter().find(|(name, _)| *name == "deferred");
        let printed = printed.map_or(f64::NAN, |(_, value)| *value);
        bars.groups = vec![String::new()];
        bars.series
            .insert(2, BarSeries { name: "Symphony (paper)".to_owned(), values: vec![printed] });
        // There are colours for eight.
        bars.series.retain(|series| series.name != "eager");
        Box::new(bars)
    });
    let svg = figure("Single models on 8 GPUs", "table 2", vec![(340.0, panels.collect())]);
    section.show("table2", "goodput by policy", svg);
    Ok(section)
}

pub(super) fn figure6a(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let policies = ["eager", "eager-prefix", "timeout:25%", "deferred", "fermata"];
    let matrix = Matrix::measure(&bench.lab(), symphony::figure6a(), &policies);
    let mut section = Section::default();
    section.say(
        "Ten models of one synthetic profile on 32 GPUs: alpha 1 ms, beta 1 to 15 ms, SLO 2 l(8), \
         Poisson. The paper \
         draws eager as a share of deferred: nearly 1 at beta/alpha 1, falling as batching gains \
         more.",
    );
    section.say(matrix.table("profile"));
    section.say(matrix.findings());
    let deferred = matrix.of("deferred").unwrap_or_default();
    let relative = |name: &str| {
        let values = matrix.of(name).unwrap_or_default();
        let points = matrix.cases.iter().zip(values.iter().zip(&deferred));
        Series::measured(
            name,
            points.map(|(case, (value, base))| (case.x, 100.0 * value / base)).collect(),
        )
    };
    let lines = Lines {
        title: "Goodput relative to deferred".to_owned(),
        x: Axis::from_zero("beta/alpha"),
        y: Axis::from_zero("share of deferred's goodput (%)"),
        series: ["fermata", "deferred", "eager", "eager-prefix", "timeout:25%"]
            .map(relative)
            .into(),
        marks: Vec::new(),
    };
    let svg = figure(
        "Deferred against eager, by how much batching gains",
        "figure 6a: 10 models, 32 GPUs, SLO 2 l(8)",
        vec![(380.0, vec![Box::new(lines)])],
    );
    section.show("figure6a", "goodput relative to deferred by beta/alpha", svg);
    Ok(section)
}

pub(super) fn figure6b(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let timeouts: [(&str, f64); 10] = [
        ("timeout:5%", 5.0),
        ("timeout:10%", 10.0),
        ("timeout:15%", 15.0),
        ("timeout:20%", 20.0),
        ("timeout:30%", 30.0),
        ("timeout:40%", 40.0),
        ("timeout:50%", 50.0),
        ("timeout:60%", 60.0),
        ("timeout:70%", 70.0),
        ("timeout:80%", 80.0),
    ];
    let names = timeouts.iter().map(|(name, _)| *name);
    let names: Vec<&str> =
        ["eager"].into_iter().chain(names).chain(["deferred", "fermata"]).collect();
    let matrix = Matrix::measure(&bench.lab(), symphony::figure6b(), &names);
    let mut section = Section::default();
    section.say("Batches that wait for a share of the SLO; eager is a timeout of zero.");
    section.say(matrix.table("pool"));
    section.say(matrix.findings());
    let panels = matrix.cases.iter().enumerate().map(|(at, case)| -> Box<dyn Panel> {
        let of = |name: &str| matrix.of(name).map_or(f64::NAN, |values| values[at]);
        let share = |name: &str| 100.0 * of(name) / of("deferred");
        let zero = [(0.0, share("eager"))];
        let points = zero.into_iter().chain(timeouts.iter().map(|&(name, x)| (x, share(name))));
        let level = |name: &str| Series {
            dashed: true,
            ..Series::line(name, vec![(0.0, share(name)), (80.0, share(name))])
        };
        Box::new(Lines {
            title: case.name.clone(),
            x: Axis::from_zero("timeout (% of the SLO)"),
            y: Axis::from_zero("share of deferred's goodput (%)"),
            series: vec![
                level("fermata"),
                level("deferred"),
                Series::measured("timeout", points.collect()),
            ],
            marks: Vec::new(),
        })
    });
    let svg = figure("Deferred against timeouts", "figure 6b", vec![(380.0, panels.collect())]);
    section.show("figure6b", "goodput relative to deferred by timeout", svg);
    Ok(section)
}

pub(super) fn figure9(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let matrix = Matrix::measure(&bench.thorough_lab(), symphony::figure9(), &ALL);
    let mut section = Section::default();
    section.say(
        "Both model zoos on 64 GPUs, equally popular, Poisson: all models, those with beta/alpha \
         above 2 (Strong), and \
         those below (Weak).",
    );
    section.say(matrix.table("zoo"));
    section.say(matrix.findings());
    let bars = matrix.bars("Goodput", GOODPUT);
    let svg = figure("Mixed models on 64 GPUs", "figure 9", vec![(380.0, vec![Box::new(bars)])]);
    section.show("figure9", "goodput of both zoos by policy", svg);
    Ok(section)
}

/// More than this many GPUs are not searched for: ten times what the best policy needs.
const GPUS_MAX: usize = 512;
const RATE: f64 = 15_000.0;

pub(super) fn figure10(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let (lab, cases, contenders) = (bench.lab(), symphony::figure10(), Contender::all(&ALL));
    let fewest: Vec<Vec<Option<usize>>> =
        cases.iter().map(|case| lab.fewest(&case.pool, RATE, &contenders, GPUS_MAX)).collect();
    let mut section = Section::default();
    section.say(
        "The fewest A100 with which every model has 99 % of its requests in time, at \
                 15,000 requests a second.",
    );
    let head = ["load", "paper"].into_iter().chain(ALL);
    let mut table = Table::new(head.chain(["bound"]));
    let mut said = Vec::new();
    for (case, row) in cases.iter().zip(&fewest) {
        let mut bound = case.pool.clone();
        while bound.bound() < RATE {
            bound.executors += 1;
        }
        let cell =
            |gpus: &Option<usize>| gpus.map_or(format!("> {GPUS_MAX}"), |gpus| gpus.to_string());
        let cells = row.iter().map(cell).chain([bound.executors.to_string()]);
        table.add([case.name.clone(), paper_cell(case)].into_iter().chain(cells));
        let of = |name: &str| row[ALL.iter().position(|other| *other == name).unwrap_or(0)];
        let Some(base) = of("deferred") else { continue };
        let more = ["nexus", "shepherd", "clockwork", "eager"].map(|name| match of(name) {
            Some(gpus) => format!("{name} {:+.0} %", 100.0 * (gpus as f64 / base as f64 - 1.0)),
            None => format!("{name} not with {GPUS_MAX}"),
        });
        said.push(format!("- {}: GPUs compared with `deferred`: {}.", case.name, more.join(", ")));
    }
    section.say(table.markdown());
    section.say(said.join("\n"));
    let value = |gpus: Option<usize>| gpus.map_or(f64::NAN, |gpus| gpus as f64);
    let shown = ["fermata", "deferred", "eager", "shepherd", "nexus", "clockwork", "tfserving"];
    let bars = Bars {
        title: format!("Fewest GPUs for 15,000 requests/s; no bar where {GPUS_MAX} are not enough"),
        x_title: String::new(),
        y: Axis::from_zero("GPUs"),
        groups: cases.iter().map(|case| case.name.clone()).collect(),
        series: shown
            .iter()
            .filter_map(|name| Some((name, ALL.iter().position(|other| other == name)?)))
            .map(|(name, at)| BarSeries {
                name: (*name).to_owned(),
                values: fewest.iter().map(|row| value(row[at])).collect(),
            })
            .collect(),
        values: Some(0),
    };
    let svg = figure("GPUs for a given load", "figure 10", vec![(380.0, vec![Box::new(bars)])]);
    section.show("figure10", "fewest GPUs by policy", svg);
    Ok(section)
}

pub(super) fn figure11(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let matrix = Matrix::measure(&bench.lab(), symphony::figure11(), &STRONG);
    let mut section = Section::default();
    section.say(
        "Twenty models like ResNet50 on 32 GPUs. The paper: Symphony is clearly better where SLOs \
         are tight, Nexus is \
         weak under bursts, and all are close where SLOs are loose.",
    );
    section.say(matrix.table("load"));
    section.say(matrix.findings());
    let mut panels = matrix.curves("SLO (ms)", GOODPUT);
    let second = panels.split_off(panels.len().min(2));
    let svg = figure(
        "SLO, popularity and burstiness",
        "figure 11: 20 models like ResNet50 on 32 GPUs",
        vec![(360.0, panels), (360.0, second)],
    );
    section.show("figure11", "goodput by SLO, popularity and burstiness", svg);
    Ok(section)
}

pub(super) fn figure13(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let matrix = Matrix::measure(&bench.lab(), symphony::figure13(), &STRONG);
    let mut section = Section::default();
    section.say(
        "The right half of the figure: twenty equally popular models like ResNet50, SLO 100 ms. \
         (The left half, the speed \
         of the scheduler, is in `targets`.) Our clockwork has no locks, so it scales too.",
    );
    section.say(matrix.table("pool"));
    let mut said = Vec::new();
    for name in ["deferred", "fermata"] {
        let values = matrix.of(name).unwrap_or_default();
        if let (Some(first), Some(last), [one, .., many]) =
            (values.first(), values.last(), &matrix.cases[..])
        {
            let growth = (last / first) / (many.x / one.x);
            said.push(format!(
                "- `{name}`: {:.1} times the GPUs give {:.1} times the goodput ({growth:.3} of \
                 linear).",
                many.x / one.x,
                last / first
            ));
        }
    }
    section.say(said.join("\n"));
    section.say(matrix.findings());
    let mut panels = matrix.curves("GPUs", GOODPUT);
    panels.extend(matrix.per_executor().curves("GPUs", "goodput per GPU (requests/s)"));
    let svg = figure("Goodput by number of GPUs", "figure 13, right", vec![(380.0, panels)]);
    section.show("figure13", "goodput by number of GPUs", svg);
    Ok(section)
}

pub(super) fn figure14(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let policies =
        ["clockwork", "shepherd", "nexus", "eager", "eager-prefix", "deferred", "fermata"];
    let matrix = Matrix::measure(&bench.lab(), symphony::figure14(), &policies);
    let mut section = Section::default();
    section.say(
        "Twenty models like ResNet50 on 32 GPUs; the way from the scheduler to a GPU takes the \
         given time (the bound that \
         the scheduler must assume). Where it and a batch of one do not fit into the SLO, the \
         goodput is 0.",
    );
    section.say(matrix.table("network"));
    section.say(matrix.findings());
    let row = |policy: &str| -> Vec<Box<dyn Panel>> {
        let values = matrix.of(policy).unwrap_or_default();
        let panel = |(range, x_title): (&str, &str), scale: f64| -> Box<dyn Panel> {
            let series = [100.0, 50.0, 25.0, 20.0].map(|slo_ms| {
                let cases = matrix.cases.iter().zip(&values);
                let kept = cases.filter(|(case, _)| {
                    case.panel == range && case.pool.models[0].slo_ms == slo_ms
                });
                let points = kept.map(|(case, &value)| (scale * case.x, value)).collect();
                Series::measured(format!("SLO {slo_ms} ms"), points)
            });
            Box::new(Lines {
                title: format!("{policy}, {range}"),
                x: Axis::from_zero(x_title),
                y: Axis::from_zero(GOODPUT),
                series: series.into(),
                marks: vec![match scale > 1.0 {
                    true => Mark::X(33.0, "RDMA, 99.99 %".to_owned()),
                    false => Mark::X(3.034, "TCP, median".to_owned()),
                }],
            })
        };
        vec![
            panel(("RDMA range", "network latency (us)"), 1000.0),
            panel(("TCP range", "network latency (ms)"), 1.0),
        ]
    };
    let rows = vec![(320.0, row("fermata")), (320.0, row("deferred"))];
    let svg = figure("Network latency", "figure 14: 20 models like ResNet50 on 32 GPUs", rows);
    section.show("figure14", "goodput by network latency", svg);
    Ok(section)
}
