//! Random mixes: the default policy against the best of all others on each.

use std::ops::RangeInclusive;

use fermata_chart::grouped;
use fermata_dispatch::Policy;
use fermata_files::InputError;

use super::Bench;
use super::row::{MixRow, rounded};
use super::verdict::{Comparison, report};
use crate::document::Section;
use crate::store::{self, Store};
use crate::trials::mixes::{
    BestRival, DrawnMix, Goodput, Mix, Rival, ZooModel, Zoos, draw, rivals,
};
use crate::trials::symphony::{zoo_1080ti, zoo_a100};

const MIXES: u64 = 1_000;
const QUICK_MIXES: u64 = 40;
/// How exactly goodputs are searched for.
const PRECISION: f64 = 0.002;
/// The least requests of the rarest model, as `Mix::requests` has them.
const RAREST_REQUESTS: &str = "80,000";

/// What is known of the mixes, by their seeds.
type Rows = store::Rows<MixRow>;

pub(super) fn random(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    compare(bench, "random", bench.args.first_seed, &mut section)?;
    Ok(section)
}

pub(super) fn frozen(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    section.say(
        "The same with other seeds. They were drawn after the policy was frozen: no constant of \
         the policy was chosen with a look at these mixes.",
    );
    compare(bench, "frozen", bench.args.frozen_seed, &mut section)?;
    Ok(section)
}

/// Measures what is missing of the mixes from a seed on and reports on these mixes, or only reports
/// on all that are stored.
fn compare(
    bench: &Bench<'_>,
    name: &'static str,
    first: u64,
    section: &mut Section,
) -> anyhow::Result<()> {
    let zoos = zoos(bench)?;
    let store = store(bench, name);
    let mut rows: Rows = store.read(|&seed, row: &MixRow| row.check(&draw(&zoos, seed)))?;
    let seeds = if bench.args.report {
        0..=u64::MAX
    } else {
        let count = bench.args.mixes.unwrap_or(if bench.suite.quick { QUICK_MIXES } else { MIXES });
        let seeds = first..=first.saturating_add(count - 1);
        fill(bench, &zoos, &store, &mut rows, seeds.clone())?;
        seeds
    };
    let known = rows.range(seeds).filter_map(|(&seed, row)| Comparison::of(seed, row));
    let comparisons: Vec<Comparison> = known.collect();
    let (Some(first), Some(last)) = (comparisons.first(), comparisons.last()) else {
        let name = if bench.args.report { "--report" } else { "--refresh" };
        let reason = format!("nothing is stored yet in {}", store.file().display());
        return Err(InputError::Argument { name, reason }.into());
    };
    let some = match last.seed - first.seed < comparisons.len() as u64 {
        true => "those",
        false => "some",
    };
    section.say(format!(
        "{} mixes, {some} of the seeds {} to {}: 2 to 6 models of Symphony's 1080Ti zoo, of its \
         A100 zoo, of the networks that were measured on an H200, or of all of them; 1, 2, 4 or 8 \
         executors; objectives drawn log-uniformly from 2.2 times what a request takes alone (and \
         at least 1.5 times what it takes behind another model's) to 200 ms; equal or Zipf (0.9) \
         rates; Poisson or Gamma (0.2) arrivals. The best of {} other policies on each mix: \
         deferred, eager, five timeouts, Clockwork, Shepherd, Nexus, and both eager batching and \
         the default rules (fermata:fixed, which compares nothing) with nine limits on the length \
         of a batch, as shares of the tightest objective. A run has at least {RAREST_REQUESTS} \
         requests of its rarest model. Goodputs are searched to {:.1} %.",
        grouped(comparisons.len() as f64, 0),
        first.seed,
        last.seed,
        rivals().len(),
        100.0 * PRECISION
    ));
    report(name, &comparisons, section);
    Ok(())
}

/// Where the mixes of an experiment are kept.
fn store(bench: &Bench<'_>, name: &str) -> Store {
    let file = bench.document.folder().join(format!("{name}.csv"));
    let setting = format!(
        "# goodputs searched to {:.1} %, at least {RAREST_REQUESTS} requests of the rarest model",
        100.0 * PRECISION
    );
    Store::new(file, setting, MixRow::HEAD.to_owned())
}

/// Measures what is missing of the mixes with these seeds, and stores each mix as soon as it is
/// known.
fn fill(
    bench: &Bench<'_>,
    zoos: &Zoos,
    store: &Store,
    rows: &mut Rows,
    seeds: RangeInclusive<u64>,
) -> anyhow::Result<()> {
    let refresh = bench.args.refresh.is_some();
    if refresh {
        rows.range_mut(seeds.clone()).for_each(|(_, row)| row.fermata = None);
    }
    // Mixes that are not stored have nothing to refresh.
    let is_missing = |seed: &u64| rows.get(seed).map_or(!refresh, |row| row.fermata.is_none());
    let missing: Vec<u64> = seeds.filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let rivals = rivals();
    let appender = store.open(rows)?;
    let stored = &*rows;
    let found = bench.spread(&missing, |&seed| {
        let row = measure(&draw(zoos, seed), &rivals, stored.get(&seed));
        appender.add(&seed, &row).map(|()| row)
    });
    for (seed, row) in missing.into_iter().zip(found) {
        rows.insert(seed, row?);
    }
    // The lines were added in the order in which threads were done.
    store.write(rows)
}

/// Measures the default policy on a mix, and the other policies unless their best is known.
fn measure(mix: &Mix, rivals: &[Rival], known: Option<&MixRow>) -> MixRow {
    let drawn = DrawnMix::new(mix, mix.requests(), PRECISION);
    let best = match known {
        Some(row) => row.best.clone(),
        None => {
            let BestRival { goodput: Goodput { rate, busy }, name } = drawn.best_rival(rivals);
            BestRival { goodput: Goodput { rate: rounded(rate), busy: rounded(busy) }, name }
        }
    };
    let fermata = drawn.goodput_near(Policy::FERMATA, best.goodput.rate).rate;
    MixRow { executors: mix.executors, best, fermata: Some(rounded(fermata)), mix: mix.name() }
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
