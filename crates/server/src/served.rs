//! A version of a model that is being served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fermata_core::Span;
use fermata_dispatch::DropReason;
use fermata_engine::{Outputs, Signature, Tensor};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout_at;

use crate::inference::{Answer, Call, InferError, Shed};
use crate::metrics::{ModelMetrics, Outcome};
use crate::pool::{Finished, Guard, Job, Place, Pool, Refused, span};
use crate::proto;

/// A version of a model that is being served. Whoever holds it can finish what it has begun, though the
/// model be reloaded or unloaded meanwhile.
#[derive(Debug)]
pub struct Served {
    /// The model's name.
    pub name: String,
    /// Its version, a number.
    pub version: String,
    /// What goes in and what comes out.
    pub signature: Signature,
    /// Its latency objective.
    pub slo: Duration,
    /// Its configuration, completed from the model's file.
    pub config: proto::ModelConfig,
    /// The names of classes by output, for those that have a label file.
    pub labels: BTreeMap<String, Vec<String>>,
    pub(crate) metrics: Arc<ModelMetrics>,
    pub(crate) place: Place,
    /// Closed when the last request has left.
    gone: watch::Sender<()>,
}

/// However late batches are, no more than this part of the time that a request has is kept in reserve.
const MARGIN_PART: u64 = 8;

/// A request, or one row of one, on its way.
struct Pending<'a> {
    guard: Guard<'a>,
    reply: oneshot::Receiver<Result<Finished, Refused>>,
}

impl Served {
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one thing, named at its only maker"
    )]
    pub(crate) fn new(
        name: String,
        version: String,
        signature: Signature,
        slo: Duration,
        config: proto::ModelConfig,
        labels: BTreeMap<String, Vec<String>>,
        metrics: Arc<ModelMetrics>,
        place: Place,
    ) -> Self {
        let gone = watch::Sender::new(());
        Self { name, version, signature, slo, config, labels, metrics, place, gone }
    }

    /// Ends when the last who held this has let go.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + use<> {
        let mut held = self.gone.subscribe();
        async move { while held.changed().await.is_ok() {} }
    }

    /// Runs one request. Dropping the future cancels it.
    pub async fn infer(self: &Arc<Self>, call: Call) -> Result<Answer, InferError> {
        self.metrics.arrived();
        let mut count = Count { served: self, arrival: call.arrival, queued: None, outcome: None };
        let result = self.run(call, &mut count).await;
        count.outcome = Some(match &result {
            Ok(_) => Outcome::InTime,
            Err(InferError::Shed { reason, .. }) => Outcome::Shed(*reason),
            Err(InferError::Missed) => Outcome::Late,
            Err(InferError::Cancelled) => Outcome::Cancelled,
            Err(_) => Outcome::Failed,
        });
        result
    }

    /// The pool in which it runs.
    pub fn pool(&self) -> &Arc<Pool> {
        self.place.pool()
    }

    /// What is counted of it.
    pub fn metrics(&self) -> &ModelMetrics {
        &self.metrics
    }

    async fn run(
        self: &Arc<Self>,
        call: Call,
        count: &mut Count<'_>,
    ) -> Result<Answer, InferError> {
        let Call { mut inputs, rows, arrival, timeout, patience } = call;
        let wait = timeout.unwrap_or(self.slo).min(patience.unwrap_or(Duration::MAX));
        let Some(due) = arrival.checked_add(wait) else {
            return Err(InferError::Invalid("the timeout is too long".to_owned()));
        };
        let pool = self.place.pool();
        let margin = pool.margin().min(Span(span(wait).0 / MARGIN_PART));
        let deadline = pool.clock().time(due) - margin;
        let submit = |inputs: Vec<Tensor>| {
            let (reply, receiver) = oneshot::channel();
            let served = self.clone();
            let guard =
                self.place.submit(|id| Job { id, deadline, arrival, inputs, served, reply });
            Pending { guard, reply: receiver }
        };
        // The timer of the runtime is too coarse to tell late from in time: it only ends a wait for an
        // executor that hangs.
        let late = due.into();
        let outputs = if rows == 1 {
            let part = submit(std::mem::take(&mut inputs));
            timeout_at(late, part.finish(self, count)).await.map_err(|_| InferError::Missed)??
        } else {
            let parts: Vec<Pending<'_>> = split(&inputs, rows).into_iter().map(submit).collect();
            let mut finished = Vec::with_capacity(rows);
            for part in parts {
                let outputs = timeout_at(late, part.finish(self, count)).await;
                finished.push(outputs.map_err(|_| InferError::Missed)??);
            }
            join(finished).map_err(InferError::Internal)?
        };
        if arrival.elapsed() > wait {
            return Err(InferError::Missed);
        }
        Ok(Answer { outputs })
    }

    fn refuse(&self, refused: Refused) -> InferError {
        match refused {
            Refused::Dropped(DropReason::Cancelled) => InferError::Cancelled,
            Refused::Dropped(DropReason::Late) => {
                InferError::Shed { reason: Shed::Late, retry_after: self.slo }
            }
            Refused::Dropped(DropReason::Overload) => {
                InferError::Shed { reason: Shed::Overload, retry_after: self.slo }
            }
            Refused::Dropped(DropReason::NotLoaded) => {
                InferError::Unavailable(format!("model '{}' was unloaded", self.name))
            }
            Refused::Failed(reason) => InferError::Internal(reason),
        }
    }
}

