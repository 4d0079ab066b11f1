//! Splits are compared with all others that there are.

use proptest::prelude::*;

use super::*;

fn linear(alpha_ms: f64, beta_ms: f64, sizes: u64) -> Profile {
    let (alpha, beta) = (Span::from_ms(alpha_ms), Span::from_ms(beta_ms));
    Profile::from_table((1..=sizes).map(|size| alpha * size + beta)).unwrap()
}

fn stage(profile: Profile, fan_out: f64, after: &[usize]) -> Stage {
    Stage { profile, fan_out, after: after.to_vec() }
}

fn query(rate: f64, slo_ms: f64, stages: Vec<Stage>) -> Query {
    Query { rate, slo: Span::from_ms(slo_ms), stages }
}

/// The fewest GPUs of all combinations of batches: every one is tried.
fn brute_force(query: &Query, budget: Budget) -> Option<f64> {
    let mut batches = vec![1; query.stages.len()];
    let mut least: Option<f64> = None;
    loop {
        if let Some(split) = query.with_batches(budget, &batches) {
            least = Some(least.map_or(split.gpus(), |least| least.min(split.gpus())));
        }
        let Some(at) =
            (0..batches.len()).find(|&at| batches[at] < query.stages[at].profile.max_batch())
        else {
            return least;
        };
        batches[..at].fill(1);
        batches[at] += 1;
    }
}

/// A model of Nexus' figure 3 by its requests a second at three latencies. All times are doubled,
/// since 250 requests a second in batches of 50 ms would be twelve and a half a batch.
fn figure_3(throughputs: [f64; 3]) -> Profile {
    let mut table = Vec::new();
    for (ms, throughput) in [80.0, 100.0, 120.0].into_iter().zip(throughputs) {
        table.resize((ms * throughput / 1e3).round() as usize, Span::from_ms(ms));
    }
    Profile::from_table(table).unwrap()
}

#[test]
fn the_example_of_nexus_has_another_best_split_for_every_fan_out() {
    let (x, y) = (figure_3([200.0, 250.0, 300.0]), figure_3([300.0, 400.0, 500.0]));
    // Figure 4: requests a second of a GPU, by split, and which one is best.
    let splits = [[16, 60], [25, 40], [36, 24]];
    for (fan_out, printed, best) in [
        (0.1, [192.3, 235.3, 272.7], 2),
        (1.0, [142.9, 153.8, 150.0], 1),
        (10.0, [40.0, 34.5, 27.3], 0),
    ] {
        let stages = vec![stage(x.clone(), 1.0, &[]), stage(y.clone(), fan_out, &[0])];
        let query = query(1000.0, 200.0, stages);
        for (batches, printed) in splits.iter().zip(printed) {
            let split = query.with_batches(Budget::Run, batches).unwrap();
            assert!((1000.0 / split.gpus() - printed).abs() < 0.05, "{split:?}");
        }
        assert_eq!(split(&query, Budget::Run).unwrap().batches(), splits[best]);
    }
}

#[test]
fn a_join_makes_no_calls_and_waits_for_the_slower_way() {
    let model = linear(1.0, 5.0, 16);
    let stages = vec![
        stage(model.clone(), 1.0, &[]),
        stage(model.clone(), 3.0, &[0]),
        stage(model.clone(), 0.5, &[0]),
        stage(model.clone(), 2.0, &[1, 2]),
        stage(model, 0.1, &[3]),
    ];
    let query = query(100.0, 120.0, stages);
    assert_eq!(query.rates(), [100.0, 300.0, 50.0, 200.0, 20.0]);
    let split = split(&query, Budget::Wait).unwrap();
    for way in [[0, 1, 3, 4], [0, 2, 3, 4]] {
        let sum = way.iter().fold(Span::ZERO, |sum, &at| sum + split.stages[at].slo);
        assert!(sum <= query.slo, "{split:?}");
    }
    assert!((split.gpus() - brute_force(&query, Budget::Wait).unwrap()).abs() < 1e-9);
}

#[test]
fn an_objective_that_is_too_short_is_told_what_would_do() {
    let model = linear(1.0, 9.0, 8);
    let stages = vec![stage(model.clone(), 1.0, &[]), stage(model, 1.0, &[0])];
    let mut query = query(10.0, 39.0, stages);
    assert_eq!(
        split(&query, Budget::Wait),
        Err(NoSplit::TooTight { slo_min: Span::from_ms(40.0) })
    );
    query.slo = Span::from_ms(40.0);
    assert_eq!(split(&query, Budget::Wait).unwrap().batches(), [1, 1]);
    assert_eq!(even_split(&query, Budget::Wait).unwrap().batches(), [1, 1]);
    assert!(split(&query, Budget::Run).unwrap().gpus() < 0.2);
}

#[test]
fn stages_that_wait_for_a_part_of_what_others_wait_for_are_refused() {
    let model = linear(1.0, 1.0, 4);
    let after: [&[usize]; 4] = [&[], &[], &[0], &[0, 1]];
    let stages = after.iter().map(|after| stage(model.clone(), 1.0, after)).collect();
    assert_eq!(split(&query(1.0, 100.0, stages), Budget::Wait), Err(NoSplit::Tangled));
    // All for all is a meeting, and two roots are two ways.
    let after: [&[usize]; 4] = [&[], &[], &[0, 1], &[0, 1]];
    let stages = after.iter().map(|after| stage(model.clone(), 1.0, after)).collect();
    assert_eq!(split(&query(1.0, 100.0, stages), Budget::Wait).unwrap().batches(), [4; 4]);
}

