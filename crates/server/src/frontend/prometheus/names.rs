//! The name, type and help of every metric: the one place where they are written.

/// A metric family.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
}

macro_rules! families {
    ($($name:ident = $text:literal, $kind:literal, $help:literal;)*) => {
        $(pub(super) const $name: Family = Family { name: $text, kind: $kind, help: $help };)*

        #[cfg(test)]
        pub(super) const ALL: &[Family] = &[$($name),*];
    };
}

families! {
    REQUESTS = "fermata_requests_total", "counter",
        "Requests that left, by model, version and outcome.";
    LATENCY = "fermata_request_latency_seconds", "histogram",
        "From arrival to answer; the SLO is an edge.";
    SLO = "fermata_slo_seconds", "gauge",
        "The latency objective.";
    PENDING = "fermata_pending_requests", "gauge",
        "Requests that wait or run.";
    QUEUE = "fermata_queue_seconds_total", "counter",
        "How long answered requests waited, together.";
    ROWS = "fermata_rows_total", "counter",
        "Rows that ran: a request has one or more.";
    BATCHES = "fermata_batches_total", "counter",
        "Batches that ran, by size.";
    BATCH_TIME = "fermata_batch_seconds_total", "counter",
        "How long batches ran, by size.";
    FORETOLD = "fermata_batches_foretold_total", "counter",
        "Batches that took as long as planned, within 10 %.";
    LIMITED = "fermata_batches_limited_total", "counter",
        "Batches that were shorter, or waited, so that the model in the label 'by' need not wait.";
    APPLICATIONS = "fermata_application_requests_total", "counter",
        "Requests that came, by application, where they name one.";
    ALONE = "fermata_alone_runs_total", "counter",
        "Requests that were run again, alone, to learn what they take.";
    EXECUTORS = "fermata_executors", "gauge",
        "Executors of the pool.";
    BUSY = "fermata_executor_busy_seconds_total", "counter",
        "How long each executor was busy.";
    BUSY_SHARE = "fermata_busy_fraction", "gauge",
        "The share of the executors' time that was busy, over the last seconds.";
    BAD_SHARE = "fermata_bad_rate", "gauge",
        "The share of requests dropped or late, over the last seconds.";
    ADVISED = "fermata_advised_executors", "gauge",
        "How many executors the load needs: more where requests are lost, fewer where executors \
         are spare.";
    PLANS = "fermata_plans_total", "counter",
        "Plans that were made while serving.";
    PLANNED = "fermata_planned_gpus", "gauge",
        "GPUs that the last plan asked for.";
    PLAN_GPUS = "fermata_gpus", "gauge",
        "GPUs that the pools of the plan have.";
    PLAN_LIMIT = "fermata_gpus_limit", "gauge",
        "GPUs that there may be.";
    PLAN_MOVES = "fermata_model_moves_total", "counter",
        "Models that moved from one pool to another.";
    GPU_MEMORY_USED = "fermata_gpu_memory_used_bytes", "gauge",
        "Memory of the GPU that is in use, by anybody.";
    GPU_MEMORY_TOTAL = "fermata_gpu_memory_total_bytes", "gauge",
        "Memory that the GPU has.";
    GPU_SHARE = "fermata_gpu_share_percent", "gauge",
        "How much of the GPU the executor was given, in percent.";
    GPU_MULTIPROCESSORS = "fermata_gpu_share_multiprocessors", "gauge",
        "How many multiprocessors of the GPU the executor has.";
    SEAT_RESTARTS = "fermata_seat_restarts_total", "counter",
        "How often seats of the GPU broke and were started again.";
    RECUTS = "fermata_recuts_total", "counter",
        "How often a GPU was cut into other shares.";
    RECUT_TIME = "fermata_last_recut_seconds", "gauge",
        "How long the last re-cut of the GPU took until all its shares served.";
    READY = "fermata_ready", "gauge",
        "Whether all models that should be served are.";
    START = "process_start_time_seconds", "gauge",
        "When the server started, in seconds since 1970.";
    MEMORY = "process_resident_memory_bytes", "gauge",
        "Memory that the server holds.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for family in ALL {
            assert_eq!(
                family.kind == "counter",
                family.name.ends_with("_total"),
                "{}",
                family.name
            );
            assert!(family.help.ends_with('.'));
        }
    }
}
