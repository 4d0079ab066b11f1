//! The life of requests, whoever decides about them.

use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use fermata_core::Profile;
use fermata_dispatch::{ModelSpec, Network, Policy};
use fermata_engine::{DataType, Emulated, Length, Model, TensorSpec};
use fermata_pool::{MakeSession, PoolConfig, Profiles};
use fermata_scheduler::RealTime;
use tokio::task::JoinHandle;

use super::*;
use crate::kinds::{KindRule, Kinds, Lengths};
use crate::profiler::online::Alone;
use crate::profiler::{Known, Watch};

/// Whoever brings a message decides; one thread has all models; more threads than most tests have
/// models.
const SCHEDULER_THREADS: [usize; 3] = [0, 1, 3];

fn pool(scheduler_threads: usize, executors: usize) -> Arc<Pool> {
    let config = PoolConfig {
        name: "test".to_owned(),
        executors,
        executors_max: executors,
        policy: Policy::FERMATA,
        margin: Span::ZERO,
        network: Network::default(),
        on_lost: None,
        recorder: None,
        scheduler_threads,
    };
    Pool::start(config, Arc::new(RealTime::start())).unwrap()
}

/// A model of `l(b) = b + 4` ms.
fn serve(pool: &Arc<Pool>, slo_ms: f64) -> Arc<Served> {
    serve_by(pool, slo_ms, KindRule::Alike)
}

/// The same, whose requests are told apart.
fn serve_by(pool: &Arc<Pool>, slo_ms: f64, rule: KindRule) -> Arc<Served> {
    let spec =
        |name: &str| TensorSpec { name: name.to_owned(), datatype: DataType::Fp32, shape: vec![2] };
    let mut signature = Signature {
        max_batch: 16,
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        length: None,
    };
    if let KindRule::ByLength(_) = rule {
        signature.inputs[0].shape = vec![-1];
        let (inputs, outputs) = (vec![Some(0)], vec![None]);
        signature.length = Some(Length { inputs, outputs, longest: usize::MAX, padding: None });
    }
    let slo = Span::from_ms(slo_ms);
    let profile = Profile::linear(Span::from_ms(1.0), Span::from_ms(4.0), slo).unwrap();
    let model = Emulated::new(signature.clone(), profile.clone());
    let (spec, narrow) = (Arc::new(ModelSpec::uniform(slo, profile.clone())), signature.clone());
    let make: Arc<MakeSession> = Arc::new(move |_| model.session(&narrow));
    let place = pool.add("echo", spec, make.clone(), Profiles::True);
    let Known { ledger, .. } = Known::of(profile, None);
    let alone = Alone { make, watch: Watch::Wall, ledger };
    let online = OnlineProfile::new("echo", Kinds::new(rule), None, alone, None);
    Arc::new(Served::new(
        "echo".to_owned(),
        "1".to_owned(),
        signature,
        Duration::from_nanos(slo.0),
        proto::ModelConfig::default(),
        BTreeMap::new(),
        0,
        Arc::new(ModelMetrics::new(slo, 16)),
        place.unwrap(),
        Arc::new(online),
    ))
}

fn call(rows: u8) -> Call {
    let data: Vec<u8> = (0..rows).flat_map(|row| [row; 8]).collect();
    rows_of(rows.into(), data)
}

/// A request like no other.
fn numbered(number: u64) -> Call {
    rows_of(1, number.to_le_bytes().to_vec())
}

fn rows_of(rows: usize, data: Vec<u8>) -> Call {
    let (datatype, shape) = (DataType::Fp32, vec![rows as i64, 2]);
    let inputs = vec![Tensor { datatype, shape, data: Bytes::from(data) }];
    Call { inputs, rows, arrival: Instant::now(), timeout: None, patience: None, application: None }
}

fn ask(served: &Arc<Served>, call: Call) -> JoinHandle<Result<Answer, InferError>> {
    let served = served.clone();
    tokio::spawn(async move { served.infer(call).await })
}

