#![allow(missing_docs, clippy::all)]
use fermata_core::{Profile, Span};
use fermata_plan::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::time::Instant;
fn zoo(times: f64) -> Vec<(Profile, Span)> {
    include_str!("../../../data/zoo_a100.csv")
        .lines()
        .skip(1)
        .map(|l| {
            let f: Vec<f64> = l.split(',').skip(1).map(|x| x.parse().unwrap()).collect();
            let slo = Span::from_ms(f[2] * times);
            (Profile::linear(Span::from_ms(f[0]), Span::from_ms(f[1]), slo).unwrap(), slo)
        })
        .filter(|(p, slo)| p.shortest() * 2 <= *slo)
        .collect()
}
fn turn_of(profile: &Profile, slo: Span, share: f64) -> Turn<'_> {
    let b = profile.largest_within(Span(slo.0 / 2));
    Turn { profile, slo, rate: share * 1e9 / profile.cost(b) }
}
fn sessions(models: &[(Profile, Span)], count: usize, seed: u64) -> Packer<'_> {
    let mut random = Pcg64::seed_from_u64(seed);
    let s = (0..count)
        .map(|demand| {
            let (profile, slo) = &models[random.random_range(0..models.len())];
            let turn = turn_of(profile, *slo, random.random_range(0.05..0.6));
            Session { demand, turn, memory: 1, workspace: 0 }
        })
        .collect();
    Packer { sessions: s, memory: u64::MAX }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (n, times, seeds): (usize, f64, u64) =
        (a[1].parse().unwrap(), a[2].parse().unwrap(), a[3].parse().unwrap());
    let models = zoo(times);
    for seed in 0..seeds {
        let packer = sessions(&models, n, seed);
        let fluid = fluid_bound(&packer);
        let t = Instant::now();
        let sq = squishy(&packer).len();
        let tsq = t.elapsed();
        let t = Instant::now();
        let bf = best_fit(&packer).len();
        let tbf = t.elapsed();
        print!(
            "{n} x{times} seed {seed}: fluid {fluid} squishy {sq} ({tsq:.1?}) best fit {bf} ({tbf:.1?}) obl {}",
            oblivious(&packer).len()
        );
        if n <= 200 || a.len() > 5 {
            let t = Instant::now();
            let c = configuration_bound(&packer, None);
            let tc = t.elapsed();
            let t = Instant::now();
            let e = exact(&packer);
            let te = t.elapsed();
            print!(
                " lp {c:?} ({tc:.1?}) exact {} bound {} ({te:.1?})",
                e.sets.len(),
                e.lower_bound
            );
            packer.assert_packed(&e.sets);
        }
        if n > 200 {
            if let Some(k) = a.get(4) {
                let t = Instant::now();
                print!(
                    " lp {:?} ({:.1?})",
                    configuration_bound(&packer, Some(k.parse().unwrap())),
                    t.elapsed()
                );
            }
        }
        println!();
    }
}
