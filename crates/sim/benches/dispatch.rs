//! What a request costs. `cargo bench` prints the time of a run and requests (or events) per
//! second, by models x executors; `cargo test --benches` runs each once.
//!
//! Expected: a request is one arrival (a queue push, two or three tree updates of depth log M) and
//! its share of a batch (one grant, one Done), so tens of nanoseconds, growing slowly with models
//! and executors.

use std::fmt;
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use fermata_core::{ClassId, Profile, Span, Time};
use fermata_dispatch::{Actions, Dispatch, Dispatcher, Event, ModelSpec, Network, Rules};
use fermata_sim::{Arrivals, Drawn, End, Load, Observer, Scenario, simulate, simulate_drawn};
use fermata_workload::{Gaps, Process, Rate};

fn main() {
    divan::main();
}

const SIZES: [Size; 3] = [
    Size { models: 1, executors: 8 },
    Size { models: 37, executors: 64 },
    Size { models: 200, executors: 1000 },
];
const REQUESTS: u64 = 200_000;
/// Of the best that the executors could do with large batches: busy, and not overloaded.
const LOAD: f64 = 0.75;

/// How large the pool is.
#[derive(Clone, Copy)]
struct Size {
    models: usize,
    executors: usize,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.models, self.executors)
    }
}

/// Dispatch and the event loop around it.
#[divan::bench_group(sample_count = 5, sample_size = 1)]
mod run {
    use super::*;

    #[divan::bench(args = SIZES)]
    fn deferred(bencher: Bencher<'_, '_>, size: Size) {
        whole(bencher, size, Rules::DEFERRED);
    }

    #[divan::bench(args = SIZES)]
    fn eager(bencher: Bencher<'_, '_>, size: Size) {
        whole(bencher, size, Rules::EAGER);
    }

    #[divan::bench(args = SIZES)]
    fn fermata(bencher: Bencher<'_, '_>, size: Size) {
        whole(bencher, size, Rules::FERMATA);
    }
}

/// The events of a recorded run, replayed to `Dispatcher::handle` alone.
#[divan::bench_group(sample_count = 5, sample_size = 1)]
mod handle {
    use super::*;

    #[divan::bench(args = SIZES)]
    fn deferred(bencher: Bencher<'_, '_>, size: Size) {
        replay(bencher, size, Rules::DEFERRED);
    }

    #[divan::bench(args = SIZES)]
    fn eager(bencher: Bencher<'_, '_>, size: Size) {
        replay(bencher, size, Rules::EAGER);
    }

    #[divan::bench(args = SIZES)]
    fn fermata(bencher: Bencher<'_, '_>, size: Size) {
        replay(bencher, size, Rules::FERMATA);
    }
}

fn whole(bencher: Bencher<'_, '_>, size: Size, rules: Rules) {
    let scenario = scenario(size);
    let drawn = Drawn::new(&scenario, 1.0);
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .with_inputs(|| Dispatcher::new(rules, Network::default()))
        .bench_local_values(|mut dispatcher| {
            simulate_drawn(&scenario, &drawn, 1.0, &mut dispatcher, None)
        });
}

fn replay(bencher: Bencher<'_, '_>, size: Size, rules: Rules) {
    let mut record = Record(Vec::new());
    let new = || Dispatcher::new(rules, Network::default());
    simulate(&scenario(size), &mut new(), &mut record, None);
    let events = record.0;
    bencher
        .counter(ItemsCount::new(events.len()))
        .with_inputs(|| (new(), events.clone()))
        .bench_local_values(|(mut dispatcher, events)| {
            let mut actions = Actions::default();
            for (now, event) in events {
                dispatcher.handle(now, event, &mut actions);
                black_box(&actions);
                actions.clear();
            }
        });
}

struct Record(Vec<(Time, Event)>);

impl Observer for Record {
    fn event(&mut self, now: Time, event: &Event) {
        self.0.push((now, event.clone()));
    }
}

/// Models of many shapes under a Poisson load.
fn scenario(size: Size) -> Scenario {
    let ms = Span::from_ms;
    let loads = (0..size.models).map(|at| {
        let (alpha, beta) = (0.3 + 0.1 * (at % 13) as f64, 4.0 + (at % 7) as f64);
        let slo = ms(20.0 + 5.0 * (at % 5) as f64);
        let profile = Profile::linear(ms(alpha), ms(beta), slo).expect("latencies above zero");
        let share = LOAD * size.executors as f64 / size.models as f64;
        let rate = share * 1e9 / profile.cost(profile.max_batch() / 2);
        let gaps = Gaps::new(Process::Poisson, 1, at as u64).table(8192);
        let spec = Arc::new(ModelSpec::uniform(slo, profile));
        Load::new(spec, Arrivals::Table(gaps, Rate::Constant(rate)))
    });
    Scenario {
        loads: loads.collect(),
        executors: vec![ClassId(0); size.executors],
        network: Network::default(),
        end: End::Requests(REQUESTS),
        seed: 1,
        noise: 0.0,
        faults: Vec::new(),
    }
}
