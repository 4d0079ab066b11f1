//! Shares of GPUs on gpulet's nine models: every plan of every method holds, and none schedules what ours does not.

use fermata_core::{Profile, Span};
use fermata_plan::shares::{self, Board, Rules, Scene, Traits, Usage};
use fermata_plan::{Demand, Kind, Problem};

/// The nine models at the given rates, on GPUs of 11 GB, as gpulet's prototype has them.
fn nine(rates: [f64; 9], gpus: usize) -> (Problem, Rules, Vec<Traits>) {
    let table = include_str!("../../../data/gpulet_models.csv");
    let (mut demands, mut traits) = (Vec::new(), Vec::new());
    for (line, rate) in table.lines().skip(1).zip(rates) {
        let cell = |at: usize| line.split(',').nth(at).unwrap().parse::<f64>().unwrap();
        let (slo, fixed, memory) = (cell(3), cell(4), cell(5));
        let most = slo / 2.0;
        let latency = |batch| fixed * most + (1.0 - fixed) * most * f64::from(batch) / 32.0;
        let profile = Profile::from_table((1..=32).map(|batch| Span::from_ms(latency(batch))));
        let mut demand = Demand::new(profile.unwrap(), Span::from_ms(slo), rate);
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

#[test]
fn every_board_holds_and_ours_is_there_whenever_another_is() {
    let methods: [(&str, fn(&Scene, usize) -> Board); 3] = [
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
