//! What a recording may say, and that nothing it says brings a dispatcher down.

use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Profile, RequestId, Span, Time};
use fermata_dispatch::{Actions, Dispatch, Event, ModelSpec, Network, Policy};
use proptest::prelude::*;

use super::check::Check;
use super::{Entry, Reader, Replay, replay, spread, text};

const GOOD: &str = "\
fermata recording 1
pool 0 cpu eager
0 10 join x0 c0
0 20 add m0 25000000 6000000,7000000 net
0 30 arrive m0 r0 25000030
> run x0 m0 30 6000000 r0
0 40 arrive m0 r1 25000040
0 6000030 done x0
> run x0 m0 6000030 6000000 r1
";

#[test]
fn a_good_recording_replays_to_the_same() {
    let Replay { pools, events, actions, end, difference } = replay(GOOD.as_bytes()).unwrap();
    assert_eq!((pools, events, actions, end, difference), (1, 5, 2, Time(6_000_030), None));
}

#[test]
fn what_differs_is_shown() {
    let late = GOOD.replace("> run x0 m0 30 6000000", "> run x0 m0 31 6000000");
    let difference = replay(late.as_bytes()).unwrap().difference.unwrap();
    assert_eq!(difference.line, 6);
    assert_eq!(difference.recorded.as_deref(), Some("run x0 m0 31 6000000 r0"));
    assert_eq!(difference.replayed.as_deref(), Some("run x0 m0 30 6000000 r0"));
    let idle = GOOD.replace("> run x0 m0 30 6000000 r0\n", "");
    let difference = replay(idle.as_bytes()).unwrap().difference.unwrap();
    assert_eq!((difference.line, difference.recorded), (6, None));
}

/// What cannot have happened after the good recording, and what is said of it.
const NONSENSE: &[(&str, &str)] = &[
    ("0 7000000 done x1", "there is no executor x1"),
    ("0 7000000 done x0\n0 7000000 done x0", "executor x0 runs nothing"),
    ("0 7000000 fail x0\n0 7000000 done x0", "there is no executor x0"),
    ("0 7000000 fail x7", "there is no executor x7"),
    ("0 7000000 leave x1", "there is no executor x1"),
    ("0 7000000 leave x0\n0 7000000 leave x0", "executor x0 has left"),
    ("0 7000000 leave x0\n0 7000000 done x0\n0 7000000 done x0", "there is no executor x0"),
    ("0 7000000 join x0 c0", "executor x0 is there already"),
    ("0 7000000 join x2 c0", "executor x2 joins out of order"),
    ("0 7000000 join x4000000000 c0", "executor x4000000000 joins out of order"),
    ("0 7000000 join x1 c1024", "there is no class c1024: the last is c1023"),
    ("0 7000000 join x4294967296 c0", "expected x and a number, found 'x4294967296'"),
    ("0 7000000 add m0 25000000 6000000 net", "model m0 is there already"),
    ("0 7000000 add m4000000000 25000000 6000000 net", "model m4000000000 is added out of order"),
    ("0 7000000 arrive m1 r2 9000000", "there is no model m1"),
    ("0 7000000 remove m0\n0 7000000 arrive m0 r2 9000000", "there is no model m0"),
    ("0 7000000 arrive m0 r1 9000000", "request r1 is there already"),
    ("0 7000000 cancel m1 r1 9000000", "there is no model m1"),
    ("0 7000000 profile m1 25000000 6000000", "there is no model m1"),
    ("0 7000000 remove m1", "there is no model m1"),
    ("0 6000029 wake", "the time goes back, from 6000030 to 6000029"),
    ("0 18446744073709551615 wake", "18446744073709551615 is too late for a time"),
    ("1 7000000 wake", "there is no pool 1"),
    ("> sing x0", "unknown action 'sing'"),
    ("> preempt x1", "there is no executor x1"),
    ("> drop m0 r0 late", "request r0 does not wait for model m0"),
    ("> run x0 m0 1 1 r1", "request r1 does not wait for model m0"),
    ("> run x0 m0 1 1", "expected r and a number, found ''"),
    ("0 7000000 leave x0\n> run x0 m0 1 1 r1", "executor x0 has left"),
];

