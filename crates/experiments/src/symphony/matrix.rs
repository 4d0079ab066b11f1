//! Goodputs of several policies on several pools: the table, what can be said about it, and its
//! pictures.

use fermata_chart::{Axis, BarSeries, Bars, Lines, Panel, Series, grouped};

use crate::document::Table;
use crate::trials::symphony::{Case, Contender, Lab, Pool};

/// Case by policy.
pub(super) struct Matrix {
    pub(super) cases: Vec<Case>,
    pub(super) policies: Vec<&'static str>,
    /// By case and policy.
    pub(super) goodputs: Vec<Vec<f64>>,
    /// By case.
    pub(super) bounds: Vec<f64>,
}

/// As many as there are colours; the most interesting first.
const PICTURED: [&str; 7] =
    ["fermata", "deferred", "eager", "eager-prefix", "shepherd", "nexus", "clockwork"];
/// The systems that the paper compares itself with.
const OF_THE_PAPER: [&str; 3] = ["clockwork", "nexus", "shepherd"];
/// Central and eager, with and without early drop.
const EAGER: [&str; 2] = ["eager", "eager-prefix"];
/// Goodputs are searched to half a percent: less than this is no difference.
const NOTABLE: f64 = 0.02;

impl Matrix {
    pub(super) fn measure(lab: &Lab<'_>, cases: Vec<Case>, policies: &[&'static str]) -> Self {
        let contenders = Contender::all(policies);
        let pools: Vec<&Pool> = cases.iter().map(|case| &case.pool).collect();
        let goodputs = lab.goodputs_on(&pools, &contenders);
        let bounds = cases.iter().map(|case| case.pool.bound()).collect();
        Self { cases, policies: policies.to_vec(), goodputs, bounds }
    }

    /// The goodputs of one policy, by case.
    pub(super) fn of(&self, policy: &str) -> Option<Vec<f64>> {
        let at = self.policies.iter().position(|name| *name == policy)?;
        Some(self.goodputs.iter().map(|row| row[at]).collect())
    }

    /// The best of those of the policies that take part, by case.
    fn best_of(&self, keep: impl Fn(&str) -> bool) -> Vec<f64> {
        let best = |row: &Vec<f64>| {
            let kept = self.policies.iter().zip(row).filter(|(name, _)| keep(name));
            kept.map(|(_, &goodput)| goodput).fold(0.0, f64::max)
        };
        self.goodputs.iter().map(best).collect()
    }

    /// The same for each executor.
    pub(super) fn per_executor(&self) -> Self {
        let share = |at: usize, value: f64| value / self.cases[at].pool.executors as f64;
        let shares = |(at, row): (usize, &Vec<f64>)| row.iter().map(|v| share(at, *v)).collect();
        Self {
            cases: self.cases.clone(),
            policies: self.policies.clone(),
            goodputs: self.goodputs.iter().enumerate().map(shares).collect(),
            bounds: self.bounds.iter().enumerate().map(|(at, v)| share(at, *v)).collect(),
        }
    }

    /// One row for each case.
    pub(super) fn table(&self, first: &str) -> String {
        let head = [first, "paper"].into_iter().chain(self.policies.iter().copied());
        let mut table = Table::new(head.chain(["bound"]));
        for ((case, row), bound) in self.cases.iter().zip(&self.goodputs).zip(&self.bounds) {
            let numbers = row.iter().chain([bound]).map(|&value| grouped(value, 0));
            table.add([case.name.clone(), paper_cell(case)].into_iter().chain(numbers));
        }
        table.markdown()
    }

    /// What the numbers say, in sentences.
    pub(super) fn findings(&self) -> String {
        let mut said = Vec::new();
        let others = self.best_of(|name| name != "fermata");
        let (fermata, deferred) = (self.of("fermata"), self.of("deferred"));
        if let Some(fermata) = &fermata {
            said.extend(range_sentence("`fermata` over the best other policy", fermata, &others));
        }
        if let Some(deferred) = &deferred {
            said.extend(range_sentence("`deferred` over the bound", deferred, &self.bounds));
            let paper = self.best_of(|name| OF_THE_PAPER.contains(&name));
            if paper.iter().any(|&goodput| goodput > 0.0) {
                let what = "`deferred` over the best of clockwork, nexus and shepherd";
                said.extend(range_sentence(what, deferred, &paper));
            }
        }
        let eager = self.best_of(|name| EAGER.contains(&name));
        if let Some(deferred) = &deferred {
            let what = "An ideal eager scheduler (the better of `eager` and `eager-prefix`) over \
                        `deferred`";
            said.extend(range_sentence(what, &eager, deferred));
        }
        said.extend(self.factors());
        said.extend(self.against_the_paper());
        said.join("\n")
    }

    /// How far `deferred` is above the paper's baselines, beside what the paper printed.
    fn factors(&self) -> Vec<String> {
        let deferred = self.of("deferred").unwrap_or_default();
        let baselines = self.best_of(|name| OF_THE_PAPER.contains(&name));
        let mut said = Vec::new();
        for ((case, deferred), baseline) in self.cases.iter().zip(deferred).zip(baselines) {
            let Some(printed) = case.paper.factor.filter(|_| baseline > 0.0) else { continue };
            let found = deferred / baseline;
            let so = match found < printed * (1.0 - NOTABLE) {
                true => ": our baselines are stronger than those it measured",
                false => "",
            };
            said.push(format!(
                "- {}: `deferred` is {found:.2} times the best of clockwork, nexus and shepherd, \
                 where the paper has \
                 {printed}{so}.",
                case.name
            ));
        }
        said
    }

    /// Where our systems differ from what the paper measured of its own.
    fn against_the_paper(&self) -> Vec<String> {
        let mut said = Vec::new();
        let eager = self.best_of(|name| EAGER.contains(&name));
        for ((case, row), eager) in self.cases.iter().zip(&self.goodputs).zip(eager) {
            for &(policy, printed) in case.paper.numbers {
                let Some(at) = self.policies.iter().position(|name| *name == policy) else {
                    continue;
                };
                let ratio = row[at] / printed;
                let word = match ratio {
                    ratio if ratio > 1.0 + NOTABLE => "stronger than the paper measured",
                    ratio if ratio < 1.0 - NOTABLE => "weaker than the paper measured",
                    _ => continue,
                };
                let (found, printed) = (grouped(row[at], 0), grouped(printed, 0));
                said.push(format!(
                    "- Our `{policy}` is {word} on {}: {found} against {printed} ({ratio:.2} \
                     times).",
                    case.name
                ));
            }
            let baselines = case.paper.numbers.iter().filter(|(name, _)| *name != "deferred");
            let best = baselines.copied().max_by(|a, b| a.1.total_cmp(&b.1));
            if let Some((name, printed)) = best.filter(|(_, printed)| eager > *printed) {
                said.push(format!(
                    "- An ideal eager scheduler reaches {} on {}, above every baseline that the \
                     paper \
                     measured (the best is {name} with {}).",
                    grouped(eager, 0),
                    case.name,
                    grouped(printed, 0)
                ));
            }
        }
        said
    }

    /// The cases as groups of bars.
    pub(super) fn bars(&self, title: &str, y_title: &str) -> Bars {
        let mut series: Vec<BarSeries> = self
            .pictured()
            .map(|(name, values)| BarSeries { name: name.to_owned(), values })
            .collect();
        series.push(BarSeries { name: "bound".to_owned(), values: self.bounds.clone() });
        Bars {
            title: title.to_owned(),
            x_title: String::new(),
            y: Axis::from_zero(y_title),
            groups: self.cases.iter().map(|case| case.name.clone()).collect(),
            series,
            values: Some(0),
        }
    }

    /// A panel of curves for each panel that the cases name.
    pub(super) fn curves(&self, x_title: &str, y_title: &str) -> Vec<Box<dyn Panel>> {
        let mut panels: Vec<&str> = self.cases.iter().map(|case| &case.panel[..]).collect();
        panels.dedup();
        let curve = |panel: &str, values: &[f64]| -> Vec<(f64, f64)> {
            let cases = self.cases.iter().zip(values).filter(|(case, _)| case.panel == panel);
            cases.map(|(case, &value)| (case.x, value)).collect()
        };
        let panel = |panel: &str| -> Box<dyn Panel> {
            let mut series: Vec<Series> = self
                .pictured()
                .map(|(name, values)| Series::measured(name, curve(panel, &values)))
                .collect();
            let bound = Series::line("bound", curve(panel, &self.bounds));
            series.push(Series { dashed: true, ..bound });
            Box::new(Lines {
                title: panel.to_owned(),
                x: Axis::from_zero(x_title),
                y: Axis::from_zero(y_title),
                series,
                marks: Vec::new(),
            })
        };
        panels.into_iter().map(panel).collect()
    }

    fn pictured(&self) -> impl Iterator<Item = (&'static str, Vec<f64>)> {
        PICTURED.into_iter().filter_map(|name| Some((name, self.of(name)?)))
    }
}

