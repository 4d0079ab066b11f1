//! scratch
use fermata_core::*;
use fermata_dispatch::*;
use fermata_sim::*;
use fermata_workload::*;
use std::sync::Arc;
fn main() {
    let pol: String = std::env::args().nth(1).unwrap();
    let big = std::env::args().nth(2).unwrap() == "big";
    let n: u64 = std::env::args().nth(3).unwrap().parse().unwrap();
    let z: Vec<(f64, f64, f64)> = std::fs::read_to_string("data/zoo_a100.csv")
        .unwrap()
        .lines()
        .skip(1)
        .map(|l| {
            let v: Vec<&str> = l.split(',').collect();
            (v[1].parse().unwrap(), v[2].parse().unwrap(), v[3].parse().unwrap())
        })
        .collect();
    let (m, g, rate) = if big { (200, 1000, 16000.0 * 15.6) } else { (37, 64, 16000.0) };
    let loads = (0..m)
        .map(|i| {
            let (a, b, s) = z[i % 37];
            let p = Profile::linear(Span::from_ms(a), Span::from_ms(b), Span::from_ms(s)).unwrap();
            let gaps = Gaps::new(Process::Poisson, 1, i as u64).table((n as usize / m) * 2 + 100);
            Load {
                spec: Arc::new(ModelSpec::uniform(Span::from_ms(s), p)),
                arrivals: Arrivals::Table(gaps, Rate::Constant(rate / m as f64)),
            }
        })
        .collect();
    let sc = Scenario {
        loads,
        executors: vec![ClassId(0); g],
        network: Network::default(),
        end: End::Requests(n),
        seed: 1,
        noise: 0.0,
        faults: vec![],
    };
    let rules = match pol.as_str() {
        "deferred" => Rules::DEFERRED,
        "eager" => Rules::EAGER,
        _ => Rules::FERMATA,
    };
    let drawn = Drawn::new(&sc);
    let mut v = vec![];
    for _ in 0..5 {
        let mut d = Dispatcher::new(rules, Network::default());
        let t = std::time::Instant::now();
        let s = simulate_drawn(&sc, &drawn, 1.0, &mut d, None);
        v.push(t.elapsed().as_nanos() as f64 / n as f64);
        if v.len() == 5 {
            let tot = s.total();
            let batches: u64 = tot.batches.iter().sum();
            v.sort_by(|a, b| a.partial_cmp(b).unwrap());
            println!(
                "{pol} {m}x{g} median {:.1} ns min {:.1}  mean batch {:.2} bad {:.4}",
                v[2],
                v[0],
                tot.in_time as f64 / batches as f64,
                tot.bad_rate()
            );
        }
    }
}
