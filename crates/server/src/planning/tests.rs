//! Plans against the clock: hundreds of emulated GPUs, dozens of models, a load that shifts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;
use fermata_core::Profile;
use fermata_dispatch::{Network, Policy};
use fermata_engine::{DataType, EngineError, Tensor};
use fermata_pool::PoolConfig;
use fermata_repository::{LoadOverride, Repository};
use tokio::task::JoinHandle;

use super::*;
use crate::fleet::Fleet;
use crate::inference::Call;
use crate::loader::Loader;

/// An estimate that is good enough to test with: first fit by memory, the busiest models together,
/// so that a load that shifts moves them; and GPUs for batches of one.
fn fluid(problem: &Problem, _previous: Option<&Plan>) -> Plan {
    let mut parts: Vec<(u64, Vec<usize>)> = Vec::new();
    let mut order: Vec<usize> = (0..problem.demands.len()).collect();
    order.sort_by(|&a, &b| problem.demands[b].rate.total_cmp(&problem.demands[a].rate));
    for (at, demand) in order.into_iter().map(|at| (at, &problem.demands[at])) {
        let memory = problem.kinds[0].memory;
        let fits = |part: &&mut (u64, Vec<usize>)| part.0 + demand.memory <= memory;
        match parts.iter_mut().find(fits) {
            Some(part) => {
                part.0 += demand.memory;
                part.1.push(at);
            }
            None => parts.push((demand.memory, vec![at])),
        }
    }
    let load = |demand: &Demand| {
        let profile: &Profile = demand.profiles[0].as_ref().unwrap();
        demand.rate * profile.latency(1).0 as f64 * 1e-9
    };
    let mut first = 0;
    let pools = parts.into_iter().map(|(_, part)| {
        let all: f64 = part.iter().map(|&at| load(&problem.demands[at])).sum();
        // Batches make up for bursts.
        let gpus = (all.ceil() as usize).max(1);
        let members = part.iter().map(|&demand| Member {
            demand,
            rate: problem.demands[demand].rate,
            batch: 1,
            occupancy: load(&problem.demands[demand]) / gpus as f64,
            latency: Span::ZERO,
        });
        first += gpus;
        fermata_plan::Pool {
            kind: 0,
            gpus: (first - gpus..first).collect(),
            share: 100,
            round: None,
            members: members.collect(),
        }
    });
    Plan { pools: pools.collect(), ..Plan::default() }
}

/// A server without frontends.
struct Bed {
    service: Arc<Service>,
    clock: RealTime,
    limits: Limits,
    _folder: tempfile::TempDir,
}

impl Bed {
    /// Models of `l(b) = 2 b + 8` ms that take 100 MB each, on so many GPUs of so many MB.
    async fn new(models: usize, gpus: usize, gpu_mb: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for model in 0..models {
            let home = folder.path().join(name(model));
            std::fs::create_dir(&home).unwrap();
            let text = "slo_ms = 5000\nengine = \"emulated\"\nalpha_ms = 2\nbeta_ms = \
                8\nmemory_mb = 100\n";
            std::fs::write(home.join("fermata.toml"), text).unwrap();
        }
        let clock = RealTime::start();
        let start = move |name: &str, executors, executors_max| {
            let config = PoolConfig {
                name: name.to_owned(),
                executors,
                executors_max,
                policy: Policy::FERMATA,
                margin: Span::ZERO,
                network: Network::default(),
                on_lost: None,
                recorder: None,
                scheduler_threads: 0,
            };
            Pool::start(config, Arc::new(clock))
        };
        let limits = Limits { gpus, memory: gpu_mb * 1_000_000 };
        let loader = Loader {
            engine: Err(EngineError::Library("there is none".to_owned())),
            cpu: start("cpu", 0, 0).unwrap(),
            emulated: Fleet::planned(limits, Box::new(move |name, n| start(name, n, gpus)))
                .unwrap(),
            gpus: None,
            threads: 1,
            online: None,
        };
        let repository = Repository::new(vec![folder.path().to_owned()], None);
        let service = Arc::new(Service::new(repository, loader));
        for model in 0..models {
            service.load(&name(model), LoadOverride::default()).await.unwrap();
        }
        Self { service, clock, limits, _folder: folder }
    }

    fn planning(&self, epoch: Duration) -> Planning {
        let settings = Settings { epoch, gpu_memory: self.limits.memory, planner: fluid };
        Planning::new(self.service.clone(), settings, self.limits, self.clock)
    }

