use fermata_core::{Profile, Span};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;

/// Alpha, beta and objective of models of many kinds, in milliseconds.
const MODELS: [[f64; 3]; 10] = [
    [0.304, 14.345, 31.0],
    [0.115, 4.326, 20.0],
    [0.268, 5.172, 20.0],
    [0.190, 2.892, 20.0],
    [0.913, 6.732, 20.0],
    [0.285, 1.901, 20.0],
    [0.893, 2.181, 20.0],
    [3.464, 7.154, 42.0],
    [7.353, 0.222, 59.0],
    [19.448, 4.442, 164.0],
];

/// A model with its objective, by place in the list.
pub(crate) fn model(at: usize) -> (Profile, Span) {
    let [alpha, beta, slo] = MODELS[at % MODELS.len()].map(Span::from_ms);
    (Profile::linear(alpha, beta, slo).unwrap(), slo)
}

/// A turn at this share of what a GPU that runs nothing else serves.
pub(crate) fn turn_of(profile: &Profile, slo: Span, share: f64) -> Turn<'_> {
    let batch = profile.largest_within(Span(slo.0 / 2));
    Turn { profile, slo, rate: share * 1e9 / profile.cost(batch) }
}

pub(crate) fn sessions(models: &[(Profile, Span)], count: usize, seed: u64) -> Vec<Session<'_>> {
    let mut random = Pcg64::seed_from_u64(seed);
    let one = |demand| {
        let (profile, slo) = &models[random.random_range(0..models.len())];
        let turn = turn_of(profile, *slo, random.random_range(0.05..0.6));
        Session { demand, turn, memory: 1, workspace: 0 }
    };
    (0..count).map(one).collect()
}

fn packer(models: &[(Profile, Span)], count: usize, seed: u64) -> Packer<'_> {
    Packer { sessions: sessions(models, count, seed), memory: u64::MAX }
}

fn models() -> Vec<(Profile, Span)> {
    (0..MODELS.len()).map(model).collect()
}

/// Every way to place one session after the other, by a test of sets that tries many rounds.
fn brute_force(packer: &Packer<'_>, at: usize, sets: &mut Vec<Set>, best: &mut usize) {
    if sets.len() >= *best {
        return;
    }
    if at == packer.sessions.len() {
        *best = sets.len();
        return;
    }
    for place in 0..=sets.len() {
        if place == sets.len() {
            sets.push(Vec::new());
        }
        sets[place].push(at);
        if some_round(packer, &sets[place]) {
            brute_force(packer, at + 1, sets, best);
        }
        sets[place].pop();
        if sets[place].is_empty() {
            sets.pop();
        }
    }
}

/// Is there a round, of all at whose end a batch is just gathered or an objective just met?
fn some_round(packer: &Packer<'_>, set: &[usize]) -> bool {
    let turns: Vec<Turn<'_>> = set.iter().map(|&at| packer.sessions[at].turn).collect();
    let ends = turns.iter().flat_map(|turn| {
        (1..=turn.profile.max_batch()).flat_map(move |batch| {
            let gathered = Span((batch as f64 / turn.rate * 1e9) as u64);
            [gathered, turn.slo - turn.profile.latency(batch)]
        })
    });
    let holds = |round: Span| {
        let busy = turns.iter().fold(Span::ZERO, |sum, turn| sum + turn.latency(round));
        busy <= round && turns.iter().all(|turn| round + turn.latency(round) <= turn.slo)
    };
    ends.into_iter().any(holds)
}

#[test]
fn the_table_of_subsets_is_as_good_as_brute_force() {
    let models = models();
    for seed in 0..40 {
        let packer = packer(&models, 7, seed);
        let found = exact(&packer);
        packer.assert_packed(&found.sets);
        let mut fewest = 8;
        brute_force(&packer, 0, &mut Vec::new(), &mut fewest);
        assert_eq!(found.sets.len(), fewest, "seed {seed}");
    }
}

#[test]
fn branch_and_price_is_as_good_as_the_table() {
    let models = models();
    for seed in 0..20 {
        let packer = packer(&models, 12, seed);
        let found = exact::priced(&packer);
        packer.assert_packed(&found.sets);
        assert!(found.is_proven());
        assert_eq!(found.sets.len(), subsets::fewest(&packer).len(), "seed {seed}");
    }
}

#[test]
fn every_packing_fits_and_is_above_its_bounds() {
    let models = models();
    for seed in 0..10 {
        let packer = packer(&models, 40, seed);
        let found = exact(&packer);
        packer.assert_packed(&found.sets);
        assert!(found.is_proven(), "seed {seed}: {} {}", found.sets.len(), found.lower_bound);
        for sets in [best_fit(&packer), squishy(&packer)] {
            packer.assert_packed(&sets);
            assert!(sets.len() >= found.lower_bound);
        }
        assert!(fluid_bound(&packer) <= found.lower_bound);
        let configured = configuration_bound(&packer, None).unwrap();
        assert!(configured <= found.sets.len() as f64 + 1e-6);
    }
}

#[test]
fn memory_keeps_sessions_apart() {
    let models = models();
    let mut packer = packer(&models, 10, 1);
    packer.sessions.iter_mut().for_each(|session| {
        (session.memory, session.workspace) = (10, 5);
    });
    packer.memory = 15;
    assert_eq!(exact(&packer).sets.len(), 10);
    packer.memory = 25;
    assert!(exact(&packer).sets.iter().all(|set| set.len() <= 2));
}

#[test]
fn what_fills_gpus_gets_them() {
    let (profile, slo) = model(2);
    let turn = Turn { profile: &profile, slo, rate: 0.0 };
    let session = Session { demand: 3, turn, memory: 0, workspace: 0 };
    let peak = session.peak();
    let busy = Session { turn: Turn { rate: 2.5 * peak, ..turn }, ..session };
    let (saturated, rest) = saturate(&[busy]);
    assert_eq!((saturated[0].gpus, saturated[0].demand, saturated[0].batch), (2, 3, 18));
    assert!((rest[0].turn.rate - 0.5 * peak).abs() < 1e-6);
    let exactly = Session { turn: Turn { rate: 2.0 * peak, ..turn }, ..session };
    assert!(saturate(&[exactly]).1.is_empty());
}
