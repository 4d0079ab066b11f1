use fermata_core::Profile;

use super::*;
use crate::problem::{Demand, Kind};

fn demand(at: usize, share: f64) -> Demand {
    let (profile, slo) = crate::packing::tests::model(at);
    let rate = crate::packing::tests::turn_of(&profile, slo, share).rate;
    Demand::new(profile, slo, rate)
}

fn demands(count: usize) -> Vec<Demand> {
    (0..count).map(|at| demand(at, 0.05 + 0.037 * (at % 15) as f64)).collect()
}

const METHODS: [Method; 3] = [Method::Pools, Method::Squishy, Method::Exact];
const ALL: [Method; 5] =
    [Method::Pools, Method::Squishy, Method::Exact, Method::Elastic, Method::Shares];

/// Every demand is served wholly or named, and no more GPUs are used than there may be.
fn check(problem: &Problem, plan: &Plan) {
    for (at, asked) in problem.demands.iter().enumerate() {
        let named = plan.infeasible.iter().filter(|each| each.demand == at).count();
        let served = plan.served(at);
        assert!(named <= 1);
        if named == 0 {
            assert!((served / asked.rate - 1.0).abs() < 1e-6, "demand {at}: {served}");
            assert!(plan.pools.iter().any(|pool| pool.members.iter().any(|m| m.demand == at)));
        } else {
            assert_eq!(served, 0.0);
        }
    }
    assert!(problem.limit.is_none_or(|limit| plan.gpus() <= limit));
    if plan.infeasible.is_empty() {
        assert!(plan.lower_bound <= plan.gpus());
    }
}

#[test]
fn every_method_serves_what_can_be_served() {
    for method in ALL {
        let problem = Problem::new(demands(30));
        let plan = solve(&problem, method, None);
        check(&problem, &plan);
        assert!(plan.infeasible.is_empty(), "{method:?}");
    }
}

#[test]
fn what_cannot_be_served_is_named_with_what_would_help() {
    let mut problem = Problem::new(demands(4));
    problem.kinds = vec![Kind { memory: 100, ..Kind::UNLIMITED }];
    problem.demands[0].slo = Span::from_ms(1.0);
    problem.demands[1].memory = 101;
    problem.demands[2].profiles = vec![None];
    for method in ALL {
        let plan = solve(&problem, method, None);
        check(&problem, &plan);
        let reasons: Vec<&Reason> = plan.infeasible.iter().map(|each| &each.reason).collect();
        assert!(
            matches!(reasons[0], Reason::TooTight { slo_min } if *slo_min > Span::from_ms(14.0))
        );
        assert_eq!(*reasons[1], Reason::TooLarge { memory: 101, most: 100 });
        assert_eq!(*reasons[2], Reason::NoProfile);
        assert_eq!(reasons.len(), 3);
    }
}

#[test]
fn methods_with_shares_serve_all_as_well() {
    for method in [Method::Elastic, Method::Shares] {
        let problem = Problem::new(demands(12));
        let plan = solve(&problem, method, None);
        check(&problem, &plan);
        assert!(plan.infeasible.is_empty());
    }
}

#[test]
fn with_too_few_gpus_the_first_demands_are_served() {
    for method in METHODS {
        let mut problem = Problem::new(demands(30));
        let needed = solve(&problem, method, None).gpus();
        problem.limit = Some(needed / 2);
        let plan = solve(&problem, method, None);
        check(&problem, &plan);
        let first = plan.infeasible[0].demand;
        assert_eq!(plan.infeasible.len(), 30 - first, "{method:?}");
        let reason = &plan.infeasible[0].reason;
        assert_eq!(*reason, Reason::NoGpu { served: 0.0, gpus: needed });
    }
}