    /// Executors and models by pool.
    fn pools(&self) -> Vec<(usize, usize)> {
        let models = self.service.models();
        let held = |pool: &Arc<Pool>| models.iter().filter(|m| Arc::ptr_eq(m.pool(), pool)).count();
        let pools = self.service.fleet().pools();
        pools.iter().map(|pool| (pool.executors(), held(pool))).collect()
    }

    fn executors(&self) -> usize {
        self.pools().iter().map(|&(executors, _)| executors).sum()
    }

    /// Nothing is left of any request, and each was answered in time, once.
    fn check_books(&self, sent: usize) {
        let mut in_time = 0;
        for served in self.service.models() {
            let metrics = served.metrics();
            assert_eq!(metrics.pending(), 0);
            in_time += metrics.outcome(Outcome::InTime);
        }
        assert_eq!(in_time, sent as u64);
    }
}

impl Planning {
    /// Looks, and plans whether it is time or not.
    async fn plan_now(&mut self, why: Why) {
        let (now, pools) = (self.clock.now(), self.service.fleet().pools());
        let planned = self.look(now, &pools);
        let seen = self.seen(&planned, &pools);
        self.plan(now, &why, planned, pools, &seen).await;
    }
}

fn name(model: usize) -> String {
    format!("net{model:03}")
}

/// A request like no other.
fn call(number: u64) -> Call {
    let data = Bytes::from(number.to_le_bytes().to_vec());
    let inputs = vec![Tensor { datatype: DataType::Fp32, shape: vec![1, 2], data }];
    Call {
        inputs,
        rows: 1,
        arrival: Instant::now(),
        timeout: None,
        patience: None,
        application: None,
    }
}

