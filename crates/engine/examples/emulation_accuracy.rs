//! Measures how late emulated devices answer, each on a thread of its own: `cargo run --release -p
//! fermata-engine --example emulation_accuracy [devices]`.

use std::time::{Duration, Instant};

use fermata_core::{Profile, Span};
use fermata_engine::{Emulated, Model, Signature};

const RUNS: usize = 1000;

fn main() {
    let devices: usize = std::env::args().nth(1).map_or(1, |n| n.parse().expect("a number"));
    let threads: Vec<_> = (0..devices).map(|_| std::thread::spawn(overshoots)).collect();
    let mut all: Vec<Duration> =
        threads.into_iter().flat_map(|thread| thread.join().expect("no run fails")).collect();
    all.sort_unstable();
    let quantile = |q: f64| all[((all.len() - 1) as f64 * q) as usize];
    eprintln!(
        "{devices} devices, {} runs of 5 ms: late by {:?} (P50), {:?} (P99), {:?} (most)",
        all.len(),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
    );
}

fn overshoots() -> Vec<Duration> {
    let latency = Duration::from_millis(5);
    let profile = Profile::from_table([Span(latency.as_nanos() as u64)]).expect("not zero");
    let signature =
        Signature { max_batch: 1, inputs: Vec::new(), outputs: Vec::new(), length: None };
    let model = Emulated::new(signature.clone(), profile);
    let mut session = model.session(&signature).expect("there is no output");
    (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            session.run(&[Vec::new()]).expect("the profile has this batch");
            start.elapsed() - latency
        })
        .collect()
}
