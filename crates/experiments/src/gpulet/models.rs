//! Gpulet's nine models with their latencies, and its loads.

use fermata_core::{Profile, Span};
use fermata_plan::shares::{Coefficients, Rules, Traits, Usage};
use fermata_plan::{Demand, Kind, Problem};

use super::GPUS;
use crate::document::Table;

/// A line of the table.
pub(super) struct Model {
    pub(super) short: String,
    name: String,
    pub(super) slo_ms: f64,
    /// The part of the latency of the largest batch that no batch can do without.
    fixed: f64,
    memory_mb: f64,
    usage: Usage,
}

/// The largest batch, at which the paper took the latencies that its objectives are twice of.
const BATCH_MAX: u32 = 32;
/// An RTX 2080 Ti has 11 GB.
const GPU_MEMORY: u64 = 11_000_000_000;
/// What the prototype's processes take on a GPU, each.
const OVERHEAD: u64 = 1_230_000_000;

/// All nine.
pub(super) fn nine() -> Vec<Model> {
    let line = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| cells[at].parse::<f64>().expect("the table has numbers here");
        Model {
            short: cells[0].to_owned(),
            name: cells[1].to_owned(),
            slo_ms: number(3),
            fixed: number(4),
            memory_mb: number(5),
            usage: Usage { l2: number(6), dram: number(7) },
        }
    };
    include_str!("../../../../data/gpulet_models.csv").lines().skip(1).map(line).collect()
}

/// The five scenarios of table 5 by name, with the short names of their models.
pub(super) fn five() -> Vec<(&'static str, Vec<&'static str>)> {
    let text = include_str!("../../../../data/gpulet_scenarios.csv");
    let line = |line: &'static str| {
        let (name, models) = line.split_once(',').expect("a name, then models");
        (name, models.split(' ').collect())
    };
    text.lines().skip(1).map(line).collect()
}

impl Model {
    /// A line from the fixed part to half of the objective of the paper at the largest batch.
    fn profile(&self, fixed_times: f64) -> Profile {
        let (longest, fixed) = (self.slo_ms / 2.0, self.fixed * fixed_times);
        let part = |batch: u32| fixed + (1.0 - fixed) * f64::from(batch) / f64::from(BATCH_MAX);
        let table = (1..=BATCH_MAX).map(|batch| Span::from_ms(longest * part(batch)));
        Profile::from_table(table).expect("every batch takes some time")
    }
}

/// The nine models as they are published with the results.
pub(super) fn table(models: &[Model]) -> String {
    let mut table = Table::new([
        "model",
        "short",
        "SLO (ms)",
        "l(1) (ms)",
        "l(32) (ms)",
        "fixed part",
        "memory (MB)",
        "L2",
        "DRAM",
    ]);
    for model in models {
        let profile = model.profile(1.0);
        let ms = |batch| format!("{:.2}", profile.latency(batch).as_ms());
        table.add([
            model.name.clone(),
            model.short.clone(),
            model.slo_ms.to_string(),
            ms(1),
            ms(BATCH_MAX as usize),
            format!("{:.0} %", 100.0 * model.fixed),
            model.memory_mb.to_string(),
            model.usage.l2.to_string(),
            model.usage.dram.to_string(),
        ]);
    }
    table.markdown()
}

/// What may differ from the usual.
#[derive(Clone, Copy)]
pub(super) struct World {
    /// Fixed parts are multiplied by this.
    pub(super) fixed: f64,
    pub(super) coefficients: Coefficients,
    pub(super) margin: f64,
    pub(super) left_over: f64,
}

impl World {
    /// As published.
    pub(super) fn usual() -> Self {
        Self { fixed: 1.0, coefficients: Coefficients::default(), margin: 1.0, left_over: 0.0 }
    }
}

/// Demands on the paper's GPUs.
pub(super) struct Load {
    pub(super) problem: Problem,
    pub(super) rules: Rules,
    pub(super) traits: Vec<Traits>,
}

/// A model, an objective in milliseconds, and a rate.
pub(super) type Asked<'a> = (&'a Model, f64, f64);

impl Load {
    pub(super) fn new<'a>(world: &World, asked: impl IntoIterator<Item = Asked<'a>>) -> Self {
        let (mut demands, mut traits) = (Vec::new(), Vec::new());
        for (model, slo_ms, rate) in asked {
            let mut demand = Demand::new(model.profile(world.fixed), Span::from_ms(slo_ms), rate);
            demand.memory = (model.memory_mb * 1e6) as u64;
            demands.push(demand);
            traits.push(Traits { usage: model.usage, measured: Vec::new() });
        }
        let kinds = vec![Kind { memory: GPU_MEMORY, price: 1.0, limit: None }];
        let problem = Problem { demands, kinds, limit: Some(GPUS) };
        let rules = Rules {
            batch: BATCH_MAX as usize,
            overhead: OVERHEAD,
            coefficients: world.coefficients,
            margin: world.margin,
            left_over: world.left_over,
            ..Rules::default()
        };
        Self { problem, rules, traits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_those_of_the_paper() {
        let models = nine();
        let slos: Vec<f64> = models.iter().map(|model| model.slo_ms).collect();
        assert_eq!(slos, [66.0, 5.0, 108.0, 202.0, 142.0, 62.0, 64.0, 202.0, 22.0]);
        for model in &models {
            let longest = model.profile(1.0).latency(32).as_ms();
            assert!((2.0 * longest - model.slo_ms).abs() < 1e-5, "{}", model.name);
        }
        let five = five();
        assert_eq!(five.len(), 5);
        assert_eq!(five[4], ("scen5", vec!["le", "ssd", "nas", "vgg"]));
    }
}
