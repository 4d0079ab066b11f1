//! research
use fermata_core::*;
use fermata_dispatch::*;
use fermata_sim::*;
use fermata_workload::*;
use std::sync::Arc;

fn spec(a: f64, b: f64, slo: f64) -> Arc<ModelSpec> {
    let p = Profile::linear(Span::from_ms(a), Span::from_ms(b), Span::from_ms(slo)).unwrap();
    Arc::new(ModelSpec::uniform(Span::from_ms(slo), p))
}
fn zoo(f: &str) -> Vec<Arc<ModelSpec>> {
    std::fs::read_to_string(f)
        .unwrap()
        .lines()
        .skip(1)
        .map(|l| {
            let v: Vec<&str> = l.split(',').collect();
            spec(v[1].parse().unwrap(), v[2].parse().unwrap(), v[3].parse().unwrap())
        })
        .collect()
}
fn scen(
    models: Vec<Arc<ModelSpec>>,
    pr: Process,
    pop: Popularity,
    gpus: usize,
    requests: u64,
    rate: f64,
) -> Scenario {
    let shares = pop.shares(models.len());
    Scenario {
        loads: models
            .into_iter()
            .zip(shares)
            .map(|(s, sh)| Load::steady(s, pr, rate * sh))
            .collect(),
        executors: vec![ClassId(0); gpus],
        network: Network::default(),
        end: End::Requests(requests),
        seed: 1,
        noise: 0.0,
        faults: vec![],
    }
}
fn grid() -> Vec<(String, Vec<Arc<ModelSpec>>, usize, f64)> {
    let ms = [
        ("dense", 1.061, 10.312),
        ("incep", 1.964, 8.771),
        ("res50v2", 1.409, 5.947),
        ("vgg16", 2.734, 5.786),
        ("xcep", 4.751, 2.046),
        ("bert", 7.008, 0.159),
    ];
    let mut v = vec![];
    let ratios = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
    let bursts = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0];
    for (name, a, b) in ms {
        for slo in [20.0, 25.0, 30.0, 40.0, 50.0] {
            if slo < 2.0 * (2.0 * a + b) {
                continue;
            }
            for n in [8usize, 16, 24, 32, 48, 64] {
                for r in ratios {
                    for g in bursts {
                        v.push((
                            format!("{name}-s{slo}-n{n}-r{r}-g{g}"),
                            vec![spec(a, b, slo); n],
                            (n as f64 * r) as usize,
                            g,
                        ));
                    }
                }
            }
        }
    }
    for c in [1usize, 2] {
        for r in ratios {
            for g in bursts {
                let z = zoo("data/zoo_1080ti.csv");
                let n = z.len() * c;
                let z: Vec<_> = z.iter().cycle().take(n).cloned().collect();
                v.push((format!("mixed-n{n}-r{r}-g{g}"), z, (n as f64 * r) as usize, g));
            }
        }
    }
    assert_eq!(v.len(), 5880);
    v
}
fn run_grid(k: usize, pols: &[String]) {
    let g = grid();
    let n: u64 = std::env::var("N").ok().map(|s| s.parse().unwrap()).unwrap_or(300_000);
    let off: usize = std::env::var("OFF").ok().map(|s| s.parse().unwrap()).unwrap_or(7);
    let pick: Vec<usize> = (0..k).map(|i| (i * g.len() / k + off) % g.len()).collect();
    let pick: Vec<usize> = match std::env::var("NAMES") {
        Ok(names) => names.split(',').map(|n| g.iter().position(|x| x.0 == n).unwrap()).collect(),
        _ => pick,
    };
    let t = std::time::Instant::now();
    let res = spread(&pick, 2, |&i| {
        let (_, models, gpus, shape) = &g[i];
        let m = models.len();
        let mut loads = vec![];
        let cap: f64 = models
            .iter()
            .map(|s| {
                let p = s.profile(ClassId(0)).unwrap();
                p.cost(p.largest_within(Span((s.slo.0 as f64 / 1.5) as u64)).max(1)) / 1e9
            })
            .sum::<f64>()
            / m as f64;
        let guess = *gpus as f64 / cap * 0.9;
        for (j, s) in models.iter().enumerate() {
            let gaps = Gaps::new(Process::Gamma(*shape), i as u64, j as u64)
                .table((n as f64 / m as f64 * 1.3) as usize + 100);
            loads.push(Load {
                spec: s.clone(),
                arrivals: Arrivals::Table(gaps, Rate::Constant(guess / m as f64)),
            });
        }
        let sc = Scenario {
            loads,
            executors: vec![ClassId(0); *gpus],
            network: Network::default(),
            end: End::Requests(n),
            seed: i as u64,
            noise: 0.0,
            faults: vec![],
        };
        let mut guess = guess;
        pols.iter()
            .map(|p| {
                let r = goodput(
                    &sc,
                    p.parse().unwrap(),
                    Search { precision: 0.005, guess: Some(guess) },
                );
                if r > 0.0 {
                    guess = r;
                }
                r
            })
            .collect::<Vec<f64>>()
    });
    let mut rows: Vec<(f64, String)> = vec![];
    for (r, &i) in res.iter().zip(&pick) {
        let best = r[1..].iter().cloned().fold(0.0, f64::max);
        let line = r.iter().map(|x| format!("{x:>8.0}")).collect::<String>();
        rows.push((r[0] / best, format!("{:32} {line}  {:.3}", g[i].0, r[0] / best)));
    }
    rows.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap());
    println!("{:32} {}", "", pols.iter().map(|p| format!("{p:>8.8}")).collect::<String>());
    for r in rows.iter().take(std::env::var("ROWS").ok().map(|s| s.parse().unwrap()).unwrap_or(25))
    {
        println!("{}", r.1);
    }
    let q = |f: f64| rows[((rows.len() - 1) as f64 * f) as usize].0;
    println!(
        "min {:.3} p1 {:.3} p5 {:.3} p10 {:.3} p25 {:.3} med {:.3} p75 {:.3} max {:.3}  below .98: {}  {:.0}s",
        q(0.0),
        q(0.01),
        q(0.05),
        q(0.1),
        q(0.25),
        q(0.5),
        q(0.75),
        q(1.0),
        rows.iter().filter(|r| r.0 < 0.98).count(),
        t.elapsed().as_secs_f64()
    );
}
fn main() {
    if let Ok(k) = std::env::var("GRID") {
        return run_grid(k.parse().unwrap(), &std::env::args().skip(1).collect::<Vec<_>>());
    }
    let n: u64 = std::env::var("N").ok().map(|s| s.parse().unwrap()).unwrap_or(400_000);
    let only = std::env::var("ONLY").unwrap_or_default();
    let r50 = || spec(1.053, 5.072, 25.0);
    let g = Process::Gamma;
    let p = Process::Poisson;
    let eq = Popularity::Equal;
    let rep = |m: Arc<ModelSpec>, k: usize| vec![m; k];
    let dense = |s| spec(1.061, 10.312, s);
    let bert = |s| spec(7.008, 0.159, s);
    let vgg = |s| spec(2.734, 5.786, s);
    let cases: Vec<(&str, Scenario)> = vec![
        ("t2res8", scen(rep(r50(), 1), p, eq, 8, n, 5000.0)),
        ("t2inc8", scen(rep(spec(5.090, 18.368, 70.0), 1), p, eq, 8, n, 900.0)),
        ("a100-64", scen(zoo("data/zoo_a100.csv"), p, eq, 64, 2 * n, 17000.0)),
        ("1080-64", scen(zoo("data/zoo_1080ti.csv"), p, eq, 64, 2 * n, 7000.0)),
        ("res1", scen(rep(r50(), 1), p, eq, 1, n, 400.0)),
        ("res2", scen(rep(r50(), 1), p, eq, 2, n, 1000.0)),
        ("res10x24", scen(rep(spec(1.053, 5.072, 100.0), 10), p, eq, 24, n, 20000.0)),
        ("res20x32g.05", scen(rep(spec(1.053, 5.072, 50.0), 20), g(0.05), eq, 32, n, 10000.0)),
        (
            "res20x32z25",
            scen(rep(spec(1.053, 5.072, 25.0), 20), p, Popularity::Zipf(0.9), 32, n, 10000.0),
        ),
        ("dense8x8s25", scen(rep(dense(25.0), 8), p, eq, 8, n, 1000.0)),
        ("dense8x16s30", scen(rep(dense(30.0), 8), p, eq, 16, n, 3000.0)),
        ("dense64x256s30", scen(rep(dense(30.0), 64), p, eq, 256, n, 80000.0)),
        ("dense16x24s30g.1", scen(rep(dense(30.0), 16), g(0.1), eq, 24, n, 3000.0)),
        ("dense24x24s50g.3", scen(rep(dense(50.0), 24), g(0.3), eq, 24, n, 8000.0)),
        ("bert8x8s30", scen(rep(bert(30.0), 8), p, eq, 8, n, 800.0)),
        ("bert16x32s50g.2", scen(rep(bert(50.0), 16), g(0.2), eq, 32, n, 3000.0)),
        ("vgg8x8s40", scen(rep(vgg(40.0), 8), p, eq, 8, n, 1000.0)),
        ("vgg32x64s25g.5", scen(rep(vgg(25.0), 32), g(0.5), eq, 64, n, 6000.0)),
        ("res50v2-48x48s20", scen(rep(spec(1.409, 5.947, 20.0), 48), p, eq, 48, n, 6000.0)),
        ("zoo35x35g.1", scen(zoo("data/zoo_1080ti.csv"), g(0.1), eq, 35, n, 2000.0)),
        ("zoo35x140", scen(zoo("data/zoo_1080ti.csv"), p, eq, 140, 2 * n, 15000.0)),
    ];
    let pols: Vec<String> = std::env::args().skip(1).collect();
    let mut jobs = vec![];
    for (i, (name, _)) in cases.iter().enumerate() {
        if !only.is_empty() && !only.split(',').any(|o| name.contains(o)) {
            continue;
        }
        for pol in &pols {
            jobs.push((i, pol.clone()));
        }
    }
    if let Ok(r) = std::env::var("SHOW") {
        let r: f64 = r.parse().unwrap();
        for (i, pol) in &jobs {
            let s = cases[*i].1.scaled(r / cases[*i].1.rate());
            let st = run(&s, pol.parse().unwrap());
            println!(
                "{} {pol} rate {r}: worst {:.4} total {:.4} busy {:.3}",
                cases[*i].0,
                st.worst_bad_rate(),
                st.total().bad_rate(),
                st.busy_fraction()
            );
            let mut v: Vec<_> =
                st.models.iter().enumerate().map(|(j, m)| (m.bad_rate(), j)).collect();
            v.sort_by(|a, b| b.partial_cmp(a).unwrap());
            for (b, j) in v.iter().take(8) {
                let m = &st.models[*j];
                let sp = &s.loads[*j].spec;
                let p = sp.profile(ClassId(0)).unwrap();
                println!(
                    "   m{j} bad {b:.4} b50 {} mean {:.1} l1 {} slo {} max {}",
                    m.batch_p50(),
                    m.in_time as f64 / m.batches.iter().sum::<u64>() as f64,
                    p.latency(1),
                    sp.slo,
                    p.max_batch()
                );
            }
        }
        return;
    }
    let t = std::time::Instant::now();
    let res = spread(&jobs, 2, |(i, pol)| {
        let s = &cases[*i].1;
        goodput(s, pol.parse().unwrap(), Search { precision: 0.003, guess: Some(s.rate()) })
    });
    print!("{:18}", "");
    for p in &pols {
        print!("{p:>16}");
    }
    println!();
    let mut k = 0;
    let mut geo = vec![0.0; pols.len()];
    let mut rows = 0.0;
    let base: Option<std::collections::BTreeMap<String, f64>> =
        std::fs::read_to_string("/tmp/best.txt").ok().map(|s| {
            s.lines()
                .map(|l| {
                    let (a, b) = l.split_once(' ').unwrap();
                    (a.to_string(), b.parse().unwrap())
                })
                .collect()
        });
    let mut best = base.unwrap_or_default();
    for (name, _) in &cases {
        if !only.is_empty() && !only.split(',').any(|o| name.contains(o)) {
            continue;
        }
        print!("{name:18}");
        let b = best.entry(name.to_string()).or_insert(0.0);
        for j in 0..pols.len() {
            *b = b.max(res[k + j]);
        }
        for j in 0..pols.len() {
            print!("{:>9.0} {:.3} ", res[k + j], res[k + j] / *b);
            geo[j] += (res[k + j] / *b).ln();
        }
        println!("{:>9.0}", *b);
        k += pols.len();
        rows += 1.0;
    }
    print!("{:18}", "geomean");
    for g in &geo {
        print!("{:>15.4} ", (g / rows).exp());
    }
    println!(" {:.1}s", t.elapsed().as_secs_f64());
    std::fs::write(
        "/tmp/best.txt",
        best.iter().map(|(a, b)| format!("{a} {b}\n")).collect::<String>(),
    )
    .unwrap();
}
