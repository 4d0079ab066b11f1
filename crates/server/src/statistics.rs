//! Triton's statistics of a model, from what is counted anyway.

use fermata_protocol::proto::{
    InferBatchStatistics, InferStatistics, ModelStatistics, StatisticDuration,
};

use crate::metrics::{BatchCount, Outcome};
use crate::served::Served;

/// The statistics of a served version.
pub(crate) fn of(served: &Served) -> ModelStatistics {
    let metrics = served.metrics();
    let latencies = metrics.latencies();
    let batches = metrics.batches();
    let executions: u64 = batches.iter().map(|batch| batch.count).sum();
    let compute: u64 = batches.iter().map(|batch| nanoseconds(batch) * batch.size as u64).sum();
    let failed = Outcome::ALL.into_iter().filter(|&outcome| outcome != Outcome::InTime);
    let duration = |count, ns| Some(StatisticDuration { count, ns });
    ModelStatistics {
        name: served.name.clone(),
        version: served.version.clone(),
        last_inference: metrics.last_ms(),
        inference_count: metrics.rows(),
        execution_count: executions,
        inference_stats: Some(InferStatistics {
            success: duration(metrics.outcome(Outcome::InTime), latencies.sum.0),
            fail: duration(failed.map(|outcome| metrics.outcome(outcome)).sum(), 0),
            queue: duration(latencies.count, metrics.queued().as_nanos() as u64),
            // Gathering and scattering are part of the execution.
            compute_input: duration(latencies.count, 0),
            compute_infer: duration(latencies.count, compute),
            compute_output: duration(latencies.count, 0),
            ..InferStatistics::default()
        }),
        batch_stats: batches
            .iter()
            .map(|batch| InferBatchStatistics {
                batch_size: batch.size as u64,
                compute_input: duration(batch.count, 0),
                compute_infer: duration(batch.count, nanoseconds(batch)),
                compute_output: duration(batch.count, 0),
            })
            .collect(),
        ..ModelStatistics::default()
    }
}

fn nanoseconds(batch: &BatchCount) -> u64 {
    batch.time.as_nanos() as u64
}
