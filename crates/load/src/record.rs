//! What became of the requests: counts, latencies, the first message of each kind of error.

use std::collections::BTreeMap;
use std::ops::Range;

use hdrhistogram::Histogram;

use crate::client::Code;
use crate::client::grpc::{DEADLINE_EXCEEDED, OK, RESOURCE_EXHAUSTED, UNAVAILABLE};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    InTime,
    Late,
    Shed,
    Missed,
    Failed,
}

impl Outcome {
    pub(super) const ALL: [Self; 5] =
        [Self::InTime, Self::Late, Self::Shed, Self::Missed, Self::Failed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InTime => "in time",
            Self::Late => "late",
            Self::Shed => "shed",
            Self::Missed => "missed",
            Self::Failed => "failed",
        }
    }
}

/// How a request ended, as the connection saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Answered,
    /// The connection broke, or never was.
    Broken(String),
    Refused(Code, String),
    /// Nothing came until the client gave up.
    TimedOut,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) model: usize,
    /// When it was to be sent, in nanoseconds since the start.
    pub(super) due: u64,
}

/// One thread's results.
#[derive(Debug)]
pub(super) struct Record {
    /// The measured part of the run: requests due before or after it are not counted.
    window: Range<u64>,
    slos: Vec<u64>,
    pub(super) models: Vec<ModelRecord>,
    pub(super) slices: Vec<Slice>,
    /// By how much sending was later than due: the generator's own fault.
    pub(super) lag: Histogram<u64>,
    /// How many had to wait for a connection.
    pub(super) waited: u64,
    pub(super) errors: BTreeMap<(Outcome, String), Errors>,
    /// All requests that were sent, measured or not.
    pub(super) sent_ever: u64,
    /// Since somebody last looked.
    pub(super) recent: Slice,
}

/// Errors of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Errors {
    pub(super) count: u64,
    /// What the first of them said.
    pub(super) first: String,
}

/// One model's results.
#[derive(Clone, Debug)]
pub(super) struct ModelRecord {
    pub(super) sent: u64,
    pub(super) counts: [u64; 5],
    /// Of answers, in nanoseconds.
    pub(super) latency: Histogram<u64>,
}

/// The results of a part of the time.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) sent: u64,
    pub(super) counts: [u64; 5],
    pub(super) latency: Histogram<u64>,
}

/// How many slices a run has.
const SLICES: usize = 100;
/// No latency is longer than an hour.
const LONGEST: u64 = 3_600_000_000_000;

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, LONGEST, digits).expect("the bounds are in order")
}

impl Slice {
    pub(super) fn new() -> Self {
        // Two digits, as there are a hundred of them.
        Self { sent: 0, counts: [0; 5], latency: histogram(2) }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        add(&mut self.counts, &other.counts);
        let _ = self.latency.add(&other.latency);
    }
}

impl ModelRecord {
    fn new() -> Self {
        Self { sent: 0, counts: [0; 5], latency: histogram(3) }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        add(&mut self.counts, &other.counts);
        // Fails only for other bounds, and all are made above.
        let _ = self.latency.add(&other.latency);
    }

    /// How many ended.
    pub(super) fn ended(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn in_time(&self) -> u64 {
        self.counts[Outcome::InTime as usize]
    }
}

fn add(counts: &mut [u64; 5], others: &[u64; 5]) {
    counts.iter_mut().zip(others).for_each(|(count, other)| *count += other);
}

impl Record {
    /// An empty record of models with these objectives, in nanoseconds.
    pub(super) fn new(window: Range<u64>, slos: Vec<u64>) -> Self {
        Self {
            models: slos.iter().map(|_| ModelRecord::new()).collect(),
            slices: (0..SLICES).map(|_| Slice::new()).collect(),
            window,
            slos,
            lag: histogram(3),
            waited: 0,
            errors: BTreeMap::new(),
            sent_ever: 0,
            recent: Slice::new(),
        }
    }

    /// A request is sent at `now`.
    pub(super) fn send(&mut self, job: Job, now: u64) {
        self.sent_ever += 1;
        self.recent.sent += 1;
        if let Some(slice) = self.slice(job) {
            self.models[job.model].sent += 1;
            self.slices[slice].sent += 1;
            self.lag.saturating_record(now.saturating_sub(job.due));
        }
    }

    /// A request must wait for a connection.
    pub(super) fn wait(&mut self, job: Job) {
        self.waited += u64::from(self.window.contains(&job.due));
    }

