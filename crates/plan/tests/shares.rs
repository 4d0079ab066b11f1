//! Shares of GPUs on gpulet's nine models: every plan of every method holds, and none schedules
//! what ours does not.

use fermata_core::{Profile, Span};
use fermata_plan::shares::{self, Board, Fault, Measured, Rules, Scene, Traits, Usage};
use fermata_plan::{Demand, Kind, Plan, Problem, Reason, Turn, shortest_round};
use proptest::prelude::*;

/// The nine models at the given rates, on GPUs of 11 GB, as gpulet's prototype has them.
fn nine(rates: [f64; 9], gpus: usize) -> (Problem, Rules, Vec<Traits>) {
    let table = include_str!("../../../data/gpulet_models.csv");
    let (mut demands, mut traits) = (Vec::new(), Vec::new());
    for (line, rate) in table.lines().skip(1).zip(rates) {
        let cell = |at: usize| {
            let text = line.split(',').nth(at).expect("a line has all columns");
            text.parse::<f64>().expect("the table has numbers here")
        };
        let (slo, fixed, memory) = (cell(3), cell(4), cell(5));
        let most = slo / 2.0;
        let latency = |batch| fixed * most + (1.0 - fixed) * most * f64::from(batch) / 32.0;
        let profile = Profile::from_table((1..=32).map(|batch| Span::from_ms(latency(batch))));
        let profile = profile.expect("every batch takes some time");
        let mut demand = Demand::new(profile, Span::from_ms(slo), rate);
        demand.memory = (memory * 1e6) as u64;
        demands.push(demand);
        let usage = Usage { l2: cell(6), dram: cell(7) };
        traits.push(Traits { usage, measured: Vec::new() });
    }
    let kinds = vec![Kind { memory: 11_000_000_000, price: 1.0, limit: None }];
    let rules = Rules { batch: 32, overhead: 1_230_000_000, ..Rules::default() };
    (Problem { demands, kinds, limit: Some(gpus) }, rules, traits)
}

/// Rates 0, 100 or 200 of the nine models, by the digits of a number, times a factor.
fn scenario(number: usize, factor: f64) -> [f64; 9] {
    let digit = |at: u32| number / 3_usize.pow(at) % 3;
    std::array::from_fn(|at| digit(at as u32) as f64 * 100.0 * factor)
}

/// A board that serves what it can.
type Method = fn(&Scene, usize) -> Board;

#[test]
fn every_board_holds_and_ours_is_there_whenever_another_is() {
    let methods: [(&str, Method); 3] = [
        ("squishy", shares::squishy),
        ("best fit", shares::best_fit),
        ("elastic", shares::elastic_partitioning),
    ];
    let (mut ideals, mut ours, mut all) = (0, 0, 0);
    for number in (1..3_usize.pow(9)).step_by(301) {
        for factor in [1.0, 1.4, 1.8] {
            let (problem, rules, traits) = nine(scenario(number, factor), 4);
            let scene = shares::scene(&problem, &rules, &traits);
            let holds = |board: &Board, whole: bool| {
                let plan = shares::plan_of(&scene, board);
                assert_eq!(shares::check(&problem, &rules, &traits, &plan), None, "{plan:#?}");
                assert!(!whole || plan.infeasible.is_empty());
                plan.infeasible.is_empty()
            };
            let found = shares::schedule(&scene, 4);
            let scheduled = found.is_some_and(|board| holds(&board, true));
            for (name, method) in methods {
                let other = holds(&method(&scene, 4), false);
                assert!(scheduled || !other, "{name} schedules {number} x {factor}");
            }
            let ideal = shares::ideal(&scene, 4).is_some_and(|board| holds(&board, true));
            assert!(scheduled || !ideal, "ideal schedules {number} x {factor}");
            (ideals, ours, all) =
                (ideals + usize::from(ideal), ours + usize::from(scheduled), all + 1);
        }
    }
    println!("{all} scenarios: ideal {ideals}, ours {ours}");
    assert!(ideals < ours && ours < all, "{all} scenarios: ideal {ideals}, ours {ours}");
}

#[test]
fn plans_are_checked_have_a_bound_and_need_no_more_gpus_than_elastic_ones() {
    for number in [17_usize, 4_000, 9_841, 12_345, 19_682] {
        let (mut problem, rules, traits) = nine(scenario(number, 2.0), 4);
        problem.limit = None;
        let elastic = shares::elastic(&problem, &rules, &traits);
        let best = shares::best(&problem, &rules, &traits);
        for plan in [&elastic, &best] {
            assert_eq!(shares::check(&problem, &rules, &traits, plan), None);
            assert!(plan.infeasible.is_empty() && plan.lower_bound <= plan.gpus());
        }
        assert!(best.gpus() <= elastic.gpus(), "{} and {}", best.gpus(), elastic.gpus());
        assert_eq!(best, shares::best(&problem, &rules, &traits), "the same problem, another plan");
    }
}

