//! One run: threads that send, and somebody who watches them.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};

use super::payload::Requests;
use super::plan::{Mode, Plan};
use super::progress::Progress;
use super::record::{Outcome, Record, Slice};
use super::schedule::Schedule;
use super::worker::{self, Load, Stop, Work};
use crate::stolen::{self, Ticks};

/// Everything that runs have in common.
pub(super) struct Campaign<'a> {
    pub(super) plan: &'a Plan,
    pub(super) requests: Requests,
    /// Ctrl-C.
    pub(super) stop: Arc<Stop>,
}

/// What came out of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) record: Record,
    /// What was asked for; in a closed loop there is no such thing.
    pub(super) offered_rps: Option<f64>,
    /// How long was measured.
    pub(super) seconds: f64,
    /// Somebody or something ended it before its time.
    pub(super) cut: bool,
    /// CPU time of this process for each request that it sent.
    pub(super) cpu_us: f64,
    /// The part of all processors' time that went to other machines meanwhile.
    pub(super) stolen: Option<f64>,
}

/// Time for the threads to open connections.
const LEAD: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_millis(50);

impl Campaign<'_> {
    /// Runs the load, at this many times its rate. With `bad_max`, ends as soon as more than that
    /// share of all requests are not in time.
    pub(super) fn run(
        &self,
        scale: f64,
        bad_max: Option<f64>,
        progress: &Progress,
    ) -> anyhow::Result<Run> {
        let plan = self.plan;
        let start = Instant::now() + LEAD;
        let (warmup, all) = (plan.warmup, plan.warmup + plan.duration);
        let window = warmup.as_nanos() as u64..all.as_nanos() as u64;
        let slo = |slo: Option<Duration>| slo.map_or(u64::MAX, |slo| slo.as_nanos() as u64);
        let slos: Vec<u64> = plan.models.iter().map(|model| slo(model.slo)).collect();
        let fresh = || Record::new(window.clone(), slos.clone());
        let records: Vec<_> = (0..plan.threads).map(|_| Arc::new(Mutex::new(fresh()))).collect();
        let limits = self.bad_limits(scale, bad_max);
        let (cpu_before, ticks) = (cpu(), Ticks::now());
        let enough = Stop::default();
        let mut measured = plan.duration;
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, record) in records.iter().enumerate() {
                let (work, record, enough) =
                    (self.work(number, scale, start), record.clone(), &enough);
                let name = format!("load-{number}");
                let thread = thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, move || worker::run(work, record, enough));
                threads.push(thread.context("a thread cannot be started")?);
            }
            while threads.iter().any(|thread| !thread.is_finished()) {
                thread::sleep(TICK);
                let since = start.elapsed();
                let hopeless =
                    || limits.as_deref().is_some_and(|limits| exceeded(&records, limits));
                if !enough.is_wanted() && (self.stop.is_wanted() || hopeless()) {
                    measured = since.saturating_sub(warmup).min(plan.duration);
                    enough.stop();
                }
                progress.tick(since, || take_recent(&records));
            }
            let ended = threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a thread does not panic"));
            ended.context("sending failed")
        })?;
        let mut record = fresh();
        records.iter().for_each(|part| record.merge(&part.lock().expect("nobody panics with it")));
        let cpu_us = (cpu() - cpu_before).as_secs_f64() * 1e6 / record.sent_ever.max(1) as f64;
        Ok(Run {
            offered_rps: (!matches!(plan.mode, Mode::Closed { .. })).then(|| plan.rate() * scale),
            record,
            seconds: measured.as_secs_f64(),
            cut: measured < plan.duration,
            cpu_us,
            stolen: stolen::since(ticks),
        })
    }

    fn work(&self, number: usize, scale: f64, start: Instant) -> Work {
        let plan = self.plan;
        // The first threads take what is left over.
        let part = |whole: usize| whole / plan.threads + usize::from(number < whole % plan.threads);
        let load = match &plan.mode {
            Mode::Closed { concurrency } => Load::Closed(part(*concurrency)),
            Mode::Goodput { spread } | Mode::Open { spread } => Load::Open(Schedule::new(
                &plan.models,
                spread,
                scale,
                plan.seed,
                number,
                plan.threads,
            )),
        };
        Work {
            target: plan.target.clone(),
            requests: self.requests.clone(),
            load,
            models: plan.models.len(),
            start,
            end: plan.warmup + plan.duration,
            timeout: plan.timeout,
            connections: part(plan.connections),
        }
    }

    /// How many of each model's requests may be bad.
    fn bad_limits(&self, scale: f64, bad_max: Option<f64>) -> Option<Vec<u64>> {
        let seconds = self.plan.duration.as_secs_f64();
        // Somewhat more than expected may be sent: random arrivals are not exact.
        let limit = |share: f64, rate: f64| (1.1 * share * rate * scale * seconds) as u64 + 10;
        bad_max.map(|share| self.plan.models.iter().map(|model| limit(share, model.rate)).collect())
    }
}

fn exceeded(records: &[Arc<Mutex<Record>>], limits: &[u64]) -> bool {
    let mut bad = vec![0; limits.len()];
    for record in records {
        let record = record.lock().expect("nobody panics with it");
        for (bad, model) in bad.iter_mut().zip(&record.models) {
            *bad += model.ended() - model.counts[Outcome::InTime as usize];
        }
    }
    bad.iter().zip(limits).any(|(bad, limit)| bad > limit)
}

/// What happened since the last time.
fn take_recent(records: &[Arc<Mutex<Record>>]) -> Slice {
    let mut all = Slice::new();
    for record in records {
        let recent = std::mem::replace(
            &mut record.lock().expect("nobody panics with it").recent,
            Slice::new(),
        );
        all.merge(&recent);
    }
    all
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