/// `Symphony 5,264; Clockwork 1,358`, or words, or nothing.
pub(super) fn paper_cell(case: &Case) -> String {
    let number = |(name, value): &(&str, f64)| {
        let system = if *name == "deferred" { "symphony" } else { name };
        format!("{system} {}", grouped(*value, 0))
    };
    let numbers: Vec<String> = case.paper.numbers.iter().map(number).collect();
    match (numbers.is_empty(), case.paper.words) {
        (false, _) => numbers.join("; "),
        (true, "") => "-".to_owned(),
        (true, words) => words.to_owned(),
    }
}

/// From the lowest to the highest ratio, with the geometric mean; nothing, where no ratio can be
/// taken.
fn range_sentence(what: &str, above: &[f64], below: &[f64]) -> Option<String> {
    let ratios: Vec<f64> = above
        .iter()
        .zip(below)
        .filter(|(above, below)| **above > 0.0 && **below > 0.0)
        .map(|(above, below)| above / below)
        .collect();
    let (low, high) = ratios.iter().fold((f64::INFINITY, 0.0), |(low, high), &ratio| {
        (f64::min(low, ratio), f64::max(high, ratio))
    });
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    match ratios.len() {
        0 => None,
        1 => Some(format!("- {what}: {low:.3}.")),
        _ => Some(format!("- {what}: {low:.3} to {high:.3}, geometric mean {mean:.3}.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::symphony::table2;

    #[test]
    fn findings_say_where_baselines_are_stronger_than_in_the_paper() {
        let matrix = Matrix {
            cases: table2(),
            policies: vec!["clockwork", "eager", "deferred", "fermata"],
            goodputs: vec![vec![4000.0, 4500.0, 5250.0, 5500.0], vec![400.0, 500.0, 930.0, 977.0]],
            bounds: vec![5839.0, 1083.0],
        };
        let said = matrix.findings();
        for expected in [
            "`fermata` over the best other policy: 1.048 to 1.051",
            "Our `clockwork` is stronger than the paper measured on ResNet50, SLO 25 ms: 4,000 \
             against 1,358",
            "Our `clockwork` is weaker than the paper measured on InceptionResNetV2",
            "An ideal eager scheduler reaches 4,500 on ResNet50, SLO 25 ms, above every baseline",
        ] {
            assert!(said.contains(expected), "{said}");
        }
        assert!(!said.contains("`deferred` is"), "{said}");
        let table = matrix.table("model");
        assert!(
            table.contains(
                "| symphony 5,264; clockwork 1,358; nexus 4,027; shepherd 4,445 | 4,000 |"
            )
        );
    }
}
