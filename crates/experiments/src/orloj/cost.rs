//! What a decision costs: the default policy's with many waiting, and the operations of Orloj's
//! queue (figure 10).

use std::sync::Arc;
use std::time::Instant;

use fermata_chart::{Axis, Lines, Panel, Series};
use fermata_core::{ClassId, ExecutorId, KindId, ModelId, RequestId, Span, Time};
use fermata_dispatch::{
    Action, Actions, Dispatch, Dispatcher, Event, HullQueue, ModelSpec, Network, Point, Rules,
};
use fermata_sim::Alone;

use super::Bench;
use crate::document::{Section, Table, figure};
use crate::trials::orloj::{Known, Setting, Trial};

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    section.say(decisions(bench));
    hull(bench, &mut section);
    Ok(section)
}

fn decisions(bench: &Bench<'_>) -> String {
    let rounds = if bench.suite.quick { 300 } else { 3_000 };
    let mut table = Table::new([
        "distributions",
        "waiting",
        "objective",
        "median (us)",
        "99th percentile (us)",
    ]);
    for (modes, waiting, times_p99) in [
        (1, 1_000, 30.0),
        (2, 1_000, 30.0),
        (8, 100, 30.0),
        (8, 1_000, 30.0),
        (8, 1_000, 3.0),
        (8, 10_000, 30.0),
    ] {
        let mut times = Decisions::new(modes, waiting, times_p99).measure(rounds);
        times.sort_unstable();
        let us = |share: usize| format!("{:.2}", times[times.len() * share / 100] as f64 / 1e3);
        table.add([
            format!("{modes}"),
            format!("{waiting}"),
            format!("x {times_p99}"),
            us(50),
            us(99),
        ]);
    }
    format!(
        "One decision of `fermata`: an executor is done, and gets its next batch of at most 16 out \
         of so many that wait, with deadlines evenly spread from a fifth of the objective to all \
         of it (with a short \
         objective many of them cannot be helped, and are dropped on the way). Asked: 5 us for \
         1,000 of eight distributions.\n\n{}",
        table.markdown()
    )
}

/// A dispatcher with one executor and a long queue.
struct Decisions {
    dispatcher: Dispatcher,
    actions: Actions,
    slo: Span,
    modes: u64,
    now: Time,
    requests: u64,
    random: u64,
}

impl Decisions {
    fn new(modes: usize, waiting: usize, times_p99: f64) -> Self {
        let trial = Trial::new(&Alone::modes(modes, 10.0), Setting::A, times_p99, 1, 1);
        let spec = ModelSpec::uniform(trial.slo(), trial.profile(Known::Application));
        let mut this = Self {
            dispatcher: Dispatcher::new(Rules::RELEASE, Network::default()),
            actions: Actions::default(),
            slo: trial.slo(),
            modes: modes as u64,
            now: Time::from_ms(1.0),
            requests: 0,
            random: 1,
        };
        this.handle(Event::AddModel { model: ModelId(0), spec: Arc::new(spec), gap: None });
        this.handle(Event::Join { executor: ExecutorId(0), class: ClassId(0) });
        (0..waiting + 16).for_each(|_| this.arrive());
        this
    }

    fn handle(&mut self, event: Event) {
        self.dispatcher.handle(self.now, event, &mut self.actions);
    }

    fn draw(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.random >> 33
    }

    fn arrive(&mut self) {
        let kind = KindId((self.draw() % self.modes) as u16);
        let share = 0.2 + 0.8 * self.draw() as f64 / (1u64 << 31) as f64;
        let deadline = self.now + Span((self.slo.0 as f64 * share) as u64);
        self.requests += 1;
        let (model, request) = (ModelId(0), RequestId(self.requests));
        self.handle(Event::Arrive { model, request, deadline, kind });
    }

