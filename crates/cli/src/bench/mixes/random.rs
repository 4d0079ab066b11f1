//! Random mixes: the default policy against the best of all others on each.

use fermata_dispatch::Policy;
use fermata_sim::mixes::ZooModel;
use fermata_sim::mixes::{DrawnMix, Zoos, draw, rivals};
use fermata_sim::symphony::{zoo_1080ti, zoo_a100};

use super::Bench;
use super::verdict::{Comparison, csv, report};
use crate::bench::document::Section;
use crate::chart::grouped;
use crate::input::InputError;

const MIXES: u64 = 1_000;
const QUICK_MIXES: u64 = 40;
/// How exactly goodputs are searched for.
const PRECISION: f64 = 0.002;

pub(super) fn random(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    measure(bench, "random", bench.args.first_seed, &mut section)?;
    Ok(section)
}

pub(super) fn frozen(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    section.say(
        "The same with other seeds. They were drawn after the policy was frozen: no constant of \
         the policy was chosen with a look at these mixes.",
    );
    measure(bench, "frozen", bench.args.frozen_seed, &mut section)?;
    Ok(section)
}

/// Measures the mixes from a seed on, and reports on them under the experiment's name.
fn measure(
    bench: &Bench<'_>,
    name: &'static str,
    first: u64,
    section: &mut Section,
) -> anyhow::Result<()> {
    let zoos = zoos(bench)?;
    let count = bench.args.mixes.unwrap_or(if bench.suite.quick { QUICK_MIXES } else { MIXES });
    let seeds: Vec<u64> = (first..first.saturating_add(count)).collect();
    let rivals = rivals();
    let comparisons = bench.spread(&seeds, |&seed| {
        let mix = draw(&zoos, seed);
        let drawn = DrawnMix::new(&mix, mix.requests(), PRECISION);
        let best = drawn.best_rival(&rivals);
        let ours = drawn.goodput_near(Policy::FERMATA, best.goodput.rate).rate;
        Comparison { seed, mix: mix.name(), executors: mix.executors, ours, best }
    });
    section.say(format!(
        "{} mixes, those of the seeds {} to {}: 2 to 6 models of Symphony's 1080Ti zoo, of its \
         A100 zoo, of the networks that were measured on an H200, or of all of them; 1, 2, 4 or 8 \
         executors; objectives drawn log-uniformly from 2.2 times what a request takes alone (and \
         at least 1.5 times what it takes behind another model's) to 200 ms; equal or Zipf (0.9) \
         rates; Poisson or Gamma (0.2) arrivals. The best of {} other policies on each mix: \
         deferred, eager, five timeouts, Clockwork, Shepherd, Nexus, and both eager batching and \
         the default rules (fermata:fixed, which compares nothing) with nine limits on the length \
         of a batch, as shares of the tightest objective. A run has at least 80,000 \
         requests of its rarest model. Goodputs are searched to {:.1} %.",
        grouped(count as f64, 0),
        first,
        first.saturating_add(count - 1),
        rivals.len(),
        100.0 * PRECISION
    ));
    section.attach(&format!("{name}.csv"), csv(&comparisons));
    report(name, &comparisons, section);
    Ok(())
}

/// Symphony's two zoos and the measured networks. Their order is part of what a seed means.
fn zoos(bench: &Bench<'_>) -> Result<Zoos, InputError> {
    let mut zoos: Zoos = [zoo_1080ti(), zoo_a100()]
        .iter()
        .map(|zoo| zoo.iter().map(ZooModel::linear).collect())
        .collect();
    zoos.push(bench.args.measured.zoo()?.models);
    Ok(zoos)
}
