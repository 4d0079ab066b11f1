//! Other ways to split a query, slow and obvious, or those of the paper: the fewest GPUs that they
//! find, infinite if none.

use fermata_core::Span;
use fermata_plan::query::{Budget, Query};

/// Time and GPUs of each batch of a stage, without batches that take as long as a larger one.
fn batches(query: &Query, budget: Budget) -> Vec<Vec<(Span, f64)>> {
    let stages = query.stages.iter().zip(query.rates());
    stages
        .map(|(stage, rate)| {
            let profile = &stage.profile;
            let largest = (1..=profile.max_batch())
                .filter(|&batch| profile.latency(batch) != profile.latency(batch + 1));
            let gpus = |batch| rate * profile.cost(batch) * 1e-9;
            largest.map(|batch| (budget.time(profile.latency(batch)), gpus(batch))).collect()
        })
        .collect()
}

/// Every combination of batches, stage by stage.
pub(super) fn every_batch(query: &Query, budget: Budget) -> f64 {
    let batches = batches(query, budget);
    let mut least = f64::INFINITY;
    let mut ends = vec![Span::ZERO; batches.len()];
    combine(query, &batches, 0, 0.0, &mut ends, &mut least);
    least
}

fn combine(
    query: &Query,
    batches: &[Vec<(Span, f64)>],
    stage: usize,
    gpus: f64,
    ends: &mut Vec<Span>,
    least: &mut f64,
) {
    if stage == batches.len() {
        *least = least.min(gpus);
        return;
    }
    let before = query.stages[stage].after.iter().map(|&before| ends[before]).max();
    let start = before.unwrap_or(Span::ZERO);
    for &(time, more) in &batches[stage] {
        ends[stage] = start + time;
        if ends[stage] <= query.slo {
            combine(query, batches, stage + 1, gpus + more, ends, least);
        }
    }
}

/// Every batch of a stage with every split of the stages after it, in a tree.
pub(super) fn every_tree_split(query: &Query, budget: Budget) -> f64 {
    let (batches, after) = (batches(query, budget), after(query));
    descend(&batches, &after, 0, query.slo)
}

fn descend(batches: &[Vec<(Span, f64)>], after: &[Vec<usize>], stage: usize, left: Span) -> f64 {
    let fitting = batches[stage].iter().filter(|&&(time, _)| time <= left);
    let total = |&(time, gpus): &(Span, f64)| {
        let rest = after[stage].iter().map(|&next| descend(batches, after, next, left - time));
        gpus + rest.sum::<f64>()
    };
    fitting.map(total).fold(f64::INFINITY, f64::min)
}

/// The paper's dynamic program (Nexus 6.2) on a tree, with time cut into milliseconds: a batch
/// takes up to the end of the millisecond in which it ends, and of the objective, what is less than
/// one is lost.
pub(super) fn on_a_grid(query: &Query, budget: Budget) -> f64 {
    const CUT: u64 = 1_000_000;
    let (batches, after) = (batches(query, budget), after(query));
    let pieces = (query.slo.0 / CUT) as usize;
    // For each stage and number of pieces, the fewest GPUs of it and all after it.
    let mut fewest = vec![vec![f64::INFINITY; pieces + 1]; batches.len()];
    for stage in (0..batches.len()).rev() {
        for left in 0..=pieces {
            let total = |&(time, gpus): &(Span, f64)| {
                let rest = left.checked_sub(time.0.div_ceil(CUT) as usize)?;
                let next = after[stage].iter().map(|&next: &usize| fewest[next][rest]);
                Some(gpus + next.sum::<f64>())
            };
            fewest[stage][left] =
                batches[stage].iter().filter_map(total).fold(f64::INFINITY, f64::min);
        }
    }
    fewest[0][pieces]
}

/// The stages right after each.
fn after(query: &Query) -> Vec<Vec<usize>> {
    let mut after = vec![Vec::new(); query.stages.len()];
    for (at, stage) in query.stages.iter().enumerate() {
        stage.after.iter().for_each(|&before| after[before].push(at));
    }
    after
}
