//! A version of a model that is being served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fermata_core::Span;
use fermata_dispatch::DropReason;
use fermata_engine::{Outputs, Signature, Tensor};
use fermata_protocol::proto;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout_at;

use crate::inference::{Answer, Call, InferError, Shed};
use crate::metrics::{ModelMetrics, Outcome};
use crate::pool::{Finished, Guard, Job, Place, PlaceError, Pool, Refused, span};
use crate::profiler::online::{Sample, Subject};

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
    /// Bytes that it takes on every executor.
    pub memory: u64,
    pub(crate) metrics: Arc<ModelMetrics>,
    pub(crate) place: Place,
    /// What is known, and learned, of its requests. Shared with the same version in other pools.
    subject: Arc<Subject>,
    /// Closed when the last request has left. Shared with the same version in the pools where it was before.
    gone: Arc<watch::Sender<()>>,
}

/// However late batches are, no more than this part of the time that a request has is kept in reserve.
const MARGIN_PART: u64 = 8;

/// What is kept in reserve of the time that a request has, where batches are so late.
pub(crate) fn reserve(wait: Span, margin: Span) -> Span {
    margin.min(Span(wait.0 / MARGIN_PART))
}

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
        memory: u64,
        metrics: Arc<ModelMetrics>,
        place: Place,
        subject: Arc<Subject>,
    ) -> Self {
        let gone = Arc::new(watch::Sender::new(()));
        Self {
            name,
            version,
            signature,
            slo,
            config,
            labels,
            memory,
            metrics,
            place,
            subject,
            gone,
        }
    }

    /// The same version with a place in another pool. This one serves who holds it to the end.
    pub(crate) fn moved(&self, pool: &Arc<Pool>) -> Result<Self, PlaceError> {
        Ok(Self {
            name: self.name.clone(),
            version: self.version.clone(),
            signature: self.signature.clone(),
            slo: self.slo,
            config: self.config.clone(),
            labels: self.labels.clone(),
            memory: self.memory,
            metrics: self.metrics.clone(),
            place: self.place.another_in(pool, &self.name)?,
            subject: self.subject.clone(),
            gone: self.gone.clone(),
        })
    }

    /// Ends when the last who held this has let go.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + use<> {
        let mut held = self.gone.subscribe();
        async move { while held.changed().await.is_ok() {} }
    }

    /// Runs one request. Dropping the future cancels it.
    pub async fn infer(self: &Arc<Self>, call: Call) -> Result<Answer, InferError> {
        self.metrics.arrived();
        let arrival = call.arrival;
        let mut count = Count { served: self, arrival, queued: None, outcome: None, sample: None };
        let result = self.run(call, &mut count).await;
        if let Some(sample) = count.sample.take() {
            sample.hand_in();
        }
        count.outcome = Some(match &result {
            Ok(_) => Outcome::InTime,
            Err(InferError::Shed { reason, .. }) => Outcome::Shed(*reason),
            Err(InferError::TooLong(_)) => Outcome::Shed(Shed::Late),
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

    /// The names of those of `others` that batches of this one were kept short for, or waited for,
    /// so that they need not wait, and how many batches.
    pub fn limited_by(&self, others: &[Arc<Self>]) -> Vec<(String, u64)> {
        let limits = self.place.limits().into_iter();
        let named = limits.filter_map(|(by, count)| {
            let other = others.iter().find(|other| other.place.is_at(self.pool(), by))?;
            Some((other.name.clone(), count))
        });
        named.collect()
    }

    /// What is known, and learned, of its requests.
    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
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
        let Call { mut inputs, rows, arrival, timeout, patience, application } = call;
        let wait = timeout.unwrap_or(self.slo).min(patience.unwrap_or(Duration::MAX));
        let Some(due) = arrival.checked_add(wait) else {
            return Err(InferError::Invalid("the timeout is too long".to_owned()));
        };
        let length = self.signature.length_of(&inputs);
        let kind = self.subject.kinds().of(application, length);
        if let Some(length) = length {
            self.check_length(length, span(wait))?;
        }
        count.sample = self.subject.sample(self, kind, &inputs, rows);
        let pool = self.place.pool();
        let deadline = pool.clock().time(due) - reserve(span(wait), pool.margin());
        let submit = |inputs: Vec<Tensor>| {
            let (reply, receiver) = oneshot::channel();
            let served = self.clone();
            let make = |id| Job::new(id, deadline, kind, arrival, inputs, served, reply);
            let guard = self.place.submit(make);
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

    /// Whether a request of this length can be in time, as far as that is known: what is longer than anything that was measured is
    /// judged by how requests grow.
    fn check_length(&self, length: usize, wait: Span) -> Result<(), InferError> {
        let Some(lengths) = self.subject.kinds().lengths() else { return Ok(()) };
        if length <= lengths.longest() {
            return Ok(());
        }
        if let Some(limit) = lengths.limit() {
            return Err(InferError::TooLong(format!(
                "a request of length {length} is longer than model '{}' takes: up to length {limit} can be served",
                self.name
            )));
        }
        let needed = lengths.alone(length);
        if lengths.warns() {
            let (model, longest) = (&self.name, lengths.longest());
            let about_ms = needed.as_ms();
            tracing::warn!(
                model,
                length,
                longest,
                about_ms,
                "a request is longer than any that was measured"
            );
        }
        if needed <= wait {
            return Ok(());
        }
        let (needed, has) = (needed.as_ms(), wait.as_ms());
        let most = lengths.longest_within(wait);
        Err(InferError::TooLong(format!(
            "a request of length {length} to model '{}' takes about {needed:.1} ms by itself and has {has:.1} ms: up to length {most} can be served",
            self.name
        )))
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
    /// It is to be run again when it has left.
    sample: Option<Sample>,
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
mod tests;