    /// Nanoseconds of each decision. Whoever leaves is replaced.
    fn measure(&mut self, rounds: usize) -> Vec<u64> {
        let mut times = Vec::with_capacity(rounds);
        while times.len() < rounds {
            self.actions.clear();
            self.now += Span(1_000);
            let start = Instant::now();
            self.handle(Event::Done { executor: ExecutorId(0) });
            times.push(start.elapsed().as_nanos() as u64);
            while !self.actions.list.iter().any(|action| matches!(action, Action::Run { .. })) {
                self.arrive(); // The last ones were dropped.
                self.now = self.now.max(self.dispatcher.next_wakeup());
                self.handle(Event::Wakeup);
            }
            let drops =
                self.actions.list.iter().filter(|action| matches!(action, Action::Drop { .. }));
            let gone = drops.count() + self.actions.requests.len();
            (0..gone).for_each(|_| self.arrive());
        }
        times
    }
}

/// Insertions and queries of the convex hull queue by its length.
fn hull(bench: &Bench<'_>, section: &mut Section) {
    let lengths: &[usize] = &[10, 100, 1_000, 10_000, 100_000];
    let samples = if bench.suite.quick { 2_000 } else { 20_000 };
    let mut table =
        Table::new(["waiting", "insert (ns)", "over log2(n)^2", "remove (ns)", "query (ns)"]);
    let (mut inserts, mut queries) = (Vec::new(), Vec::new());
    for &length in lengths {
        let [insert, remove, query] = operations(length, samples);
        let log = (length as f64).log2();
        let text = |value: f64| format!("{value:.0}");
        let scaled = format!("{:.1}", insert / (log * log));
        table.add([format!("{length}"), text(insert), scaled, text(remove), text(query)]);
        inserts.push((log * log, insert));
        queries.push((log * log, query));
    }
    section.say(format!(
        "Orloj's queue (figure 10): a balanced tree of bridges. Each of {samples} rounds takes a \
         member out and puts another in, and asks once for the highest \
         priority; reading the clock is some 30 ns of each time. Asked with 10,000: insert 2,000 \
         ns, query 200 ns. If insertion takes O(log2 n squared), the third column does not \
         grow.\n\n{}",
        table.markdown()
    ));
    let panel = |title: &str, points: Vec<(f64, f64)>| -> Box<dyn Panel> {
        Box::new(Lines {
            title: title.to_owned(),
            x: Axis::from_zero("log2(n) squared"),
            y: Axis::from_zero("ns"),
            series: vec![Series::measured(title, points)],
            marks: Vec::new(),
        })
    };
    let svg = figure(
        "The convex hull queue",
        "figure 10: 10 to 100,000 waiting",
        vec![(320.0, vec![panel("insert", inserts), panel("query", queries)])],
    );
    section.show("hull", "insertion and query times by length", svg);
}

/// The mean nanoseconds of an insertion, a removal and a query.
fn operations(length: usize, samples: usize) -> [f64; 3] {
    let mut random = 1u64;
    let mut uniform = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 11) as f64 / (1u64 << 53) as f64
    };
    // As priorities are: the faster they rise, the lower they are at first.
    let mut point = || Point { alpha: 1.0 + uniform(), beta: -uniform() };
    let mut members: Vec<Point> = (0..length).map(|_| point()).collect();
    let mut queue = HullQueue::default();
    members.iter().zip(0u64..).for_each(|(&point, key)| queue.insert(point, key));
    let fresh: Vec<Point> = (0..samples).map(|_| point()).collect();
    let mut spent = [0u128; 3];
    let mut found = 0.0;
    for (round, &new) in fresh.iter().enumerate() {
        let at = round * 7919 % length;
        let start = Instant::now();
        let was_there = queue.remove(members[at], at as u64);
        spent[1] += start.elapsed().as_nanos();
        assert!(was_there, "every member is in the queue");
        members[at] = new;
        let start = Instant::now();
        queue.insert(new, at as u64);
        spent[0] += start.elapsed().as_nanos();
        let x = 0.5 + round as f64 / samples as f64;
        let start = Instant::now();
        let best = queue.best(x);
        spent[2] += start.elapsed().as_nanos();
        found += best.map_or(0.0, |(point, _)| point.at(x));
    }
    assert!(found.is_finite(), "somebody is always first");
    spent.map(|ns| ns as f64 / samples as f64)
}
