//! Devices whose batches end when the test says so, or break; and a model on them.

use std::collections::BTreeMap;
use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use fermata_core::Profile;
use fermata_engine::{
    DataType, Ended, Inputs, Outputs, Running, Session, Signature, Tensor, TensorSpec,
};
use fermata_protocol::proto;
use tokio::task::JoinHandle as Asked;

use super::super::*;
use crate::inference::{Answer, Call, InferError};
use crate::kinds::{Kinds, Told};
use crate::metrics::ModelMetrics;
use crate::profiler::online::{Alone, Subject};
use crate::profiler::{Known, Planned, Watch};
use crate::served::Served;

/// A request with this in it is the end of whatever runs it.
pub(super) const POISON: u8 = 255;

/// A batch that a device was given. It is lost where this is dropped.
pub(super) struct Given {
    pub(super) origin: usize,
    batch: Vec<Inputs>,
    end: Sender<Result<Ended, EngineError>>,
}

impl Given {
    /// What tells the requests apart.
    pub(super) fn values(&self) -> Vec<u8> {
        self.batch.iter().map(|inputs| inputs[0].data[0]).collect()
    }

    /// It has run: what went in comes out.
    pub(super) fn end(self) {
        let _ = self.end.send(Ok(Ended { outputs: self.batch, took: Span::from_ms(5.0) }));
    }
}

/// Batches of a device under way.
pub(super) struct Underway(pub(super) Receiver<Result<Ended, EngineError>>);

impl Running for Underway {
    fn wait(self: Box<Self>) -> Result<Ended, EngineError> {
        self.0.recv().unwrap_or_else(|_| Err(EngineError::Lost("the device is gone".to_owned())))
    }
}

/// Takes batches ahead.
struct Device {
    origin: usize,
    given: Sender<Given>,
}

impl Session for Device {
    fn run(&mut self, _batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        unreachable!("batches are begun")
    }

    fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
        let (end, ended) = crossbeam_channel::bounded(1);
        let given = Given { origin: self.origin, batch: batch.to_vec(), end };
        self.given.send(given).expect("the test awaits it");
        Some(Ok(Box::new(Underway(ended))))
    }
}

/// What a test has of the devices.
pub(super) struct World {
    pub(super) pool: Arc<Pool>,
    given: Receiver<Given>,
    pub(super) make: Arc<MakeSession>,
    /// Origins of executors that broke.
    pub(super) broken: Receiver<usize>,
}

impl World {
    /// Room for four executors. Each can be given its next batch long before the one it runs is done.
    pub(super) fn new(executors: usize) -> Self {
        let (told, broken) = crossbeam_channel::unbounded();
        let on_lost: Arc<OnLost> = Arc::new(move |origin| told.send(origin).unwrap());
        Self::with(executors, on_lost, broken)
    }

    /// The same, where an executor of the next origin comes for each that breaks.
    pub(super) fn with_successors(executors: usize) -> Self {
        let pool: Arc<OnceLock<Weak<Pool>>> = Arc::default();
        let (told, broken) = crossbeam_channel::unbounded();
        let on_lost: Arc<OnLost> = Arc::new({
            let pool = pool.clone();
            move |origin| {
                let pool = pool.get().and_then(Weak::upgrade).unwrap();
                pool.join(origin + 1, CLASS).unwrap();
                told.send(origin).unwrap();
            }
        });
        let world = Self::with(executors, on_lost, broken);
        pool.set(Arc::downgrade(&world.pool)).unwrap();
        world
    }

    fn with(executors: usize, on_lost: Arc<OnLost>, broken: Receiver<usize>) -> Self {
        let config = PoolConfig {
            executors,
            executors_max: 4,
            policy: Policy::Rules(Rules::EAGER),
            network: Network { ctrl: Span::from_ms(100.0), ..Network::default() },
            on_lost: Some(on_lost),
            ..super::config(0)
        };
        let pool = Pool::start(config, Clock::start()).unwrap();
        let (sender, given) = crossbeam_channel::unbounded();
        let make: Arc<MakeSession> =
            Arc::new(move |origin| Ok(Box::new(Device { origin, given: sender.clone() }) as _));
        Self { pool, given, make, broken }
    }

    /// A model of `l(b) = b + 4` ms.
    pub(super) fn serve(&self) -> Arc<Served> {
        serve(&self.pool, self.make.clone(), 60_000.0)
    }

    /// The next batch that a device is given.
    pub(super) fn next(&self) -> Given {
        self.given.recv_timeout(PATIENCE).expect("a batch is given")
    }

    /// The origin of the next executor that breaks.
    pub(super) fn next_broken(&self) -> usize {
        self.broken.recv_timeout(PATIENCE).expect("an executor breaks")
    }

    /// From now on all batches run at once, but for those with poison.
    pub(super) fn let_run(&self) {
        let given = self.given.clone();
        std::thread::spawn(move || {
            let healthy = |given: &Given| !given.values().contains(&POISON);
            given.into_iter().filter(healthy).for_each(Given::end);
        });
    }
}

/// After so long a test has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn serve(pool: &Arc<Pool>, make: Arc<MakeSession>, slo_ms: f64) -> Arc<Served> {
    let ms = Span::from_ms;
    let (slo, profile) = (ms(slo_ms), Profile::linear(ms(1.0), ms(4.0), ms(20.0)).unwrap());
    let tensor = |name: &str| TensorSpec {
        name: name.to_owned(),
        datatype: DataType::Uint8,
        shape: vec![1],
    };
    let (inputs, outputs) = (vec![tensor("x")], vec![tensor("y")]);
    let signature = Signature { max_batch: 16, inputs, outputs, length: None };
    let Known { ledger, .. } = Known::of(profile.clone(), None);
    let spec = Arc::new(ModelSpec::uniform(slo, profile));
    let place = pool.add("m", spec, make.clone(), Profiles::Measured(Planned::Tail)).unwrap();
    let alone = Alone { make, watch: Watch::Wall, ledger };
    let subject = Subject::new("m", Kinds::new(Told::Alike), None, alone, None);
    Arc::new(Served::new(
        "m".to_owned(),
        "1".to_owned(),
        signature,
        Duration::from_nanos(slo.0),
        proto::ModelConfig::default(),
        BTreeMap::new(),
        0,
        Arc::new(ModelMetrics::new(slo, 16)),
        place,
        Arc::new(subject),
    ))
}

/// A request like no other of a test.
pub(super) fn ask(served: &Arc<Served>, value: u8) -> Asked<Result<Answer, InferError>> {
    let (datatype, shape) = (DataType::Uint8, vec![1, 1]);
    let inputs = vec![Tensor { datatype, shape, data: Bytes::from(vec![value]) }];
    let (arrival, rows) = (Instant::now(), 1);
    let call = Call { inputs, rows, arrival, timeout: None, patience: None, application: None };
    let served = served.clone();
    tokio::spawn(async move { served.infer(call).await })
}

/// A request is answered with what it brought.
pub(super) async fn assert_answered(asked: Asked<Result<Answer, InferError>>, value: u8) {
    let answer = asked.await.unwrap().unwrap();
    assert_eq!(answer.outputs[0].data, [value].as_slice());
}
