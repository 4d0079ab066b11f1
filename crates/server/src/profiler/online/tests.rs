//! Requests that are run again, in a pool with models whose run time depends on the input.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fermata_core::{KindId, Profile};
use fermata_dispatch::{ModelSpec, Network, Policy};
use fermata_engine::{
    DataType, EngineError, Inputs, Outputs, Session, Signature, Tensor, TensorSpec,
};
use fermata_protocol::proto;

use super::*;
use crate::inference::Call;
use crate::kinds::Kinds;
use crate::metrics::ModelMetrics;
use crate::pool::{Clock, MakeSession, Pool, PoolConfig, Profiles};
use crate::profiler::{Known, Watch};
use crate::repository::RunTime;
use crate::served::Served;

/// A device that sleeps for as many milliseconds as the first byte of a request's input says; 255 fails.
struct Sleeper;

impl Session for Sleeper {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        let longest = batch.iter().map(|inputs| inputs[0].data[0]).max().unwrap_or(0);
        if longest == 255 {
            return Err(EngineError::Run("a bad request".to_owned()));
        }
        thread::sleep(Duration::from_millis(longest.into()));
        Ok(batch.to_vec())
    }
}

const FAST: Pace = Pace { between_runs: Duration::from_millis(1), between_news: Duration::ZERO };

struct World {
    pool: Arc<Pool>,
    online: Online,
}

impl World {
    fn new(scheduler_threads: usize) -> Self {
        let config = PoolConfig {
            name: "test".to_owned(),
            // Many, so that a hundredth of their time is a lot.
            executors: 64,
            executors_max: 64,
            policy: Policy::FERMATA,
            margin: Span::ZERO,
            network: Network::default(),
            on_lost: None,
            recorder: None,
            scheduler_threads,
        };
        let pool = Pool::start(config, Clock::start()).unwrap();
        Self { pool, online: Online::start_paced(FAST).unwrap() }
    }

    fn serve(&self, run_time: Option<RunTime>, make: Arc<MakeSession>) -> Arc<Served> {
        let spec = |name: &str| TensorSpec {
            name: name.to_owned(),
            datatype: DataType::Uint8,
            shape: vec![1],
        };
        let signature = Signature {
            max_batch: 4,
            inputs: vec![spec("x")],
            outputs: vec![spec("y")],
            length: None,
        };
        let slo = Span::from_secs(5.0);
        let profile = Profile::from_table([3.0, 4.0, 5.0, 6.0].map(Span::from_ms)).unwrap();
        let known = Known::of(profile, run_time);
        let spec = Arc::new(ModelSpec::uniform(slo, known.profile));
        let place = self.pool.add("m", spec, sleeper(), Profiles::True);
        let alone = Alone { make, watch: Watch::Wall, ledger: known.ledger };
        let samples = Some(self.online.samples());
        let subject = Subject::new("m", Kinds::new(known.told), run_time, alone, samples);
        Arc::new(Served::new(
            "m".to_owned(),
            "1".to_owned(),
            signature,
            Duration::from_nanos(slo.0),
            proto::ModelConfig::default(),
            BTreeMap::new(),
            0,
            Arc::new(ModelMetrics::new(slo, 4)),
            place.unwrap(),
            Arc::new(subject),
        ))
    }
}

fn sleeper() -> Arc<MakeSession> {
    Arc::new(|_| Ok(Box::new(Sleeper) as _))
}

async fn ask(served: &Arc<Served>, application: Option<&str>, ms: u8, rows: usize) -> bool {
    let tags = served.subject().kinds().tags();
    let application = application.map(|name| tags.find("m", name).unwrap());
    let (datatype, shape) = (DataType::Uint8, vec![rows as i64, 1]);
    let inputs = vec![Tensor { datatype, shape, data: Bytes::from(vec![ms; rows]) }];
    let (arrival, timeout, patience) = (Instant::now(), None, None);
    served.infer(Call { inputs, rows, arrival, timeout, patience, application }).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_are_learned_and_dispatch_is_told() {
    for threads in [0, 2] {
        let world = World::new(threads);
        let served = world.serve(None, sleeper());
        let is_learned = || {
            let bench = served.subject().bench();
            let mean = |kind| bench.ledger.published().map(|spread| spread.mean(KindId(kind)));
            mean(1).zip(mean(2)).is_some_and(|(short, long)| 2.0 * short < long)
        };
        while !is_learned() {
            assert!(ask(&served, Some("short"), 1, 1).await);
            assert!(ask(&served, Some("long"), 8, 2).await);
            assert!(ask(&served, Some("long"), 8, 1).await);
        }
        assert!(served.subject().runs() >= 32);
        assert!(ask(&served, None, 2, 1).await, "it is served as before");
        world.online.stop();
        world.pool.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_models_that_may_differ_are_looked_at() {
    let world = World::new(0);
    let plain = world.serve(None, sleeper());
    let point = world.serve(Some(RunTime::Point), sleeper());
    let spread = world.serve(Some(RunTime::Spread), sleeper());
    while spread.subject().runs() < 3 {
        assert!(ask(&spread, None, 1, 1).await);
        assert!(ask(&plain, None, 1, 1).await);
        assert!(ask(&point, Some("a"), 1, 1).await);
    }
    assert_eq!((plain.subject().runs(), point.subject().runs()), (0, 0));
    let asked: Vec<_> = point.subject().kinds().tags().requests().map(|(name, _)| name).collect();
    assert_eq!(asked, ["a"], "applications are counted all the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_run_alone_is_given_up_and_a_bad_request_is_not() {
    let world = World::new(0);
    let broken = world.serve(
        Some(RunTime::Spread),
        Arc::new(|_| Err(EngineError::Run("no more memory".to_owned()))),
    );
    let served = world.serve(Some(RunTime::Spread), sleeper());
    assert!(!ask(&served, None, 255, 1).await);
    while served.subject().runs() < 3 {
        assert!(ask(&broken, None, 1, 1).await);
        assert!(ask(&served, None, 1, 1).await);
    }
    assert_eq!(broken.subject().runs(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_goes_is_not_kept_and_the_end_is_clean() {
    let world = World::new(0);
    let served = world.serve(Some(RunTime::Spread), sleeper());
    for _ in 0..20 {
        assert!(ask(&served, None, 1, 1).await);
    }
    let gone = served.gone();
    drop(served);
    gone.await;
    world.online.stop();
    world.online.stop();
}

#[test]
fn a_run_is_followed_by_a_pause_that_leaves_a_hundredth() {
    let pace = Pace { between_runs: PAUSE_MIN, between_news: NEWS_INTERVAL };
    assert_eq!(pace.pause(Duration::from_micros(5), 1), PAUSE_MIN);
    assert_eq!(pace.pause(Duration::from_millis(50), 1), Duration::from_secs(5));
    assert_eq!(pace.pause(Duration::from_millis(50), 5), Duration::from_secs(1));
    assert_eq!(pace.pause(Duration::from_millis(50), 0), Duration::from_secs(5));
}