#[test]
fn each_demand_goes_to_the_kind_that_is_cheaper_for_it() {
    let (fast, slo) = crate::packing::tests::model(2);
    let slow = Profile::from_table((1..=18).map(|b| fast.latency(b) * 2)).unwrap();
    let both = |slow_price| Problem {
        demands: vec![Demand {
            profiles: vec![Some(fast.clone()), Some(slow.clone())],
            ..Demand::new(fast.clone(), slo * 3, 100.0)
        }],
        kinds: vec![Kind::UNLIMITED, Kind { price: slow_price, ..Kind::UNLIMITED }],
        limit: None,
    };
    let kind = |problem: &Problem| solve(problem, Method::Exact, None).pools[0].kind;
    assert_eq!((kind(&both(0.2)), kind(&both(0.9))), (1, 0));
}

#[test]
fn who_finds_no_gpu_of_the_cheapest_kind_goes_to_another() {
    for method in METHODS {
        let both = |demand: Demand| {
            let profile = demand.profiles[0].clone();
            Demand { profiles: vec![profile.clone(), profile], ..demand }
        };
        let mut problem = Problem::new(demands(30).into_iter().map(both).collect());
        problem.kinds = vec![Kind { price: 0.5, ..Kind::UNLIMITED }, Kind::UNLIMITED];
        let whole = solve(&problem, method, None);
        assert!(whole.pools.iter().all(|pool| pool.kind == 0));
        let limit = whole.gpus() / 2;
        problem.kinds[0].limit = Some(limit);
        let plan = solve(&problem, method, None);
        check(&problem, &plan);
        assert!(plan.infeasible.is_empty());
        let cheap: usize =
            plan.pools.iter().filter(|pool| pool.kind == 0).map(|pool| pool.gpus.len()).sum();
        assert!(cheap <= limit && cheap + 2 >= limit, "{method:?}: {cheap} of {limit}");
        assert!(plan.gpus() <= whole.gpus() + 2, "{method:?}");
    }
}

#[test]
fn a_plan_that_follows_itself_is_the_same() {
    for method in METHODS {
        let problem = Problem::new(demands(30));
        let plan = solve(&problem, method, None);
        let next = solve(&problem, method, Some(&plan));
        let last = solve(&problem, method, Some(&next));
        assert!(next.gpus() <= plan.gpus());
        assert_eq!(next.pools, last.pools, "{method:?}");
    }
}

#[test]
fn a_plan_that_follows_moves_little() {
    let mut problem = Problem::new(demands(60));
    let plan = solve(&problem, Method::Exact, None);
    for demand in problem.demands.iter_mut().step_by(7) {
        demand.rate *= 1.3;
    }
    let next = solve(&problem, Method::Exact, Some(&plan));
    check(&problem, &next);
    let companions = |plan: &Plan, at: usize| -> Vec<usize> {
        let pool = plan.pools.iter().rev().find(|p| p.members.iter().any(|m| m.demand == at));
        pool.unwrap().members.iter().map(|member| member.demand).collect()
    };
    let same = (0..60).filter(|&at| companions(&plan, at) == companions(&next, at)).count();
    assert!(same >= 30, "{same} of 60 have the same companions");
}

#[test]
fn pools_are_as_few_as_memory_allows_and_change_little() {
    let mut problem = Problem::new(demands(40));
    problem.kinds = vec![Kind { memory: 100, ..Kind::UNLIMITED }];
    problem.demands.iter_mut().for_each(|demand| (demand.memory, demand.workspace) = (9, 10));
    let plan = solve(&problem, Method::Pools, None);
    check(&problem, &plan);
    assert_eq!(plan.pools.len(), 4);
    problem.demands.iter_mut().step_by(3).for_each(|demand| demand.rate *= 1.5);
    let next = solve(&problem, Method::Pools, Some(&plan));
    let pool = |plan: &Plan, at: usize| {
        plan.pools.iter().position(|pool| pool.members.iter().any(|member| member.demand == at))
    };
    let moved = (0..40).filter(|&at| pool(&plan, at) != pool(&next, at)).count();
    assert!(moved <= 2, "{moved} of 40 moved");
}