#[test]
fn what_cannot_have_happened_is_named_with_its_line() {
    for (lines, words) in NONSENSE {
        let text = format!("{GOOD}{lines}\n");
        let said = super::Reader::new(text.as_bytes()).unwrap().find_map(Result::err);
        let said = said.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(said, format!("line {}: {words}", text.lines().count()), "{lines}");
        // The dispatcher may have decided something else before that.
        assert!(
            replay(text.as_bytes()).map_or_else(
                |error| error.to_string() == said,
                |replay| replay.difference.is_some()
            ),
            "{lines}"
        );
    }
    let early = "fermata recording 1\npool 0 cpu eager\n> preempt x0\n";
    let said = replay(early.as_bytes()).unwrap_err().to_string();
    assert_eq!(said, "line 3: an action without an event before it");
}

#[test]
fn a_line_that_was_cut_off_is_none() {
    let cut = GOOD.trim_end().trim_end_matches(" r1");
    assert_eq!(replay(cut.as_bytes()).unwrap().actions, 1);
}

const POLICIES: [&str; 10] = [
    "clipper",
    "clockwork",
    "deferred",
    "eager",
    "fermata",
    "fermata:release",
    "nexus",
    "shepherd",
    "tfserving:3ms,4",
    "timeout:5ms",
];

#[test]
fn headers_have_the_use_of_spare_executors_and_old_ones_mean_latency() {
    let policy = |name: &str| {
        let text = format!("fermata recording 1\npool 0 cpu {name}\n");
        match Reader::new(text.as_bytes()).unwrap().next().unwrap().unwrap() {
            Entry::Pool(header) => header.policy,
            other => panic!("{other:?}"),
        }
    };
    for written in [Policy::FERMATA, Policy::RELEASE] {
        assert_eq!(policy(&written.to_string()), written);
    }
    assert_eq!(policy("fermata"), Policy::FERMATA);
}

/// Something that may happen, if the check has nothing against it.
fn event() -> impl Strategy<Value = (u64, Event)> {
    let model = || (0u32..4).prop_map(ModelId);
    let executor = || (0u32..4).prop_map(ExecutorId);
    let request = || (0u64..40).prop_map(RequestId);
    let deadline = || prop_oneof![9 => 0u64..300_000_000, 1 => any::<u64>()].prop_map(Time);
    let span = || prop_oneof![9 => 1u64..9_000_000, 1 => 1..=u64::MAX].prop_map(Span);
    let profile = || {
        prop_oneof![
            3 => prop::collection::vec(span(), 1..6)
                .prop_map(|table| Profile::from_table(table).unwrap()),
            1 => Just(spread::sample()),
        ]
    };
    let profiles = prop_oneof![
        3 => profile().prop_map(|profile| vec![Some(Arc::new(profile))]),
        1 => prop::collection::vec(prop::option::of(profile().prop_map(Arc::new)), 1..4),
    ];
    let data = prop_oneof![9 => 0u64..100_000, 1 => any::<u64>()].prop_map(Span);
    let spec = (profiles, span(), data)
        .prop_map(|(profiles, slo, data)| Arc::new(ModelSpec { slo: slo * 4, profiles, data }));
    let spec = || spec.clone();
    let what = prop_oneof![
        3 => (model(), spec()).prop_map(|(model, spec)| Event::AddModel { model, spec, gap: None }),
        20 => (model(), request(), deadline(), 0u16..3).prop_map(|each| {
            let (model, request, deadline, kind) = each;
            Event::Arrive { model, request, deadline, kind: KindId(kind) }
        }),
        1 => (model(), request(), deadline())
            .prop_map(|(model, request, deadline)| Event::Cancel { model, request, deadline }),
        10 => executor().prop_map(|executor| Event::Done { executor }),
        1 => executor().prop_map(|executor| Event::Fail { executor }),
        5 => (executor(), prop_oneof![3 => Just(0u16), 1 => 0u16..4])
            .prop_map(|(executor, class)| Event::Join { executor, class: ClassId(class) }),
        1 => span().prop_map(|by| Event::Late { by }),
        1 => executor().prop_map(|executor| Event::Leave { executor }),
        1 => (model(), spec()).prop_map(|(model, spec)| Event::Profile { model, spec }),
        1 => model().prop_map(|model| Event::RemoveModel { model }),
        5 => Just(Event::Wakeup),
    ];
    (prop_oneof![50 => 0u64..4_000_000, 1 => 0u64..1 << 60], what)
}

