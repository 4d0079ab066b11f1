//! Which requests go together, on queues small enough to follow by hand.

use std::sync::Arc;

use fermata_core::{ClassId, Growth, KindId, Profile, Spread};
use proptest::prelude::*;

use super::*;

/// Short requests of kind 0 (9 to 11 ms), long ones of kind 1 (90 to 110 ms); batches grow by a
/// tenth for each request.
fn mixed() -> Mixed {
    let runs =
        |mean: f64| (0..50).map(|at| Span::from_ms(mean * (0.9 + 0.004 * f64::from(at)))).collect();
    let growth = Growth { fixed: 0.0, base: 0.9, each: 0.1 };
    let measured = vec![(0.5, runs(10.0)), (0.5, runs(100.0))];
    let spread = Arc::new(Spread::new(&measured, growth, 8).unwrap());
    let spec = ModelSpec::uniform(Span::from_ms(300.0), Profile::spread_out(spread));
    let lane = Lane::new(ClassId(0), spec.profile(ClassId(0)).unwrap(), Network::default());
    *Mixed::new(&spec, &[lane], Network::default()).unwrap()
}

fn request(id: u64, kind: u16, deadline: f64) -> Request {
    let (deadline, arrival) = (Time::from_ms(deadline), Time::START);
    Request { deadline, id: RequestId(id), arrival, kind: KindId(kind) }
}

/// The ids of the batch that would go at the start.
fn chosen(mixed: &mut Mixed) -> Vec<u64> {
    let mut batch = Vec::new();
    mixed.choose(0, Time::START, Time::START, &mut batch);
    batch.iter().map(|request| request.id.0).collect()
}

#[test]
fn classes_that_disagree_about_the_kinds_are_planned_by_their_means() {
    let profile = |kinds: usize| {
        let runs = vec![Span::from_ms(5.0), Span::from_ms(9.0)];
        let spread = Spread::new(&vec![(1.0, runs); kinds], Growth::FREE, 4).unwrap();
        Some(Arc::new(Profile::spread_out(Arc::new(spread))))
    };
    for (other, is_mixed) in [(2, true), (3, false)] {
        let spec = ModelSpec::new(Span::from_ms(50.0), vec![profile(2), profile(other)]);
        let lane = |class: u16| {
            let class = ClassId(class);
            Lane::new(class, spec.profile(class).unwrap(), Network::default())
        };
        let lanes = [lane(0), lane(1)];
        assert_eq!(Mixed::new(&spec, &lanes, Network::default()).is_some(), is_mixed);
    }
}

#[test]
fn a_lone_request_goes_whatever_its_kind() {
    for kind in 0..4 {
        let mut mixed = mixed();
        mixed.push(request(7, kind, 300.0));
        assert_eq!(chosen(&mut mixed), [7], "kind {kind}");
        assert!(mixed.is_empty());
    }
}

#[test]
fn short_ones_are_not_made_late_by_a_long_one() {
    let mut mixed = mixed();
    (0..4).for_each(|id| mixed.push(request(id, 0, 30.0 + id as f64)));
    mixed.push(request(9, 1, 280.0));
    assert_eq!(chosen(&mut mixed), [0, 1, 2, 3]);
    assert_eq!(chosen(&mut mixed), [9]);
}

#[test]
fn who_is_as_good_as_lost_does_not_hold_up_others() {
    let mut mixed = mixed();
    mixed.push(request(1, 1, 91.0)); // In time once in twenty times, alone.
    (2..6).for_each(|id| mixed.push(request(id, 1, 200.0)));
    assert_eq!(chosen(&mut mixed), [2, 3, 4, 5]);
    assert_eq!(chosen(&mut mixed), [1], "nobody else is left");
}

#[test]
fn the_hopeless_are_known_by_their_kind() {
    let mut mixed = mixed();
    mixed.push(request(1, 0, 20.0));
    mixed.push(request(2, 1, 85.0));
    assert_eq!(mixed.pop_hopeless(Time::START).map(|gone| gone.id), Some(RequestId(2)));
    assert_eq!(mixed.pop_hopeless(Time::START), None);
    let until = mixed.hopeful_until();
    assert!((10.5..11.5).contains(&until.as_ms()), "{until}");
}

proptest! {
    /// Whatever waits: somebody goes, no more than fit, all of them waited, and those who stay
    /// still do.
    #[test]
    fn batches_are_made_of_those_who_wait(
        waiting in prop::collection::vec((0u16..4, 0u32..400), 1..120),
    ) {
        let mut mixed = mixed();
        for (id, &(kind, deadline)) in (0..).zip(&waiting) {
            mixed.push(request(id, kind, f64::from(deadline)));
        }
        while mixed.pop_hopeless(Time::START).is_some() {}
        let mut left = mixed.queues.len();
        while left > 0 {
            let mut batch = Vec::new();
            let chosen = mixed.choose(0, Time::START, Time::START, &mut batch);
            let size = chosen.map_or(0, |chosen| chosen.size);
            prop_assert_eq!(size, batch.len());
            prop_assert!((1..=8).contains(&size));
            prop_assert!(batch.is_sorted_by_key(Request::key));
            left -= size;
            prop_assert_eq!(mixed.queues.len(), left);
        }
    }
}
