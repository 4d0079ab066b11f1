//! Pools whose executors come, go and break.

mod devices;
mod net;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use fermata_core::Profile;
use fermata_dispatch::ModelSpec;
use fermata_engine::{EngineError, Inputs, Outputs, Running, Session};
use fermata_scheduler::RealTime;

use self::devices::{PATIENCE, POISON, Underway, World};
use self::net::{ask, assert_answered, failure, had_no_time, serve};
use super::*;

fn real_time() -> Arc<dyn Runtime> {
    Arc::new(RealTime::start())
}

fn config(scheduler_threads: usize) -> PoolConfig {
    PoolConfig {
        name: "test".to_owned(),
        executors: 0,
        executors_max: 0,
        policy: Policy::FERMATA,
        margin: Span::ZERO,
        network: Network::default(),
        on_lost: None,
        recorder: None,
        scheduler_threads,
    }
}

fn add(pool: &Arc<Pool>) -> Result<Place, PlaceError> {
    let profile = Profile::from_table([Span::from_ms(1.0)]).unwrap();
    let spec = Arc::new(ModelSpec::uniform(Span::from_ms(9.0), profile));
    let make = Arc::new(|_| unreachable!("there is no executor"));
    pool.add("net", spec, make, Profiles::True)
}

#[test]
fn a_pool_that_was_stopped_takes_no_more_models() {
    for threads in [0, 1, 3] {
        let pool = Pool::start(config(threads), real_time()).unwrap();
        let early = add(&pool);
        assert!(early.is_ok());
        pool.stop();
        assert_eq!(add(&pool).unwrap_err().to_string(), "the server is stopping");
    }
}

#[test]
fn threads_refuse_one_model_more_than_they_have_room_for() {
    let pool = Pool::start(config(3), real_time()).unwrap();
    let mut places: Vec<_> = (0..threads::MODELS_MAX).map(|_| add(&pool).unwrap()).collect();
    assert!(add(&pool).unwrap_err().to_string().starts_with("too many models for"));
    places.pop();
    // Its id is free once its thread has forgotten it.
    while add(&pool).is_err() {
        std::thread::yield_now();
    }
    pool.stop();
}