    /// A request ended at `now`.
    pub(super) fn finish(&mut self, job: Job, now: u64, ending: Ending) {
        let latency = now.saturating_sub(job.due);
        let (outcome, error) = judge(ending, latency <= self.slos[job.model]);
        let slice = self.slice(job);
        let parts = [Some(&mut self.recent), slice.map(|slice| &mut self.slices[slice])];
        for part in parts.into_iter().flatten() {
            part.counts[outcome as usize] += 1;
            if error.is_none() {
                part.latency.saturating_record(latency);
            }
        }
        if slice.is_none() {
            return;
        }
        let model = &mut self.models[job.model];
        model.counts[outcome as usize] += 1;
        match error {
            None => model.latency.saturating_record(latency),
            Some((kind, first)) => {
                self.errors.entry((outcome, kind)).or_insert(Errors { count: 0, first }).count += 1;
            }
        }
    }

    /// Into which slice a request falls, if it is measured.
    fn slice(&self, job: Job) -> Option<usize> {
        let length = (self.window.end - self.window.start).max(1);
        self.window.contains(&job.due).then(|| {
            ((job.due - self.window.start) as u128 * SLICES as u128 / u128::from(length)) as usize
        })
    }

    /// All threads' results.
    pub(super) fn merge(&mut self, other: &Self) {
        self.models.iter_mut().zip(&other.models).for_each(|(mine, theirs)| mine.merge(theirs));
        self.slices.iter_mut().zip(&other.slices).for_each(|(mine, theirs)| mine.merge(theirs));
        let _ = self.lag.add(&other.lag);
        self.waited += other.waited;
        self.sent_ever += other.sent_ever;
        self.recent.merge(&other.recent);
        for (key, errors) in &other.errors {
            let fresh = || Errors { count: 0, first: errors.first.clone() };
            self.errors.entry(key.clone()).or_insert_with(fresh).count += errors.count;
        }
    }

    /// All models together.
    pub(super) fn total(&self) -> ModelRecord {
        let mut total = ModelRecord::new();
        self.models.iter().for_each(|model| total.merge(model));
        total
    }
}

/// The outcome; the kind and the words of an error.
fn judge(ending: Ending, soon: bool) -> (Outcome, Option<(String, String)>) {
    match ending {
        Ending::Answered if soon => (Outcome::InTime, None),
        Ending::Answered => (Outcome::Late, None),
        Ending::Broken(reason) => (Outcome::Failed, Some(("connection".to_owned(), reason))),
        Ending::TimedOut => {
            let reason = "no answer until the client gave up (--timeout-ms)".to_owned();
            (Outcome::Missed, Some(("timeout".to_owned(), reason)))
        }
        Ending::Refused(code, message) => {
            let outcome = match code {
                Code::Http(429 | 503) | Code::Grpc(RESOURCE_EXHAUSTED | UNAVAILABLE) => {
                    Outcome::Shed
                }
                Code::Http(504) | Code::Grpc(DEADLINE_EXCEEDED) => Outcome::Missed,
                Code::Http(_) | Code::Grpc(_) => Outcome::Failed,
            };
            (outcome, Some((code.to_string(), message)))
        }
    }
}

impl Ending {
    /// What an HTTP status or a gRPC one means.
    pub(super) fn of(code: Code, message: impl FnOnce() -> String) -> Self {
        match code {
            Code::Http(200) | Code::Grpc(OK) => Self::Answered,
            code => Self::Refused(code, message()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn job(due_ms: u64) -> Job {
        Job { model: 0, due: due_ms * MS }
    }

    #[test]
    fn only_the_window_counts_and_every_ending_has_its_outcome() {
        let mut record = Record::new(1_000 * MS..2_000 * MS, vec![25 * MS]);
        for due in [0, 999, 2_000] {
            record.send(job(due), due * MS);
            record.finish(job(due), due * MS, Ending::Answered);
        }
        let endings = [
            (25, Ending::Answered),
            (26, Ending::Answered),
            (1, Ending::Refused(Code::Http(503), "full".to_owned())),
            (1, Ending::Refused(Code::Grpc(8), "full".to_owned())),
            (1, Ending::Refused(Code::Http(504), String::new())),
            (1, Ending::TimedOut),
            (1, Ending::Refused(Code::Http(400), "shape".to_owned())),
            (1, Ending::Refused(Code::Http(400), "other".to_owned())),
            (1, Ending::Broken("reset".to_owned())),
        ];
        for (after, ending) in endings {
            record.send(job(1_500), 1_501 * MS);
            record.finish(job(1_500), (1_500 + after) * MS, ending);
        }
        let mut all = Record::new(1_000 * MS..2_000 * MS, vec![25 * MS]);
        all.merge(&record);
        all.merge(&record);
        let total = all.total();
        assert_eq!((total.sent, total.counts), (18, [2, 2, 4, 4, 6]));
        assert_eq!((all.sent_ever, total.latency.len(), all.slices[50].sent), (24, 4, 18));
        let refused = &all.errors[&(Outcome::Failed, "HTTP status 400".to_owned())];
        assert_eq!((refused.count, refused.first.as_str()), (4, "shape"));
        assert!(all.lag.max().abs_diff(MS) < MS / 500);
    }
}