#[test]
fn a_split_stays_until_another_is_worth_it() {
    let model = linear(1.0, 10.0, 64);
    let of = |rate: f64, fan_out: f64| {
        let stages = vec![stage(model.clone(), 1.0, &[]), stage(model.clone(), fan_out, &[0])];
        query(rate, 200.0, stages)
    };
    let first = split(&of(100.0, 1.0), Budget::Wait).unwrap();
    let second = resplit(&of(300.0, 1.05), Budget::Wait, &first).unwrap();
    assert_eq!(second.batches(), first.batches());
    assert!(second.gpus() > 2.9 * first.gpus());
    let third = resplit(&of(100.0, 20.0), Budget::Wait, &second).unwrap();
    assert_eq!(third, split(&of(100.0, 20.0), Budget::Wait).unwrap());
    assert_ne!(third.batches(), first.batches());
    // Asked again, nothing changes.
    assert_eq!(resplit(&of(100.0, 20.0), Budget::Wait, &third).unwrap(), third);
}

/// Latencies with steps and plateaus, as devices have them.
fn any_profile() -> impl Strategy<Value = Profile> {
    prop::collection::vec(0_u64..6, 1..6).prop_map(|steps| {
        let mut latency = 2;
        Profile::from_table(steps.into_iter().map(|step| {
            latency += step;
            Span(latency * 1_000_000)
        }))
        .unwrap()
    })
}

/// Trees: each stage after one of those before it.
fn any_tree() -> impl Strategy<Value = Query> {
    let stage = (any_profile(), 0.05..20.0, any::<prop::sample::Index>());
    (prop::collection::vec(stage, 1..7), 10_u64..150).prop_map(|(stages, slo)| {
        let stages = stages.into_iter().enumerate().map(|(at, (profile, fan_out, before))| {
            let after = if at == 0 { vec![] } else { vec![before.index(at)] };
            Stage { profile, fan_out, after }
        });
        query(10.0, slo as f64, stages.collect())
    })
}

/// Series and parallels of stages, nested: `ends` are those that the next stage must wait for.
#[derive(Clone, Debug)]
enum Nested {
    Call(Profile, f64),
    Series(Vec<Nested>),
    Parallel(Vec<Nested>),
}

impl Nested {
    fn build(self, after: Vec<usize>, stages: &mut Vec<Stage>) -> Vec<usize> {
        match self {
            Self::Call(profile, fan_out) => {
                stages.push(Stage { profile, fan_out, after });
                vec![stages.len() - 1]
            }
            Self::Series(parts) => {
                parts.into_iter().fold(after, |after, part| part.build(after, stages))
            }
            Self::Parallel(parts) => {
                let ends = parts.into_iter().flat_map(|part| part.build(after.clone(), stages));
                ends.collect()
            }
        }
    }
}

fn any_nested() -> impl Strategy<Value = Query> {
    let call = (any_profile(), 0.05..20.0).prop_map(|(profile, out)| Nested::Call(profile, out));
    let nested = call.prop_recursive(3, 6, 3, |part| {
        let parts = prop::collection::vec(part, 1..4);
        prop_oneof![parts.clone().prop_map(Nested::Series), parts.prop_map(Nested::Parallel)]
    });
    (nested, 10_u64..150).prop_filter_map("six stages at most", |(nested, slo)| {
        let mut stages = Vec::new();
        nested.build(Vec::new(), &mut stages);
        (stages.len() <= 6).then(|| query(10.0, slo as f64, stages))
    })
}

fn is_best(query: &Query, budget: Budget) {
    match (split(query, budget), brute_force(query, budget)) {
        (Ok(split), Some(least)) => {
            assert!((split.gpus() - least).abs() <= 1e-9 * least, "{} {least}", split.gpus());
            let times: Vec<Span> = split.stages.iter().map(|stage| stage.slo).collect();
            assert!(query.ways(&times).iter().all(|&way| way <= query.slo));
            for (stage, got) in query.stages.iter().zip(&split.stages) {
                assert!(budget.time(stage.profile.latency(got.batch)) <= got.slo);
            }
            if let Ok(even) = even_split(query, budget) {
                assert!(even.gpus() >= least * (1.0 - 1e-9));
            }
            assert_eq!(resplit(query, budget, &split), Ok(split));
        }
        (Err(NoSplit::TooTight { slo_min }), None) => {
            let relaxed = Query { slo: slo_min, ..query.clone() };
            assert!(split(&relaxed, budget).is_ok());
            let tighter = Query { slo: slo_min - Span(1), ..query.clone() };
            assert!(split(&tighter, budget).is_err());
        }
        (split, least) => panic!("{split:?}, {least:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn trees_are_split_as_by_brute_force(query in any_tree(), wait in any::<bool>()) {
        is_best(&query, if wait { Budget::Wait } else { Budget::Run });
    }

    #[test]
    fn series_and_parallels_are_split_as_by_brute_force(query in any_nested()) {
        is_best(&query, Budget::Wait);
    }
}
