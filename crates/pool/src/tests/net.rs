//! A model of a test, and the owners of its requests.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use fermata_core::{KindId, Profile};
use fermata_dispatch::{DropReason, ModelSpec};
use fermata_engine::{DataType, Inputs, Outputs, Tensor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle as Asked;

use super::super::*;

/// A model, and what became of its requests.
pub(super) struct Net {
    pub(super) place: Place,
    slo: Duration,
    pub(super) counts: Counts,
}

/// What became of the requests of a model.
#[derive(Default)]
pub(super) struct Counts {
    came: AtomicUsize,
    pub(super) answered: AtomicUsize,
    pub(super) failed: AtomicUsize,
    left: AtomicUsize,
    pub(super) rows: AtomicUsize,
    /// How long batches ran, together.
    pub(super) took: Mutex<Span>,
}

impl Counts {
    /// Requests that came and have not left.
    pub(super) fn pending(&self) -> usize {
        self.came.load(Relaxed) - self.left.load(Relaxed)
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The pool refused it.
    Refused(Refused),
    /// It took too long.
    Missed,
}

/// A request whose owner is told what becomes of it.
struct Request {
    net: Arc<Net>,
    inputs: Mutex<Inputs>,
    reply: Mutex<Option<oneshot::Sender<Result<Finished, Refused>>>>,
}

impl Owner for Request {
    fn take_inputs(&self) -> Inputs {
        std::mem::take(&mut self.inputs.lock().unwrap())
    }

    fn give_back(&self, inputs: Inputs) {
        *self.inputs.lock().unwrap() = inputs;
    }

    fn is_awaited(&self) -> bool {
        !self.reply.lock().unwrap().as_ref().expect("it has not left").is_closed()
    }

    fn leave(&self, result: Result<Finished, Refused>) {
        let reply = self.reply.lock().unwrap().take().expect("it leaves once");
        let _ = reply.send(result);
    }

    fn batch_ran(&self, size: usize, took: Span, _planned: Span) {
        self.net.counts.rows.fetch_add(size, Relaxed);
        *self.net.counts.took.lock().unwrap() += took;
    }

    fn batch_failed(&self, _size: usize, _reason: &str) {}
}

/// Counts a request that leaves, or whose client goes away.
struct Leaving<'a>(&'a Counts);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Relaxed);
    }
}

impl Net {
    async fn infer(self: &Arc<Self>, inputs: Inputs) -> Result<Outputs, Unanswered> {
        self.counts.came.fetch_add(1, Relaxed);
        let _leaving = Leaving(&self.counts);
        let (reply, result) = oneshot::channel();
        let (inputs, reply) = (Mutex::new(inputs), Mutex::new(Some(reply)));
        let owner = Arc::new(Request { net: self.clone(), inputs, reply });
        let pool = self.place.pool();
        let slo = Span(self.slo.as_nanos() as u64);
        let deadline = pool.runtime().now() + (slo - pool.margin().min(Span(slo.0 / 8)));
        let mut guard = self.place.submit(deadline, KindId::default(), owner);
        let result = tokio::time::timeout(self.slo, result).await;
        let result = result.map_err(|_| Unanswered::Missed)?;
        guard.left();
        let result = result.expect("an owner is always told");
        self.count(&result);
        result.map(|finished| finished.outputs).map_err(Unanswered::Refused)
    }

    fn count(&self, result: &Result<Finished, Refused>) {
        match result {
            Ok(_) => self.counts.answered.fetch_add(1, Relaxed),
            Err(Refused::Failed(_)) => self.counts.failed.fetch_add(1, Relaxed),
            Err(_) => 0,
        };
    }
}

/// A model of `l(b) = b + 4` ms.
pub(super) fn serve(pool: &Arc<Pool>, make: Arc<MakeSession>, slo_ms: f64) -> Arc<Net> {
    let ms = Span::from_ms;
    let (slo, profile) = (ms(slo_ms), Profile::linear(ms(1.0), ms(4.0), ms(20.0)).unwrap());
    let spec = Arc::new(ModelSpec::uniform(slo, profile));
    let place = pool.add("m", spec, make, Profiles::True).unwrap();
    Arc::new(Net { place, slo: Duration::from_nanos(slo.0), counts: Counts::default() })
}

/// A request like no other of a test.
pub(super) fn ask(net: &Arc<Net>, value: u8) -> Asked<Result<Outputs, Unanswered>> {
    let (datatype, shape) = (DataType::Uint8, vec![1, 1]);
    let inputs = vec![Tensor { datatype, shape, data: Bytes::from(vec![value]) }];
    let net = net.clone();
    tokio::spawn(async move { net.infer(inputs).await })
}

/// A request is answered with what it brought.
pub(super) async fn assert_answered(asked: Asked<Result<Outputs, Unanswered>>, value: u8) {
    let outputs = asked.await.unwrap().unwrap();
    assert_eq!(outputs[0].data, [value].as_slice());
}

/// The reason of a request that failed.
pub(super) fn failure(result: Result<Outputs, Unanswered>) -> String {
    match result {
        Err(Unanswered::Refused(Refused::Failed(reason))) => reason,
        other => panic!("{other:?}"),
    }
}

/// Whether there was no time for a request.
pub(super) fn had_no_time(unanswered: &Unanswered) -> bool {
    matches!(
        unanswered,
        Unanswered::Missed | Unanswered::Refused(Refused::Dropped(DropReason::Overload))
    )
}