#[test]
fn what_cannot_be_had_is_named() {
    let (mut problem, rules, traits) = nine([200.0; 9], 2);
    problem.demands[0].slo = Span::from_ms(20.0);
    problem.demands[1].memory = 12_000_000_000;
    problem.demands[2].profiles[0] = None;
    for plan in
        [shares::elastic(&problem, &rules, &traits), shares::best(&problem, &rules, &traits)]
    {
        assert_eq!(shares::check(&problem, &rules, &traits, &plan), None);
        let reason = |demand: usize| {
            plan.infeasible.iter().find(|each| each.demand == demand).map(|each| &each.reason)
        };
        // Alone on a GPU it takes 15.84 + 0.53625 ms, and may wait as long.
        let slo_min = Span::from_ms(2.0 * (0.48 * 33.0 + 0.52 * 33.0 / 32.0));
        assert_eq!(reason(0), Some(&Reason::TooTight { slo_min }));
        let (memory, most) = (13_230_000_000, 11_000_000_000);
        assert_eq!(reason(1), Some(&Reason::TooLarge { memory, most }));
        assert_eq!(reason(2), Some(&Reason::NoProfile));
        let short: Vec<f64> = (3..9)
            .filter_map(|demand| match reason(demand) {
                Some(&Reason::NoGpu { served, gpus }) => {
                    assert!(gpus > 2 && (served - plan.served(demand)).abs() < 1e-9);
                    Some(served)
                }
                _ => None,
            })
            .collect();
        assert!(!short.is_empty() && short.iter().all(|&served| served < 200.0));
    }
}

#[test]
fn many_demands_are_planned_too() {
    let (one, rules, traits) = nine([40.0; 9], 4);
    let many = |count: usize| one.demands.iter().cycle().take(count).cloned().collect();
    for count in [10, 11, 14, 40] {
        let problem = Problem { demands: many(count), limit: None, ..one.clone() };
        let traits: Vec<Traits> = traits.iter().cycle().take(count).cloned().collect();
        let plan = shares::best(&problem, &rules, &traits);
        assert_eq!(shares::check(&problem, &rules, &traits, &plan), None);
        assert!(plan.infeasible.is_empty());
        assert!(plan.gpus() <= shares::elastic(&problem, &rules, &traits).gpus());
        let scene = shares::scene(&problem, &rules, &traits);
        let whole = shares::plan_of(&scene, &shares::squishy(&scene, count));
        assert!(whole.infeasible.is_empty() && plan.gpus() <= whole.gpus());
    }
}

#[test]
fn high_rates_fill_whole_gpus_first() {
    let (mut problem, rules, traits) = nine([3_000.0; 9], 4);
    problem.limit = None;
    let plan = shares::best(&problem, &rules, &traits);
    assert_eq!(shares::check(&problem, &rules, &traits, &plan), None);
    assert!(plan.infeasible.is_empty());
    // If GPUs were a fluid, they would be 41.
    assert!(plan.lower_bound >= 40 && plan.gpus() <= plan.lower_bound + 2, "{}", plan.gpus());
}

#[test]
fn thousands_of_gpus_are_planned_too_and_a_limit_holds() {
    let (mut problem, rules, traits) = nine([100_000.0; 9], 4);
    for limit in [None, Some(50)] {
        problem.limit = limit;
        for plan in
            [shares::elastic(&problem, &rules, &traits), shares::best(&problem, &rules, &traits)]
        {
            assert_eq!(shares::check(&problem, &rules, &traits, &plan), None);
            assert!(plan.lower_bound > 1_000 && plan.infeasible.is_empty() == limit.is_none());
            for infeasible in &plan.infeasible {
                let Reason::NoGpu { gpus, .. } = infeasible.reason else {
                    panic!("{infeasible:?}")
                };
                assert!(gpus >= plan.lower_bound && gpus <= plan.lower_bound + 5);
            }
        }
    }
}

