//! Squishy packing of up to a hundred sessions: every method against the proven optimum.

use std::time::Instant;

use fermata_core::Span;
use fermata_plan::{Packer, Set, best_fit, exact, fluid_bound, oblivious, squishy};
use fermata_sim::spread;

use super::Bench;
use super::instances::Models;
use crate::document::{Section, Table};
use crate::trials::symphony::Meter;

/// A thousand small problems by brute force, and larger ones with their proof.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    section.say(
        "Sessions of random models of the A100 zoo (all but DenseNet121, whose SLO of 21 ms is \
         below two batches of one), each \
         at 5 to 60 % of the rate that a GPU of its own would serve. A set may share a GPU if its \
         shortest round keeps every \
         SLO. *squishy*: Nexus' algorithm 1. *best fit*: ours for many sessions. *exact*: a table \
         of subsets up to 14 sessions, \
         above that branch and price. *oblivious*: first fit by rates alone; its sets do not fit, \
         and it is here to show why \
         rounds matter.",
    );
    let quick = bench.suite.quick;
    against_brute_force(bench, &mut section, if quick { 100 } else { 1000 });
    let mut table = Table::new([
        "sessions",
        "SLOs",
        "instances",
        "fluid bound",
        "exact",
        "proven",
        "best fit",
        "squishy",
        "oblivious",
        "longest (ms)",
        "at most (ms)",
    ]);
    for (sessions, slo_times, limit) in
        [(25, 1.0, "3,000"), (100, 1.0, "10,000"), (25, 3.0, ""), (100, 3.0, "")]
    {
        let instances = if quick { 5 } else { 100 };
        bench.progress.expect(instances);
        let models = Models::new(slo_times);
        let seeds: Vec<u64> =
            (0..instances as u64).map(|at| bench.suite.seed * 1000 + at).collect();
        // One after the other: the time of each is measured.
        let found = spread(&seeds, 1, |&seed| {
            let tried = Tried::new(&models.packer(sessions, seed));
            bench.progress.finish_one();
            tried
        });
        let mean = |of: fn(&Tried) -> usize| {
            format!("{:.2}", found.iter().map(of).sum::<usize>() as f64 / found.len() as f64)
        };
        let longest = found.iter().map(|each| each.seconds).fold(0.0, f64::max);
        table.add([
            sessions.to_string(),
            format!("× {slo_times}"),
            instances.to_string(),
            mean(|each| each.fluid),
            mean(|each| each.exact),
            format!("{} of {instances}", found.iter().filter(|each| each.proven).count()),
            mean(|each| each.best_fit),
            mean(|each| each.squishy),
            mean(|each| each.oblivious),
            format!("{:.1}", longest * 1e3),
            limit.to_owned(),
        ]);
    }
    section.say("GPUs, on average, and the longest time to the proven optimum:");
    section.say(table.markdown());
    section.say(
        "Nexus reports hours in CPLEX for 25 sessions. Where an instance is not proven, the answer \
         is at most the difference \
         to its bound away, one GPU in all that were seen.",
    );
    Ok(section)
}

struct Tried {
    fluid: usize,
    exact: usize,
    proven: bool,
    best_fit: usize,
    squishy: usize,
    oblivious: usize,
    seconds: f64,
}

impl Tried {
    fn new(packer: &Packer<'_>) -> Self {
        let start = Instant::now();
        let found = exact(packer);
        let seconds = start.elapsed().as_secs_f64();
        packer.assert_packed(&found.sets);
        Self {
            fluid: fluid_bound(packer),
            exact: found.sets.len(),
            proven: found.is_proven(),
            best_fit: best_fit(packer).len(),
            squishy: squishy(packer).len(),
            oblivious: oblivious(packer).len(),
            seconds,
        }
    }
}

const FEW: usize = 12;

fn against_brute_force(bench: &Bench<'_>, section: &mut Section, instances: usize) {
    bench.progress.expect(instances);
    let models = Models::new(1.0);
    let seeds: Vec<u64> =
        (0..instances as u64).map(|at| bench.suite.seed * 1_000_000 + at).collect();
    let found = spread(&seeds, bench.suite.threads(), |&seed| {
        let packer = models.packer(FEW, seed);
        let tried = Tried::new(&packer);
        let fewest = brute_force(&packer);
        bench.progress.finish_one();
        (tried, fewest)
    });
    let equal = |of: fn(&Tried) -> usize| {
        let count = found.iter().filter(|(tried, fewest)| of(tried) == *fewest).count();
        format!("{count} of {instances}")
    };
    let mut table = Table::new(["method", "equal to brute force", "GPUs on average"]);
    let mean = |of: &dyn Fn(&(Tried, usize)) -> usize| {
        format!("{:.3}", found.iter().map(of).sum::<usize>() as f64 / instances as f64)
    };
    table.add(["brute force".to_owned(), "-".to_owned(), mean(&|each| each.1)]);
    table.add(["exact".to_owned(), equal(|each| each.exact), mean(&|each| each.0.exact)]);
    table.add(["best fit".to_owned(), equal(|each| each.best_fit), mean(&|each| each.0.best_fit)]);
    table.add(["squishy".to_owned(), equal(|each| each.squishy), mean(&|each| each.0.squishy)]);
    section.say(format!(
        "{instances} instances of {FEW} sessions. Brute force tries every way to place one session \
         after the other, and every \
         round at whose end a batch is just gathered or an SLO just met:"
    ));
    section.say(table.markdown());
}

/// The fewest sets, by trying all ways to place one session after the other.
fn brute_force(packer: &Packer<'_>) -> usize {
    let sessions = packer.sessions.len();
    let members = |set: usize| -> Set { (0..sessions).filter(|at| set >> at & 1 == 1).collect() };
    let fits: Vec<bool> = (0..1 << sessions).map(|set| some_round(packer, &members(set))).collect();
    let (mut sets, mut best) = (Vec::new(), sessions + 1);
    place(&fits, sessions, 0, &mut sets, &mut best);
    best
}

fn place(fits: &[bool], sessions: usize, at: usize, sets: &mut Vec<usize>, best: &mut usize) {
    if sets.len() >= *best {
        return;
    }
    if at == sessions {
        *best = sets.len();
        return;
    }
    for place_at in 0..sets.len() {
        let with = sets[place_at] | 1 << at;
        if fits[with] {
            sets[place_at] = with;
            place(fits, sessions, at + 1, sets, best);
            sets[place_at] ^= 1 << at;
        }
    }
    sets.push(1 << at);
    place(fits, sessions, at + 1, sets, best);
    sets.pop();
}

/// Is there a round in which all keep up and are in time? All are tried at whose end something
/// changes.
fn some_round(packer: &Packer<'_>, set: &[usize]) -> bool {
    let turns = || set.iter().map(|&at| &packer.sessions[at].turn);
    let holds = |round: Span| {
        let busy = turns().fold(Span::ZERO, |sum, turn| sum + turn.latency(round));
        busy <= round && turns().all(|turn| round + turn.latency(round) <= turn.slo)
    };
    set.is_empty()
        || turns().any(|turn| {
            (1..=turn.profile.max_batch()).any(|batch| {
                let gathered = Span((batch as f64 / turn.rate * 1e9) as u64);
                holds(gathered) || holds(turn.slo - turn.profile.latency(batch))
            })
        })
}