/// Answered, or refused because there was no time; a slow machine may have less of it.
fn is_answered(result: &Result<Answer, InferError>) -> bool {
    match result {
        Ok(_) => true,
        Err(InferError::Shed { .. } | InferError::Missed) => false,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_one_request_come_back_together_and_in_order() {
    for threads in SCHEDULER_THREADS {
        let served = serve(&pool(threads, 2), 500.0);
        let call = call(5);
        let sent = call.inputs.clone();
        assert_eq!(served.infer(call).await.unwrap().outputs, sent);
        assert_eq!(served.metrics().rows(), 5);
        assert_eq!(served.metrics().outcome(Outcome::InTime), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_together_run_together() {
    for threads in SCHEDULER_THREADS {
        let served = serve(&pool(threads, 1), 500.0);
        served.infer(call(40)).await.unwrap();
        assert_eq!(served.metrics().rows(), 40);
        let batches: u64 = served.metrics().batches().iter().map(|batch| batch.count).sum();
        assert!(batches < 40, "{batches} with {threads} threads");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_of_an_overload_leaves_once() {
    for threads in SCHEDULER_THREADS {
        let served = serve(&pool(threads, 1), 60.0);
        let calls: Vec<_> = (0..500).map(|_| ask(&served, call(1))).collect();
        let mut refused = 0;
        for call in calls {
            refused += u64::from(!is_answered(&call.await.unwrap()));
        }
        assert!(refused > 0, "500 requests take 500 ms");
        assert_eq!(served.metrics().outcome(Outcome::InTime) + refused, 500);
        assert_eq!(served.metrics().pending(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_requests_to_many_models_gets_its_own_answer() {
    for threads in SCHEDULER_THREADS {
        let pool = pool(threads, 3);
        let models: Vec<_> = (0..5).map(|_| serve(&pool, 2_000.0)).collect();
        let askers: Vec<_> = (0..20)
            .map(|asker| {
                let models = models.clone();
                tokio::spawn(async move {
                    for number in asker * 40..(asker + 1) * 40 {
                        let call = numbered(number);
                        let sent = call.inputs.clone();
                        let result = models[number as usize % models.len()].infer(call).await;
                        if is_answered(&result) {
                            assert_eq!(result.unwrap().outputs, sent);
                        }
                    }
                })
            })
            .collect();
        for asker in askers {
            asker.await.unwrap();
        }
        let (mut left, mut in_time) = (0, 0);
        for metrics in models.iter().map(|served| served.metrics()) {
            assert_eq!(metrics.pending(), 0);
            in_time += metrics.outcome(Outcome::InTime);
            left += Outcome::BAD.map(|outcome| metrics.outcome(outcome)).iter().sum::<u64>();
        }
        assert_eq!(left + in_time, 800);
        assert!(in_time > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_is_dropped_is_cancelled_and_the_model_goes_when_all_have_left() {
    for threads in SCHEDULER_THREADS {
        let served = serve(&pool(threads, 1), 500.0);
        let waiting: Vec<_> = (0..20).map(|_| ask(&served, call(1))).collect();
        tokio::time::sleep(Duration::from_millis(2)).await;
        waiting.iter().for_each(JoinHandle::abort);
        for call in waiting {
            let _ = call.await;
        }
        let metrics = served.metrics.clone();
        assert_eq!(metrics.pending(), 0);
        assert!(metrics.outcome(Outcome::Cancelled) >= 19);
        let (gone, pool) = (served.gone(), served.pool().clone());
        drop(served);
        gone.await;
        pool.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_come_and_go_while_others_are_busy() {
    for threads in SCHEDULER_THREADS {
        let pool = pool(threads, 2);
        let stays = serve(&pool, 1_000.0);
        let mut asked = Vec::new();
        for _ in 0..60 {
            // One that goes while its requests wait and run, under an id that others had before.
            let goes = serve(&pool, 1_000.0);
            asked.extend((0..4).map(|_| ask(&goes, call(1))));
            asked.push(ask(&stays, call(1)));
            let gone = goes.gone();
            drop(goes);
            if asked.len().is_multiple_of(3) {
                gone.await;
            }
        }
        for result in asked {
            is_answered(&result.await.unwrap());
        }
        assert_eq!(stays.metrics().pending(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_stopped_finishes_what_has_come() {
    for threads in SCHEDULER_THREADS {
        let pool = pool(threads, 1);
        let models: Vec<_> = (0..4).map(|_| serve(&pool, 1_000.0)).collect();
        let mut pending: Vec<Pin<Box<_>>> = models
            .iter()
            .flat_map(|served| (0..10).map(|_| Box::pin(served.infer(call(1)))))
            .collect();
        for request in &mut pending {
            // Each is on its way once it was asked for.
            std::future::poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_ready()))
                .await;
        }
        let stopped = tokio::task::spawn_blocking(move || pool.stop());
        for request in pending {
            is_answered(&request.await);
        }
        stopped.await.unwrap();
        let late = models[0].infer(call(1)).await.unwrap_err();
        assert!(matches!(late, InferError::Unavailable(_)), "{late}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_shorter_than_one_execution_is_refused_at_once() {
    for threads in SCHEDULER_THREADS {
        let served = serve(&pool(threads, 1), 500.0);
        let began = Instant::now();
        let hurried = Call { timeout: Some(Duration::from_millis(4)), ..call(1) };
        let error = served.infer(hurried).await.unwrap_err();
        assert!(matches!(error, InferError::Shed { reason: Shed::Late, .. }), "{error}");
        assert!(began.elapsed() < Duration::from_millis(400));
        let patient = Call { patience: Some(Duration::from_millis(4)), ..call(1) };
        assert!(served.infer(patient).await.is_err(), "never later than the client waits");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_too_long_is_refused_with_what_can_be_served() {
    let pool = pool(0, 1);
    let lengths = |limit| {
        let alone = [(1, 1.0), (10, 10.0), (20, 20.0)].map(|(at, ms)| (at, Span::from_ms(ms)));
        KindRule::ByLength(Lengths::new(alone.to_vec(), limit).unwrap())
    };
    let long = |length: usize| {
        let (datatype, shape) = (DataType::Fp32, vec![1, length as i64]);
        let inputs = vec![Tensor { datatype, shape, data: Bytes::from(vec![0; 4 * length]) }];
        Call { inputs, ..call(1) }
    };
    let served = serve_by(&pool, 500.0, lengths(None));
    assert!(served.infer(long(20)).await.is_ok());
    assert!(served.infer(long(100)).await.is_ok(), "longer than any, and in time");
    let error = served.infer(long(1000)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a request of length 1000 to model 'echo' takes about 1000.0 ms by itself and has 500.0 \
         ms: up to length 500 can be served"
    );
    assert_eq!(served.metrics().outcome(Outcome::Shed(Shed::Late)), 1);
    let limited = serve_by(&pool, 500.0, lengths(Some(20)));
    let error = limited.infer(long(21)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a request of length 21 is longer than model 'echo' takes: up to length 20 can be served"
    );
    assert_eq!(limited.metrics().pending(), 0);
}
