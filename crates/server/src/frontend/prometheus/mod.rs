//! Prometheus' text format.

mod names;

use std::fmt::{self, Write};
use std::time::UNIX_EPOCH;

use fermata_core::Span;

use self::names::Family;
use crate::gpu::{GpuReport, ShareReport};
use crate::metrics::Outcome;
use crate::monitor::Monitor;

/// Everything that is counted, as text.
pub(super) fn render(monitor: &Monitor) -> String {
    let mut page = Page { text: String::with_capacity(16 << 10) };
    page.write(monitor).expect("a string takes everything");
    page.text
}

struct Page {
    text: String,
}

impl Page {
    fn write(&mut self, monitor: &Monitor) -> fmt::Result {
        self.models(monitor)?;
        self.pools(monitor)?;
        self.plan(monitor)?;
        self.gpus(monitor)?;
        let service = monitor.service();
        self.family(&names::READY)?;
        self.value(&names::READY, "", u8::from(service.is_ready()))?;
        self.family(&names::START)?;
        let start = monitor.started().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.value(&names::START, "", start.as_secs_f64())?;
        if let Some(bytes) = resident_memory() {
            self.family(&names::MEMORY)?;
            self.value(&names::MEMORY, "", bytes)?;
        }
        Ok(())
    }

    fn models(&mut self, monitor: &Monitor) -> fmt::Result {
        let models = monitor.service().models();
        let labelled: Vec<_> = models
            .iter()
            .map(|served| {
                let labels = format!(
                    "model=\"{}\",version=\"{}\"",
                    escaped(&served.name),
                    escaped(&served.version)
                );
                (labels, served)
            })
            .collect();
        self.family(&names::REQUESTS)?;
        for (labels, served) in &labelled {
            for outcome in Outcome::ALL {
                let labels = format!("{labels},outcome=\"{}\"", outcome.word());
                self.value(&names::REQUESTS, &labels, served.metrics().outcome(outcome))?;
            }
        }
        self.family(&names::LATENCY)?;
        for (labels, served) in &labelled {
            let latencies = served.metrics().latencies();
            let name = names::LATENCY.name;
            for (edge, count) in latencies.buckets {
                let edge = seconds(edge);
                writeln!(self.text, "{name}_bucket{{{labels},le=\"{edge}\"}} {count}")?;
            }
            let count = latencies.count;
            writeln!(self.text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
            writeln!(self.text, "{name}_sum{{{labels}}} {}", seconds(latencies.sum))?;
            writeln!(self.text, "{name}_count{{{labels}}} {count}")?;
        }
        self.family(&names::SLO)?;
        for (labels, served) in &labelled {
            self.value(&names::SLO, labels, served.slo.as_secs_f64())?;
        }
        self.family(&names::PENDING)?;
        for (labels, served) in &labelled {
            self.value(&names::PENDING, labels, served.metrics().pending())?;
        }
        self.family(&names::QUEUE)?;
        for (labels, served) in &labelled {
            self.value(&names::QUEUE, labels, served.metrics().queued().as_secs_f64())?;
        }
        self.family(&names::ROWS)?;
        for (labels, served) in &labelled {
            self.value(&names::ROWS, labels, served.metrics().rows())?;
        }
        self.family(&names::BATCHES)?;
        for (labels, served) in &labelled {
            for batch in served.metrics().batches() {
                let labels = format!("{labels},size=\"{}\"", batch.size);
                self.value(&names::BATCHES, &labels, batch.count)?;
            }
        }
        self.family(&names::BATCH_TIME)?;
        for (labels, served) in &labelled {
            for batch in served.metrics().batches() {
                let labels = format!("{labels},size=\"{}\"", batch.size);
                self.value(&names::BATCH_TIME, &labels, batch.time.as_secs_f64())?;
            }
        }
        self.family(&names::FORETOLD)?;
        for (labels, served) in &labelled {
            self.value(&names::FORETOLD, labels, served.metrics().foretold())?;
        }
        self.family(&names::LIMITED)?;
        for (labels, served) in &labelled {
            for (by, count) in served.limited_by(&models) {
                let labels = format!("{labels},by=\"{}\"", escaped(&by));
                self.value(&names::LIMITED, &labels, count)?;
            }
        }
        self.family(&names::APPLICATIONS)?;
        for (labels, served) in &labelled {
            for (name, count) in served.online().kinds().tags().requests() {
                let labels = format!("{labels},application=\"{}\"", escaped(name));
                self.value(&names::APPLICATIONS, &labels, count)?;
            }
        }
        self.family(&names::ALONE)?;
        for (labels, served) in &labelled {
            self.value(&names::ALONE, labels, served.online().runs())?;
        }
        Ok(())
    }

    fn pools(&mut self, monitor: &Monitor) -> fmt::Result {
        let pools: Vec<_> = monitor
            .pools()
            .map(|(pool, advice)| (format!("pool=\"{}\"", escaped(pool.name())), pool, advice))
            .collect();
        self.family(&names::EXECUTORS)?;
        for (labels, pool, _) in &pools {
            self.value(&names::EXECUTORS, labels, pool.executors())?;
        }
        self.family(&names::BUSY)?;
        for (labels, pool, _) in &pools {
            for (executor, busy) in pool.gauges().busy().enumerate() {
                let labels = format!("{labels},executor=\"{executor}\"");
                self.value(&names::BUSY, &labels, seconds(busy))?;
            }
        }
        self.family(&names::BUSY_SHARE)?;
        for (labels, _, advice) in &pools {
            self.value(&names::BUSY_SHARE, labels, advice.busy)?;
        }
        self.family(&names::BAD_SHARE)?;
        for (labels, _, advice) in &pools {
            self.value(&names::BAD_SHARE, labels, advice.bad)?;
        }
        self.family(&names::ADVISED)?;
        for (labels, _, advice) in &pools {
            self.value(&names::ADVISED, labels, advice.executors)?;
        }
        Ok(())
    }

    fn plan(&mut self, monitor: &Monitor) -> fmt::Result {
        let Some(history) = monitor.planning() else { return Ok(()) };
        self.family(&names::PLANS)?;
        self.value(&names::PLANS, "", history.plans())?;
        self.family(&names::PLAN_MOVES)?;
        self.value(&names::PLAN_MOVES, "", history.moves())?;
        if let Some(last) = history.last() {
            for (family, gpus) in [
                (&names::PLANNED, last.asked),
                (&names::PLAN_GPUS, monitor.service().fleet().executors()),
                (&names::PLAN_LIMIT, last.limit),
            ] {
                self.family(family)?;
                self.value(family, "", gpus)?;
            }
        }
        Ok(())
    }

    fn gpus(&mut self, monitor: &Monitor) -> fmt::Result {
        let Some(gpus) = monitor.service().gpus() else { return Ok(()) };
        let reports = gpus.report();
        let each: Vec<(String, &GpuReport)> =
            reports.iter().map(|report| (format!("gpu=\"{}\"", report.gpu), report)).collect();
        self.family(&names::GPU_MEMORY_USED)?;
        for (labels, report) in &each {
            self.value(&names::GPU_MEMORY_USED, labels, report.memory_used_bytes)?;
        }
        self.family(&names::GPU_MEMORY_TOTAL)?;
        for (labels, report) in &each {
            self.value(&names::GPU_MEMORY_TOTAL, labels, report.memory_total_bytes)?;
        }
        let pool = escaped(gpus.pool().name());
        let shares: Vec<(String, &ShareReport)> = each
            .iter()
            .flat_map(|(labels, report)| report.shares.iter().map(move |share| (labels, share)))
            .filter_map(|(labels, share)| {
                let (seat, executor) = (share.seat, share.executor?);
                let more = format!("seat=\"{seat}\",pool=\"{pool}\",executor=\"{executor}\"");
                Some((format!("{labels},{more}"), share))
            })
            .collect();
        self.family(&names::GPU_SHARE)?;
        for (labels, share) in &shares {
            self.value(&names::GPU_SHARE, labels, share.percent)?;
        }
        self.family(&names::GPU_MULTIPROCESSORS)?;
        for (labels, share) in &shares {
            self.value(&names::GPU_MULTIPROCESSORS, labels, share.multiprocessors)?;
        }
        self.family(&names::SEAT_RESTARTS)?;
        for (labels, report) in &each {
            self.value(&names::SEAT_RESTARTS, labels, report.restarts)?;
        }
        self.family(&names::RECUTS)?;
        self.value(&names::RECUTS, "", gpus.recuts())?;
        self.family(&names::RECUT_TIME)?;
        for (labels, report) in &each {
            if let Some(took_ms) = report.last_recut_ms {
                self.value(&names::RECUT_TIME, labels, took_ms / 1e3)?;
            }
        }
        Ok(())
    }

    fn family(&mut self, family: &Family) -> fmt::Result {
        let Family { name, kind, help } = family;
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}")
    }

    fn value(&mut self, family: &Family, labels: &str, value: impl fmt::Display) -> fmt::Result {
        if labels.is_empty() {
            writeln!(self.text, "{} {value}", family.name)
        } else {
            writeln!(self.text, "{}{{{labels}}} {value}", family.name)
        }
    }
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e9
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The memory of this process, where the system tells.
fn resident_memory() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
