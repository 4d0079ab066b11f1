//! What the priority queue of Orloj's policy costs, by how many wait: the rates are those of single
//! operations, the times those of as many as wait, a thousand at most. `cargo test --benches` runs
//! each once.
//!
//! Expected: a query is a comparison a level, tens of nanoseconds. An update walks down and up, a
//! few hundred. A point above all others is part of the bridges on all levels, each of which must
//! be found anew: that is the O(log^2 n).

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use fermata_dispatch::{HullQueue, Point};

fn main() {
    divan::main();
}

const WAITING: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
const OPERATIONS_MAX: usize = 1000;

/// Points of all kinds: few are on the hull.
#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod anywhere {
    use super::*;

    #[divan::bench(args = WAITING)]
    fn insert(bencher: Bencher<'_, '_>, waiting: usize) {
        inserts(bencher, waiting, anywhere);
    }

    #[divan::bench(args = WAITING)]
    fn remove(bencher: Bencher<'_, '_>, waiting: usize) {
        removes(bencher, waiting, anywhere);
    }

    #[divan::bench(args = WAITING)]
    fn query(bencher: Bencher<'_, '_>, waiting: usize) {
        queries(bencher, waiting, anywhere);
    }
}

/// Points of which every one is on the hull.
#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod on_a_circle {
    use super::*;

    #[divan::bench(args = WAITING)]
    fn insert(bencher: Bencher<'_, '_>, waiting: usize) {
        inserts(bencher, waiting, on_a_circle);
    }

    #[divan::bench(args = WAITING)]
    fn remove(bencher: Bencher<'_, '_>, waiting: usize) {
        removes(bencher, waiting, on_a_circle);
    }

    #[divan::bench(args = WAITING)]
    fn query(bencher: Bencher<'_, '_>, waiting: usize) {
        queries(bencher, waiting, on_a_circle);
    }
}

/// The worst that can be: a point above all others comes and goes.
#[divan::bench(args = WAITING, sample_count = 20, sample_size = 1)]
fn above_all_in_and_out(bencher: Bencher<'_, '_>, waiting: usize) {
    let (mut queue, members) = filled(waiting, on_a_circle);
    let operations = waiting.min(OPERATIONS_MAX);
    bencher.counter(ItemsCount::new(operations)).bench_local(|| {
        for (key, &point) in (waiting..).zip(&members[..operations]) {
            let above = Point { beta: 10.0, ..point };
            queue.insert(above, key);
            queue.remove(above, key);
        }
    });
}

fn inserts(bencher: Bencher<'_, '_>, waiting: usize, draw: fn(&mut Random) -> Point) {
    let operations = waiting.min(OPERATIONS_MAX);
    let (mut queue, members) = filled(waiting + operations, draw);
    // Out and in again, so that no memory is moved for them.
    let more: Vec<(usize, Point)> = members.into_iter().enumerate().skip(waiting).collect();
    more.iter().for_each(|&(key, point)| assert!(queue.remove(point, key)));
    let bencher = bencher.counter(ItemsCount::new(operations)).with_inputs(|| queue.clone());
    bencher.bench_local_values(|mut queue| {
        for &(key, point) in &more {
            queue.insert(point, key);
        }
        queue
    });
}

fn removes(bencher: Bencher<'_, '_>, waiting: usize, draw: fn(&mut Random) -> Point) {
    let operations = waiting.min(OPERATIONS_MAX);
    let (queue, members) = &filled(waiting + operations, draw);
    let bencher = bencher.counter(ItemsCount::new(operations)).with_inputs(|| queue.clone());
    bencher.bench_local_values(|mut queue| {
        for (key, &point) in members.iter().enumerate().take(operations) {
            queue.remove(point, key);
        }
        queue
    });
}

fn queries(bencher: Bencher<'_, '_>, waiting: usize, draw: fn(&mut Random) -> Point) {
    let (queue, random) = (&filled(waiting, draw).0, &mut Random(1 << 40));
    // Slopes of all directions.
    let lines: Vec<f64> =
        (0..OPERATIONS_MAX).map(|_| (random.next() * std::f64::consts::FRAC_PI_2).tan()).collect();
    bencher.counter(ItemsCount::new(OPERATIONS_MAX)).bench_local(|| {
        for &x in &lines {
            black_box(queue.best(black_box(x)));
        }
    });
}

/// A queue in which so many wait, and who they are.
fn filled(waiting: usize, draw: fn(&mut Random) -> Point) -> (HullQueue<usize>, Vec<Point>) {
    let (mut queue, random) = (HullQueue::default(), &mut Random(0));
    let members: Vec<Point> = (0..waiting).map(|_| draw(random)).collect();
    for (key, &point) in members.iter().enumerate() {
        queue.insert(point, key);
    }
    (queue, members)
}

fn anywhere(random: &mut Random) -> Point {
    Point { alpha: random.next(), beta: random.next() }
}

fn on_a_circle(random: &mut Random) -> Point {
    let (alpha, beta) = (random.next() * std::f64::consts::FRAC_PI_2).sin_cos();
    Point { alpha, beta }
}

/// Numbers between zero and one.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 += 1;
        // The splitmix64 generator.
        let mut bits = self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