#[test]
fn what_needs_one_dispatcher_is_not_decided_on_threads() {
    assert!(in_pieces(Policy::FERMATA, false, false).is_ok());
    assert!(in_pieces(Policy::FERMATA, true, false).unwrap_err().contains("--record"));
    assert!(in_pieces(Policy::FERMATA, false, true).unwrap_err().contains("planning"));
    assert!(in_pieces(Policy::Clockwork, false, false).is_err());
    let refused = Pool::start(PoolConfig { policy: Policy::Clockwork, ..config(1) }, real_time());
    assert!(refused.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_batch_is_begun_while_one_runs_and_they_are_answered_in_order() {
    let world = World::new(1);
    let net = world.serve();
    let one = ask(&net, 1);
    let first = world.next();
    let two = ask(&net, 2);
    let second = world.next();
    assert_eq!((first.values(), second.values()), (vec![1], vec![2]));
    let three = ask(&net, 3);
    // Though it has run, it is behind the other.
    second.end();
    assert_eq!(net.counts.rows.load(Relaxed), 0);
    first.end();
    assert_answered(one, 1).await;
    assert_answered(two, 2).await;
    world.next().end();
    assert_answered(three, 3).await;
    let took = *net.counts.took.lock().unwrap();
    assert_eq!(took, Span::from_ms(15.0), "as the device says");
    world.pool.stop();
    assert_eq!(world.pool.gauges().busy().next(), Some(Span::from_ms(15.0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_executor_had_when_it_broke_is_run_elsewhere_once() {
    let world = World::with_successors(1);
    let net = world.serve();
    let one = ask(&net, 1);
    let running = world.next();
    let two = ask(&net, 2);
    let begun = world.next();
    let three = ask(&net, 3);
    assert_eq!((running.origin, begun.origin), (0, 0));
    // That it has run is of no use: it is behind a batch that was lost.
    begun.end();
    drop(running);
    assert_eq!(world.next_broken(), 0);
    let mut again = Vec::new();
    while again.len() < 3 {
        let given = world.next();
        assert_eq!(given.origin, 1);
        again.extend(given.values());
        given.end();
    }
    again.sort_unstable();
    assert_eq!(again, [1, 2, 3]);
    for (asked, value) in [(one, 1), (two, 2), (three, 3)] {
        assert_answered(asked, value).await;
    }
    assert_eq!(world.pool.executors_list(), [(ExecutorId(0), 1, CLASS)]);
    assert_eq!(net.counts.answered.load(Relaxed), 3);
    assert_eq!(net.counts.rows.load(Relaxed), 3, "what was lost did not run");
    world.pool.stop();
}

/// Breaks when it is told to, in the midst of beginning a batch.
struct Brittle {
    given: Sender<usize>,
    go: Receiver<()>,
}

impl Session for Brittle {
    fn run(&mut self, _batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        unreachable!("batches are begun")
    }

    fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
        self.given.send(batch.len()).unwrap();
        let _ = self.go.recv();
        Some(Err(EngineError::Lost("the device is gone".to_owned())))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_to_an_executor_and_not_begun_when_it_broke_is_run_elsewhere() {
    let world = World::new(0);
    let (sender, given) = crossbeam_channel::unbounded();
    let (go, waits) = crossbeam_channel::bounded(0);
    let device = world.make.clone();
    let make: Arc<MakeSession> = Arc::new(move |origin| match origin {
        0 => Ok(Box::new(Brittle { given: sender.clone(), go: waits.clone() }) as _),
        _ => device(origin),
    });
    let net = serve(&world.pool, make, 60_000.0);
    world.pool.join(0, CLASS).unwrap();
    let one = ask(&net, 1);
    given.recv_timeout(PATIENCE).unwrap();
    let two = ask(&net, 2);
    // Dispatch gives it ahead within a few milliseconds. If it is later, the request is served all
    // the same.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(go);
    assert_eq!(world.next_broken(), 0);
    assert_eq!(world.pool.executors(), 0);
    assert_eq!(world.pool.join(1, CLASS).unwrap(), ExecutorId(0));
    world.let_run();
    assert_answered(one, 1).await;
    assert_answered(two, 2).await;
    world.pool.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_under_which_two_executors_broke_fails_and_breaks_no_third() {
    // With one executor it waits for a successor; with two it goes to the other at once.
    for executors in [1, 2] {
        let world = World::with_successors(executors);
        let net = world.serve();
        world.let_run();
        let poison = ask(&net, POISON);
        let reason = failure(poison.await.unwrap());
        assert_eq!(reason, "2 executors broke while they ran it");
        world.next_broken();
        world.next_broken();
        for value in 0..10 {
            assert_answered(ask(&net, value), value).await;
        }
        assert_eq!(world.pool.executors(), executors);
        assert_eq!(net.counts.failed.load(Relaxed), 1);
        world.pool.stop();
        assert!(world.broken.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_went_away_before_its_executor_broke_is_not_run_for() {
    let world = World::new(1);
    let net = world.serve();
    let gone = ask(&net, 1);
    let first = world.next();
    gone.abort();
    assert!(gone.await.is_err());
    drop(first);
    world.next_broken();
    world.pool.join(1, CLASS).unwrap();
    let two = ask(&net, 2);
    let next = world.next();
    assert_eq!(next.values(), [2]);
    next.end();
    assert_answered(two, 2).await;
    world.pool.stop();
}

/// Runs batches one by one, on this thread. The first of its kind breaks under the first.
struct Plain {
    breaks: bool,
}

impl Session for Plain {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        match self.breaks {
            true => Err(EngineError::Lost("the device is gone".to_owned())),
            false => Ok(batch.to_vec()),
        }
    }
}

fn plain() -> Arc<MakeSession> {
    Arc::new(|origin| Ok(Box::new(Plain { breaks: origin == 0 }) as _))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_that_takes_no_batches_ahead_may_break_as_well() {
    let world = World::with_successors(1);
    let net = serve(&world.pool, plain(), 60_000.0);
    for value in 0..5 {
        assert_answered(ask(&net, value), value).await;
    }
    assert_eq!(world.pool.executors_list(), [(ExecutorId(0), 1, CLASS)]);
    world.pool.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executors_of_new_classes_come_and_old_ones_go_while_serving_and_nothing_is_lost() {
    let world = World::new(2);
    let net = world.serve();
    world.let_run();
    let askers: Vec<_> = (0..8_u8)
        .map(|asker| {
            let net = net.clone();
            tokio::spawn(async move {
                for round in 0..60 {
                    let value = asker * 30 + round % 30;
                    assert_answered(ask(&net, value), value).await;
                }
            })
        })
        .collect();
    let base = net.place.spec().profiles[0].clone();
    for round in 0..20_usize {
        // The share that there is, and the one that it becomes.
        let (old, new) = (round % 3, (round + 1) % 3);
        let mut profiles = vec![None; 3];
        (profiles[old], profiles[new]) = (base.clone(), base.clone());
        let spec = ModelSpec::new(net.place.spec().slo, profiles);
        net.place.respec(Arc::new(spec.clone())).unwrap();
        let before = world.pool.executors_list();
        // An id is free a moment after the last batch of its executor.
        let mut came = 0;
        while came < 2 {
            match world.pool.join(round, ClassId(new as u16)) {
                Ok(_) => came += 1,
                Err(GrowError::Full { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
        for (executor, _, class) in before {
            assert_eq!(class, ClassId(old as u16));
            assert!(world.pool.leave(executor));
            assert!(!world.pool.leave(executor), "it leaves once");
        }
        let mut profiles = spec.profiles;
        profiles[old] = None;
        net.place.respec(Arc::new(ModelSpec::new(spec.slo, profiles))).unwrap();
        let there = world.pool.executors_list();
        assert!(there.iter().all(|&(_, origin, class)| (origin, class.index()) == (round, new)));
        assert_eq!(there.len(), 2);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for asker in askers {
        asker.await.unwrap();
    }
    assert_eq!(net.counts.answered.load(Relaxed), 480);
    assert_eq!(net.counts.pending(), 0);
    world.pool.stop();
}

/// Every tenth batch breaks its executor, at once or after it was begun.
fn brittle(world: &World) -> Arc<MakeSession> {
    struct Sometimes {
        batches: Arc<AtomicU64>,
        device: Box<dyn Session>,
    }

    impl Session for Sometimes {
        fn run(&mut self, _batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
            unreachable!("batches are begun")
        }

        fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
            let lost = || Err(EngineError::Lost("the device is gone".to_owned()));
            match self.batches.fetch_add(1, Relaxed) % 20 {
                9 => Some(lost()),
                19 => Some(Ok(Box::new(Underway(crossbeam_channel::bounded(0).1)))),
                _ => self.device.begin(batch),
            }
        }
    }

    let (batches, make) = (Arc::default(), world.make.clone());
    Arc::new(move |origin| {
        let (batches, device) = (Arc::clone(&batches), make(origin)?);
        Ok(Box::new(Sometimes { batches, device }) as _)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_leaves_once_while_executors_come_go_and_break() {
    let world = World::new(3);
    let net = serve(&world.pool, brittle(&world), 60_000.0);
    world.let_run();
    let askers: Vec<_> = (0..6_u8)
        .map(|asker| {
            let net = net.clone();
            tokio::spawn(async move {
                for round in 0..100 {
                    let value = asker * 40 + round % 40;
                    match ask(&net, value).await.unwrap() {
                        Ok(outputs) => assert_eq!(outputs[0].data, [value].as_slice()),
                        result => {
                            assert_eq!(failure(result), "2 executors broke while they ran it");
                        }
                    }
                }
            })
        })
        .collect();
    while askers.iter().any(|asker| !asker.is_finished()) {
        while world.pool.executors() < 3 && world.pool.join(9, CLASS).is_ok() {}
        // It may break at this very moment.
        world.pool.leave(world.pool.executors_list().first().map_or(ExecutorId(0), |&(id, ..)| id));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for asker in askers {
        asker.await.unwrap();
    }
    let counts = &net.counts;
    let left = counts.answered.load(Relaxed) + counts.failed.load(Relaxed);
    assert_eq!((left, counts.pending()), (600, 0));
    assert!(!world.broken.is_empty());
    world.pool.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_executors_requests_are_dropped_in_time_and_with_one_they_are_served_again() {
    for policy in [Policy::FERMATA, Policy::Rules(Rules::EAGER), Policy::Clockwork] {
        let config = PoolConfig { executors: 1, executors_max: 1, policy, ..config(0) };
        let pool = Pool::start(config, real_time()).unwrap();
        let net = serve(&pool, plain(), 50.0);
        // What the only executor had when it broke has nowhere to go.
        let asked: Vec<_> = (0..5).map(|value| ask(&net, value)).collect();
        for asked in asked {
            let error = asked.await.unwrap().unwrap_err();
            assert!(had_no_time(&error), "{error:?}");
        }
        while pool.executors() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.join(1, CLASS).unwrap(), ExecutorId(0));
        // A slow machine may need another try.
        while ask(&net, 7).await.unwrap().is_err() {}
        pool.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_threads_batches_of_a_broken_executor_fail_and_nobody_comes_or_goes() {
    let pool = Pool::start(PoolConfig { executors: 1, executors_max: 1, ..config(1) }, real_time());
    let pool = pool.unwrap();
    let net = serve(&pool, plain(), 60_000.0);
    assert_eq!(failure(ask(&net, 1).await.unwrap()), "the device is gone");
    assert!(matches!(pool.join(1, CLASS), Err(GrowError::Fixed)));
    assert!(!pool.leave(ExecutorId(0)));
    assert_eq!(pool.executors(), 1);
    let (slo, profile) = (net.place.spec().slo, net.place.spec().profiles[0].clone());
    let spec = ModelSpec::new(slo, vec![profile.clone(), profile]);
    let error = net.place.respec(Arc::new(spec)).unwrap_err();
    assert!(error.to_string().ends_with("one class of executors only"), "{error}");
    pool.stop();
    let network = Network { ctrl: Span(1), ..Network::default() };
    let refused = Pool::start(PoolConfig { network, ..config(1) }, real_time());
    assert_eq!(refused.unwrap_err().to_string(), AHEAD_IN_PIECES);
}