/// Askers that go round some models, each with one request at a time, until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    askers: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(service: &Arc<Service>, models: std::ops::Range<usize>, askers: usize) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let ask = |asker: usize| {
            let (service, stop, sent) = (service.clone(), stop.clone(), sent.clone());
            let models: Vec<usize> = models.clone().collect();
            tokio::spawn(async move {
                for round in asker.. {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let number = sent.fetch_add(1, Relaxed) as u64;
                    let call = call(number);
                    let inputs = call.inputs.clone();
                    // Anew for each, as a frontend does.
                    let served = service.model(&name(models[round % models.len()]), "").unwrap();
                    let answer = served.infer(call).await.unwrap();
                    assert_eq!(answer.outputs, inputs, "it is another's answer");
                }
            })
        };
        let askers = (0..askers).map(ask).collect();
        Self { stop, sent, askers }
    }

    /// Returns how many requests there were.
    async fn end(self) -> usize {
        self.stop.store(true, Relaxed);
        for asker in self.askers {
            asker.await.unwrap();
        }
        self.sent.load(Relaxed)
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_move_between_pools_under_load_and_no_request_fails() {
    let bed = Bed::new(4, 8, 10_000).await;
    let load = Load::start(&bed.service, 0..4, 16);
    let mut pools = bed.service.fleet().pools();
    pools[0].shrink(4);
    pools.push(bed.service.fleet().open(4).unwrap());
    for round in 0..40 {
        let models = bed.service.models();
        let moves = models.iter().map(|m| (Arc::downgrade(m), (round + 1) % 2)).collect();
        drop(models);
        let (before, after) = (vec![4, 4], vec![4, 4]);
        let mut change = Change { pools: pools.clone(), before, after, kept: vec![], moves };
        let service = bed.service.clone();
        let moved = tokio::task::spawn_blocking(move || change.relocate(&service)).await.unwrap();
        assert_eq!(moved, 4);
        // Whoever was left without models went, and is replaced.
        let empty = pools[round % 2].name().to_owned();
        assert!(bed.service.fleet().pools().iter().all(|pool| pool.name() != empty));
        pools.remove(round % 2);
        until("the old pool goes", || bed.service.fleet().free() == 4).await;
        pools.insert(round % 2, bed.service.fleet().open(4).unwrap());
    }
    let sent = load.end().await;
    assert!(sent > 100);
    bed.check_books(sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executors_come_and_go_under_load_and_no_request_fails() {
    let bed = Bed::new(6, 200, 10_000).await;
    let pool = bed.service.fleet().pools().remove(0);
    let load = Load::start(&bed.service, 0..6, 60);
    for round in 0..200 {
        let to = [1, 200, 3, 50, 2, 120][round % 6];
        let pool = pool.clone();
        tokio::task::spawn_blocking(move || {
            pool.shrink(to);
            // Seats whose last batch still runs are not free yet.
            pool.grow(to).unwrap();
            assert!((1..=to).contains(&pool.executors()));
        })
        .await
        .unwrap();
        if round % 3 == 0 {
            // Models come meanwhile, under ids that others had.
            bed.service.load(&name(round % 6), LoadOverride::default()).await.unwrap();
        }
    }
    let sent = load.end().await;
    bed.check_books(sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_changes_nothing_does_nothing() {
    let bed = Bed::new(10, 20, 500).await;
    let mut planning = bed.planning(Duration::from_millis(1));
    // Two pools hold five models each; without a load one executor each is enough.
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(3)).await;
        planning.plan_now(Why::Epoch).await;
    }
    assert_eq!(bed.pools(), [(1, 5), (1, 5)]);
    let before: Vec<_> = bed.service.models();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(3)).await;
        planning.plan_now(Why::Epoch).await;
    }
    let after = bed.service.models();
    assert!(before.iter().zip(&after).all(|(before, after)| Arc::ptr_eq(before, after)));
    assert_eq!(bed.pools(), [(1, 5), (1, 5)]);
    assert_eq!(planning.history().last().unwrap().moved, 0);
    assert_eq!(planning.history().plans(), 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_keeps_for_a_while_what_it_needed() {
    let bed = Bed::new(1, 50, 500).await;
    let mut planning = bed.planning(Duration::from_secs(3600));
    for _ in 0..3 {
        planning.plan_now(Why::Epoch).await;
    }
    assert_eq!(bed.pools(), [(50, 1)], "the epoch in which all might be needed is not over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_that_do_not_fit_beside_others_get_a_pool_of_their_own_or_are_refused() {
    let bed = Bed::new(4, 2, 200).await;
    assert_eq!(bed.pools(), [(1, 2), (1, 2)]);
    let toml = |mb| {
        let text =
            format!("slo_ms = 5000\nengine = \"emulated\"\nlatency_ms = [5]\nmemory_mb = {mb}\n");
        std::fs::write(bed._folder.path().join("net000/fermata.toml"), text).unwrap();
    };
    for (mb, reason) in [(201, "201 MB are more than the 200 MB"), (150, "all 2 GPUs are in use")] {
        toml(mb);
        let error = bed.service.load("net000", LoadOverride::default()).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    // What was served before still is.
    assert_eq!(bed.pools(), [(1, 2), (1, 2)]);
    assert!(bed.service.model("net000", "").unwrap().infer(call(1)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_become_one_under_load_when_models_go() {
    // Eight models fit on a GPU.
    let bed = Bed::new(24, 60, 800).await;
    assert_eq!(bed.pools().len(), 3);
    let planning = bed.planning(Duration::from_millis(300));
    let history = planning.history();
    let plans = tokio::spawn(planning.keep_up());
    let asked = [0..2, 8..10, 16..18];
    let loads = asked.clone().map(|models| Load::start(&bed.service, models, 10));
    for gone in (0..24).filter(|model| !asked.iter().any(|models| models.contains(model))) {
        bed.service.unload(&name(gone)).await.unwrap();
    }
    until("one pool has them all", || bed.pools().iter().map(|pool| pool.1).eq([6])).await;
    let mut sent = 0;
    for load in loads {
        sent += load.end().await;
    }
    bed.check_books(sent);
    assert!(history.moves() >= 4, "{} moved", history.moves());
    plans.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_gpus_follow_a_load_that_shifts_and_no_request_fails() {
    // 49 models of 100 MB on GPUs of 1.5 GB: four pools at least.
    let bed = Bed::new(49, 300, 1_500).await;
    let planning = bed.planning(Duration::from_millis(600));
    let history = planning.history();
    let plans = tokio::spawn(planning.keep_up());
    until("idle executors go", || bed.executors() <= 10).await;
    // One of them comes and goes all the time.
    let (stop, service) = (Arc::new(AtomicBool::new(false)), bed.service.clone());
    let stopped = stop.clone();
    let restless = tokio::spawn(async move {
        while !stopped.load(Relaxed) {
            service.unload(&name(48)).await.unwrap();
            service.load(&name(48), LoadOverride::default()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let mut sent = 0;
    for (models, askers) in [(0..24, 60), (24..48, 120), (0..48, 20)] {
        let load = Load::start(&bed.service, models, askers);
        let before = history.plans();
        until("executors come", || bed.executors() >= askers / 4).await;
        until("plans go on", || history.plans() >= before + 3).await;
        sent += load.end().await;
    }
    until("idle executors go again", || bed.executors() <= 10).await;
    stop.store(true, Relaxed);
    restless.await.unwrap();
    bed.check_books(sent);
    // The repository of a running server changes too.
    bed.service.unload(&name(0)).await.unwrap();
    until("the plan has other models", || {
        history.last().is_some_and(|last| last.pools.iter().map(|pool| pool.2).sum::<usize>() == 48)
    })
    .await;
    plans.abort();
}