impl Pending<'_> {
    async fn finish(
        mut self,
        served: &Served,
        count: &mut Count<'_>,
    ) -> Result<Outputs, InferError> {
        let reply = (&mut self.reply).await;
        self.guard.left();
        match reply {
            Ok(Ok(finished)) => {
                count.queued =
                    Some(count.queued.map_or(finished.queued, |q| q.max(finished.queued)));
                Ok(finished.outputs)
            }
            Ok(Err(refused)) => Err(served.refuse(refused)),
            Err(_) => Err(InferError::Unavailable("the server is stopping".to_owned())),
        }
    }
}

/// Counts a request once, however it leaves: a future that is dropped was cancelled.
struct Count<'a> {
    served: &'a Served,
    arrival: std::time::Instant,
    queued: Option<Span>,
    outcome: Option<Outcome>,
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or(Outcome::Cancelled);
        let latency = span(self.arrival.elapsed());
        self.served.metrics.left(outcome, latency, self.queued.unwrap_or_default());
    }
}

/// One item for each row.
fn split(inputs: &[Tensor], rows: usize) -> Vec<Vec<Tensor>> {
    let mut items: Vec<Vec<Tensor>> = (0..rows).map(|_| Vec::with_capacity(inputs.len())).collect();
    for input in inputs {
        for (item, row) in items.iter_mut().zip(input.rows(rows)) {
            item.push(row);
        }
    }
    items
}

/// The outputs of all rows, one after the other.
fn join(items: Vec<Outputs>) -> Result<Outputs, String> {
    let mut columns: Vec<Vec<Tensor>> = Vec::new();
    for item in items {
        columns.resize_with(item.len(), Vec::new);
        for (column, tensor) in columns.iter_mut().zip(item) {
            column.push(tensor);
        }
    }
    columns.iter().map(|parts| Tensor::concat(parts)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use fermata_core::Profile;
    use fermata_dispatch::{ModelSpec, Policy};
    use fermata_engine::{DataType, Emulated, Model, TensorSpec};

    use super::*;
    use crate::pool::{Clock, PoolConfig};

    /// A model of `l(b) = b + 4` ms on so many executors.
    fn served(executors: usize, slo_ms: f64) -> Arc<Served> {
        let spec = |name: &str| TensorSpec {
            name: name.to_owned(),
            datatype: DataType::Fp32,
            shape: vec![2],
        };
        let signature =
            Signature { max_batch: 16, inputs: vec![spec("x")], outputs: vec![spec("y")] };
        let slo = Span::from_ms(slo_ms);
        let profile = Profile::linear(Span::from_ms(1.0), Span::from_ms(4.0), slo).unwrap();
        let config = PoolConfig {
            name: "test".to_owned(),
            executors,
            policy: Policy::FERMATA,
            margin: Span::ZERO,
            recorder: None,
        };
        let pool = Pool::start(config, Clock::start()).unwrap();
        let model = Emulated::new(signature.clone(), profile.clone());
        let sessions = (0..executors).map(|_| model.session(&signature).unwrap()).collect();
        let place = pool.add("echo", ModelSpec::uniform(slo, profile), sessions, None);
        Arc::new(Served::new(
            "echo".to_owned(),
            "1".to_owned(),
            signature,
            Duration::from_nanos(slo.0),
            proto::ModelConfig::default(),
            BTreeMap::new(),
            Arc::new(ModelMetrics::new(slo, 16)),
            place.unwrap(),
        ))
    }

    fn call(rows: u8) -> Call {
        let data: Vec<u8> = (0..rows).flat_map(|row| [row; 8]).collect();
        let (datatype, shape) = (DataType::Fp32, vec![i64::from(rows), 2]);
        let inputs = vec![Tensor { datatype, shape, data: Bytes::from(data) }];
        let rows = usize::from(rows);
        Call { inputs, rows, arrival: Instant::now(), timeout: None, patience: None }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rows_of_one_request_come_back_together_and_in_order() {
        let served = served(2, 500.0);
        let call = call(5);
        let sent = call.inputs.clone();
        assert_eq!(served.infer(call).await.unwrap().outputs, sent);
        assert_eq!(served.metrics().rows(), 5);
        assert_eq!(served.metrics().outcome(Outcome::InTime), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_request_of_an_overload_leaves_once() {
        let served = served(1, 60.0);
        let calls: Vec<_> = (0..500)
            .map(|_| {
                let served = served.clone();
                tokio::spawn(async move { served.infer(call(1)).await })
            })
            .collect();
        let (mut answered, mut shed) = (0, 0);
        for call in calls {
            match call.await.unwrap() {
                Ok(_) => answered += 1,
                Err(InferError::Shed { .. } | InferError::Missed) => shed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(answered + shed, 500);
        assert_eq!(served.metrics().pending(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_future_that_is_dropped_is_cancelled_and_the_model_goes_when_all_have_left() {
        let served = served(1, 500.0);
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let served = served.clone();
                tokio::spawn(async move { served.infer(call(1)).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(2)).await;
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
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

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_deadline_shorter_than_one_execution_is_refused_at_once() {
        let served = served(1, 500.0);
        let began = Instant::now();
        let hurried = Call { timeout: Some(Duration::from_millis(4)), ..call(1) };
        let error = served.infer(hurried).await.unwrap_err();
        assert!(matches!(error, InferError::Shed { reason: Shed::Late, .. }), "{error}");
        assert!(began.elapsed() < Duration::from_millis(400));
        let patient = Call { patience: Some(Duration::from_millis(4)), ..call(1) };
        assert!(served.infer(patient).await.is_err(), "never later than the client waits");
    }
}
