//! Schedules written by hand: `l(b) = b + 5` unless said otherwise.

use std::sync::Arc;

use fermata_core::{Growth, KindId, Profile, RequestId, Span, Spread};

use super::super::script::Script;
use super::*;

fn script() -> Script {
    Script::new(Orloj::new(DELAY_RATE, Network::default()))
}

#[test]
fn of_equal_deadlines_the_largest_size_goes_that_has_enough() {
    let mut script = script();
    script.model(0, 1.0, 5.0, 40.0).join(0);
    script.arrive(0.0, 0, 1).arrive(1.0, 0, 7).until(60.0);
    // Seven wait at 6: four, then two, then one.
    script.expect(&["0 x0 m0 r0", "6 x0 m0 r1 r2 r3 r4", "15 x0 m0 r5 r6", "22 x0 m0 r7"]);
}

#[test]
fn the_earliest_deadline_chooses_the_size_and_who_is_left_is_dropped_by_a_timer() {
    let mut script = script();
    script.model(0, 1.0, 5.0, 13.0).join(0);
    script.arrive(0.0, 0, 1).arrive(0.5, 0, 1).arrive(5.0, 0, 4).until(30.0);
    // At 6 the second is feasible for two (until 6.5), not for four. The last three have until 12.
    script.expect(&[
        "0 x0 m0 r0",
        "6 x0 m0 r1 r2",
        "12.000001 drop r3",
        "12.000001 drop r4",
        "12.000001 drop r5",
    ]);
}

#[test]
fn who_is_late_already_is_dropped_at_once() {
    let mut script = script();
    script.model(0, 1.0, 5.0, 40.0).join(0);
    let (model, deadline) = (ModelId(0), Time::from_ms(5.9));
    let arrive = |id| Event::Arrive { model, request: RequestId(id), deadline, kind: KindId(0) };
    script.event(arrive(7));
    script.expect(&["0 drop r7"]);
    script.event(Event::Arrive {
        model: ModelId(3),
        request: RequestId(8),
        deadline: Time::NEVER,
        kind: KindId(0),
    });
    script.expect(&["0 drop r8"]);
}

#[test]
fn of_two_models_the_one_with_the_earliest_deadline_goes_first() {
    let mut script = script();
    script.model(0, 1.0, 5.0, 60.0).model(1, 1.0, 5.0, 50.0).join(0);
    script.arrive(0.0, 0, 1).arrive(1.0, 0, 4).arrive(2.0, 1, 1).until(60.0);
    script.expect(&["0 x0 m0 r0", "6 x0 m1 r5", "12 x0 m0 r1 r2 r3 r4"]);
}

/// Two kinds that take 10 and 100 ms, whoever runs beside.
fn two_kinds() -> Spread {
    let runs = |ms: f64| vec![Span::from_ms(ms); 10];
    Spread::new(&vec![(0.5, runs(10.0)), (0.5, runs(100.0))], Growth::FREE, 16).unwrap()
}

#[test]
fn who_takes_less_goes_first() {
    let mut script = script();
    script.spread_model(0, two_kinds(), 500.0).join(0);
    let (short, long) = (KindId(0), KindId(1));
    script.arrive_as(0.0, 0, short);
    script.arrive_as(1.0, 0, long).arrive_as(1.0, 0, short).arrive_as(1.0, 0, short).until(400.0);
    // When they start is a matter of bins: who goes when is not.
    let lines = script.take_log();
    let ids: Vec<&str> = lines.iter().map(|line| line.split_once("m0 ").unwrap().1).collect();
    assert_eq!(ids, ["r0", "r2 r3", "r1"]);
}

#[test]
fn a_request_is_judged_by_its_own_kind() {
    let mut script = script();
    script.spread_model(0, two_kinds(), 120.0).join(0);
    script.arrive_as(0.0, 0, KindId(0));
    script.arrive_as(1.0, 0, KindId(1)).arrive_as(1.0, 0, KindId(0)).until(200.0);
    let lines = script.take_log();
    // The first batch is planned to take 55: too long for the long one, which needs 100 of its 120.
    assert!(lines[1].ends_with("drop r1"), "{lines:?}");
    assert!(lines[2].ends_with("m0 r2"), "{lines:?}");
}

#[test]
fn a_cancelled_request_leaves_all_queues_and_a_failed_batch_comes_back() {
    let mut script = script();
    script.model(0, 1.0, 5.0, 60.0).join(0);
    script.arrive(0.0, 0, 1).arrive(1.0, 0, 3);
    let (model, deadline) = (ModelId(0), Time::from_ms(61.0));
    script.event(Event::Cancel { model, request: RequestId(2), deadline });
    script.until(2.0).event(Event::Fail { executor: ExecutorId(0) });
    script.until(3.0).join(0).until(40.0);
    script.expect(&["0 x0 m0 r0", "1 drop r2", "3 x0 m0 r0 r1", "10 x0 m0 r3"]);
}

#[test]
fn a_slower_profile_drops_who_has_become_hopeless() {
    let mut script = script();
    script.model(0, 1.0, 5.0, 20.0).join(0);
    script.arrive(0.0, 0, 1).arrive(1.0, 0, 2).until(2.0);
    let slow = Profile::from_table([12.0, 25.0].map(Span::from_ms)).unwrap();
    let spec = Arc::new(ModelSpec::uniform(Span::from_ms(20.0), slow));
    script.event(Event::Profile { model: ModelId(0), spec }).until(40.0);
    // At 6 one of the two can go, until 18; the other one cannot.
    script.expect(&["0 x0 m0 r0", "6 x0 m0 r1", "9.000001 drop r2"]);
}
