//! Placement, routing and early drop, on pools small enough to follow by hand.

use super::super::script::Script;
use fermata_core::KindId;

use super::*;

fn script() -> Script {
    Script::new(Nexus::new(Network::default()))
}

#[test]
fn requests_are_routed_in_turns_and_stay_where_they_are() {
    let mut script = script();
    script.model_at_rate(0, 1.0, 9.0, 100.0, Some(10.0)).join(0).join(1);
    script.arrive(0.0, 0, 4).until(40.0);
    script.expect(&["0 x0 m0 r0", "0 x1 m0 r1", "10 x0 m0 r2", "10 x1 m0 r3"]);
}

#[test]
fn models_of_one_executor_take_turns() {
    let mut script = script();
    script.model_at_rate(0, 1.0, 5.0, 100.0, Some(50.0));
    script.model_at_rate(1, 1.0, 5.0, 100.0, Some(50.0)).join(0);
    script.arrive(0.0, 0, 3).arrive(1.0, 1, 2).until(40.0);
    script.expect(&["0 x0 m0 r0", "6 x0 m1 r3 r4", "13 x0 m0 r1 r2"]);
}

#[test]
fn heads_without_time_for_the_window_are_dropped() {
    let mut script = script();
    script.model_at_rate(0, 1.0, 5.0, 20.0, Some(2.0)).join(0);
    script.arrive(0.0, 0, 5).arrive(0.5, 0, 4).until(3.0);
    // The expected batch is five: 2 l(5) = 20.
    script.expect(&["0 x0 m0 r0"]);
    script.arrive(3.0, 0, 4).arrive(9.0, 0, 4).until(40.0);
    // At 16 those of 0.5 are gone, and a window of five from those of 3 on would end at 26.
    let drops = ["14.500001 drop r6", "14.500001 drop r7", "14.500001 drop r8"];
    let early = ["16 drop r9", "16 drop r10", "16 drop r11", "16 drop r12"];
    let (first, last) = (["6 x0 m0 r1 r2 r3 r4 r5"], ["16 x0 m0 r13 r14 r15 r16"]);
    script.expect(&[&first[..], &drops, &early, &last].concat());
}

#[test]
fn a_load_that_left_its_band_is_planned_for_after_ten_seconds() {
    let mut nexus = Nexus::new(Network::default());
    let mut actions = Actions::default();
    let slo = Span::from_ms(100.0);
    let profile = Profile::linear(Span::from_ms(1.0), Span::from_ms(9.0), slo).unwrap();
    let (model, spec) = (ModelId(0), Arc::new(ModelSpec::uniform(slo, profile)));
    let gap = Some(Span::from_ms(100.0));
    nexus.handle(Time::START, Event::AddModel { model, spec, gap }, &mut actions);
    // Announced is one in 100 ms; one in 50 ms comes.
    for (id, ms) in (0..).zip((0..11_000).step_by(50)) {
        let now = Time::from_ms(f64::from(ms));
        let request = RequestId(id);
        nexus.handle(
            now,
            Event::Arrive { model, request, deadline: now + slo, kind: KindId(0) },
            &mut actions,
        );
        let gap_ms = 1e-6 / nexus.models[0].as_ref().unwrap().rate;
        let expected = if ms < 10_000 { 100.0 } else { 50.0 };
        assert!((gap_ms - expected).abs() < 0.5, "{gap_ms} at {ms} ms");
    }
}

#[test]
fn what_a_failed_executor_had_goes_to_another() {
    let mut script = script();
    script.model_at_rate(0, 1.0, 9.0, 100.0, Some(10.0)).join(0).join(1);
    script.arrive(0.0, 0, 3).event(Event::Fail { executor: ExecutorId(0) }).until(40.0);
    script.expect(&["0 x0 m0 r0", "0 x1 m0 r1", "10 x1 m0 r0 r2"]);
}

#[test]
fn without_executors_requests_wait_until_they_are_hopeless() {
    let mut script = script();
    script.model_at_rate(0, 1.0, 9.0, 30.0, Some(10.0)).arrive(0.0, 0, 1);
    script.arrive(5.0, 0, 1).until(21.0).join(0).until(40.0);
    script.expect(&["20.000001 drop r0", "21 x0 m0 r1"]);
}