#[test]
fn measured_shares_are_believed() {
    let (problem, rules, mut traits) = nine([0.0, 0.0, 250.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 4);
    let share = |traits: &[Traits]| shares::best(&problem, &rules, traits).pools[0].share;
    assert_eq!(share(&traits), 60);
    // On two fifths it is said to be as fast as on a whole GPU.
    let whole = problem.demands[2].profiles[0].clone().unwrap();
    traits[2].measured.push(Measured { kind: 0, percent: 40, profile: whole });
    assert_eq!(share(&traits), 40);
}

#[test]
fn the_checker_finds_every_fault() {
    let (problem, rules, traits) = nine(scenario(12_345, 1.0), 4);
    let good = shares::best(&problem, &rules, &traits);
    assert_eq!(shares::check(&problem, &rules, &traits, &good), None);
    let split = good.pools.iter().position(|pool| pool.share < 100).unwrap();
    let gpu = good.pools[split].gpus[0];
    let demand = good.pools[split].members[0].demand;
    let fault = |change: &dyn Fn(&mut Problem, &mut Plan)| {
        let (mut problem, mut plan) = (problem.clone(), good.clone());
        change(&mut problem, &mut plan);
        shares::check(&problem, &rules, &traits, &plan)
    };
    let behind = Some(Fault::Behind { pool: split });
    let late = Some(Fault::Late { pool: split, demand });
    assert_eq!(fault(&|_, plan| plan.pools[split].share = 100), Some(Fault::Crowded { gpu }));
    assert_eq!(fault(&|_, plan| plan.pools[split].members[0].rate *= 40.0), behind);
    assert_eq!(fault(&|_, plan| plan.pools[split].round = None), behind);
    assert_eq!(fault(&|_, plan| plan.pools[split].round = Some(Span(1))), behind);
    assert_eq!(fault(&|problem, _| problem.demands[demand].slo = Span::from_ms(1.0)), late);
    let too_large = fault(&|problem, _| problem.demands[demand].memory = 12_000_000_000);
    assert!(matches!(too_large, Some(Fault::Memory { .. })), "{too_large:?}");
    assert_eq!(
        fault(&|problem, _| problem.demands[demand].rate *= 2.0),
        Some(Fault::Unserved { demand })
    );
    assert_eq!(
        fault(&|problem, _| problem.limit = Some(1)),
        Some(Fault::TooMany { gpus: good.gpus() })
    );
    // Somebody who is louder than was reckoned with.
    let mut loud = traits.clone();
    loud.iter_mut().for_each(|traits| traits.usage = Usage { l2: 5.0, dram: 5.0 });
    assert!(shares::check(&problem, &rules, &loud, &good).is_some());
}

proptest! {
    /// Whatever way to split two GPUs and to spread whole demands over their shares works, the
    /// program finds one.
    #[test]
    fn no_plan_without_split_rates_is_missed(
        models in prop::collection::vec(0_usize..9, 1..5),
        loads in prop::collection::vec(0.1_f64..1.0, 5),
    ) {
        let (one, rules, nine_traits) = nine([1.0; 9], 2);
        let mut problem = Problem { demands: Vec::new(), ..one.clone() };
        let mut traits = Vec::new();
        for (&model, load) in models.iter().zip(loads) {
            let mut demand = one.demands[model].clone();
            demand.rate = load * 64.0 / demand.slo.as_secs();
            problem.demands.push(demand);
            traits.push(nine_traits[model].clone());
        }
        let scene = shares::scene(&problem, &rules, &traits);
        let found = shares::search(&scene, 2);
        if let Some(board) = &found {
            let plan = shares::plan_of(&scene, board);
            prop_assert_eq!(shares::check(&problem, &rules, &traits, &plan), None);
        }
        prop_assert!(found.is_some() || !by_trying_all(&problem, &rules, &traits));
    }
}

/// Whether whole demands can be spread over the shares of two GPUs.
fn by_trying_all(problem: &Problem, rules: &Rules, traits: &[Traits]) -> bool {
    let ways = [[100, 0], [50, 50], [40, 60], [20, 80]];
    let count = problem.demands.len();
    let gpu_works = |way: [u32; 2], on: [&Vec<usize>; 2]| {
        let bytes = |on: &Vec<usize>| {
            let weights: u64 = on.iter().map(|&demand| problem.demands[demand].memory).sum();
            if on.is_empty() { 0 } else { weights + rules.overhead }
        };
        bytes(on[0]) + bytes(on[1]) <= problem.kinds[0].memory
            && (0..2).all(|at| {
                share_works(problem, rules, traits, (way[at], on[at]), (way[1 - at], on[1 - at]))
            })
    };
    (0..16).any(|split: usize| {
        (0..4_usize.pow(count as u32)).any(|places| {
            let mut on: [Vec<usize>; 4] = Default::default();
            (0..count).for_each(|demand| on[places >> (2 * demand) & 3].push(demand));
            gpu_works(ways[split / 4], [&on[0], &on[1]])
                && gpu_works(ways[split % 4], [&on[2], &on[3]])
        })
    })
}

fn share_works(
    problem: &Problem,
    rules: &Rules,
    traits: &[Traits],
    (share, on): (u32, &Vec<usize>),
    (other_share, neighbours): (u32, &Vec<usize>),
) -> bool {
    if on.is_empty() || share == 0 || on.len() > rules.models {
        return on.is_empty();
    }
    let profile = |&demand: &usize| {
        let own = traits[demand].usage.on_share(share);
        let factors = neighbours.iter().map(|&other| {
            rules.coefficients.factor(own, traits[other].usage.on_share(other_share))
        });
        let whole = problem.demands[demand].profiles[0].as_ref().expect("every demand runs");
        // A little more than it is, so that rounding never makes this the more generous one.
        let factor = factors.fold(1.0, f64::max) * (1.0 + 1e-9);
        shares::stretched(&shares::on_share(whole, share, rules.batch), factor, rules.batch)
    };
    let profiles: Vec<Profile> = on.iter().map(profile).collect();
    let turns: Vec<Turn<'_>> = profiles
        .iter()
        .zip(on)
        .map(|(profile, &demand)| {
            let Demand { slo, rate, .. } = problem.demands[demand];
            Turn { profile, slo, rate }
        })
        .collect();
    shortest_round(turns.iter()).is_some()
}