/// A recording of those events that can happen, with what the dispatcher makes of them.
fn record(policy: &str, network: Network, events: &[(u64, Event)]) -> String {
    let Network { ctrl, data, resp } = network;
    let delays = format!("{} {} {}", ctrl.0, data.0, resp.0);
    let mut recording = format!("fermata recording 1\npool 0 cpu {policy} {delays}\n");
    let mut dispatcher = policy.parse::<Policy>().unwrap().dispatcher(network);
    let (mut check, mut now, mut actions) = (Check::default(), Time::START, Actions::default());
    for (gap, event) in events {
        let time = now + Span(*gap);
        let mut after = check.clone();
        if after.event(time, event).is_err() {
            continue;
        }
        (check, now) = (after, time);
        recording.push_str(&format!("0 {} ", now.0));
        text::write_event(event, "net", &mut recording);
        recording.push('\n');
        dispatcher.handle(now, event.clone(), &mut actions);
        text::write_actions(&actions, &mut recording);
        for words in text::words(&actions) {
            check.action(&text::read_action(&words).unwrap()).unwrap();
        }
        actions.clear();
    }
    recording
}

/// A slip of whoever edits a recording.
#[derive(Clone, Copy, Debug)]
enum Slip {
    Drop(usize),
    Duplicate(usize),
    Swap(usize, usize),
    /// Puts another number in the place of one in a line.
    Change(usize, usize, u64),
}

fn slip() -> impl Strategy<Value = Slip> {
    let number = prop_oneof![
        0u64..8,
        0u64..300_000_000,
        Just(u64::from(u32::MAX)),
        Just(1 << 62),
        Just(u64::MAX),
        any::<u64>()
    ];
    prop_oneof![
        (0usize..200).prop_map(Slip::Drop),
        (0usize..200).prop_map(Slip::Duplicate),
        (0usize..200, 0usize..200).prop_map(|(one, other)| Slip::Swap(one, other)),
        (0usize..200, 0usize..8, number)
            .prop_map(|(line, place, number)| Slip::Change(line, place, number)),
    ]
}

impl Slip {
    fn make(self, lines: &mut Vec<String>) {
        let count = lines.len();
        match self {
            _ if count == 0 => {}
            Self::Drop(line) => _ = lines.remove(line % count),
            Self::Duplicate(line) => lines.insert(line % count, lines[line % count].clone()),
            Self::Swap(one, other) => lines.swap(one % count, other % count),
            Self::Change(line, place, number) => {
                let line = &mut lines[line % count];
                let is_digit = |letter: char| letter.is_ascii_digit();
                let starts = |&(at, letter): &(usize, char)| {
                    is_digit(letter) && !line[..at].ends_with(is_digit)
                };
                let numbers: Vec<usize> =
                    line.char_indices().filter(starts).map(|(at, _)| at).collect();
                if let Some(&at) = numbers.get(place % numbers.len().max(1)) {
                    let rest = line[at..].trim_start_matches(is_digit).to_owned();
                    *line = format!("{}{number}{rest}", &line[..at]);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn slips_bring_nothing_down(
        policy in prop::sample::select(&POLICIES[..]),
        delays in prop_oneof![Just([0; 3]), [0u64..600_000, 0u64..1000, 0u64..600_000]],
        events in prop::collection::vec(event(), 1..200),
        slips in prop::collection::vec(slip(), 1..4),
    ) {
        let [ctrl, data, resp] = delays.map(Span);
        let good = record(policy, Network { ctrl, data, resp }, &events);
        let replayed = replay(good.as_bytes());
        let is_same = matches!(&replayed, Ok(replay) if replay.difference.is_none());
            prop_assert!(is_same, "{replayed:?}");
        let mut lines: Vec<String> = good.lines().map(str::to_owned).collect();
        slips.into_iter().for_each(|slip| slip.make(&mut lines));
        let _ = replay((lines.join("\n") + "\n").as_bytes());
    }
}
