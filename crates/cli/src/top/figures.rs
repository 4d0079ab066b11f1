//! What happened between two looks at a server: differences of its counters. No IO, no clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::status::{Model, Pool, Status};

/// What is shown happened in at least this time: long enough for a p99 to stand still, short enough
/// to follow a load. It is five seconds, less what looks that are taken each second may be off.
const SHOWN: Duration = Duration::from_millis(4_800);
/// The order of models is by their requests in this time, so that equals do not change places all
/// the time.
const KEPT: Duration = Duration::from_secs(30);

/// Of fewer batches it is not said that they are kept short.
const LIMITED_MIN: f64 = 0.01;

/// The looks of the last half minute.
#[derive(Debug, Default)]
pub(super) struct History {
    looks: VecDeque<(Duration, Status)>,
}

/// What happened, ready to be shown.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// Over how long; `None` if there was only one look, and all counts are from the server's
    /// start.
    pub(super) over: Option<Duration>,
    /// Most requests first.
    pub(super) models: Vec<ModelFigures>,
    /// All models together. Its latencies are parts of their SLOs.
    pub(super) total: ModelFigures,
    pub(super) pools: Vec<PoolFigures>,
}

/// What happened to one model.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelFigures {
    pub(super) name: String,
    pub(super) slo_ms: f64,
    pub(super) rate: f64,
    /// `None` if nothing left.
    pub(super) in_time: Option<f64>,
    pub(super) p50: Option<Quantile>,
    pub(super) p99: Option<Quantile>,
    pub(super) pending: u64,
    pub(super) dropped: u64,
    pub(super) late: u64,
    pub(super) failed: u64,
    /// How many batches there were of each size.
    pub(super) batches: BTreeMap<usize, u64>,
    /// How many of them were shorter, or waited, so that another model need not wait.
    pub(super) limited_by: BTreeMap<String, u64>,
}

/// A latency as a part of the SLO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantile {
    pub(super) of_slo: f64,
    /// It is above that: the histogram ends there.
    pub(super) beyond: bool,
}

/// What a pool did.
#[derive(Clone, Debug)]
pub(super) struct PoolFigures {
    pub(super) pool: Pool,
    /// The share of the time that each executor was busy.
    pub(super) busy: Vec<f64>,
}

impl History {
    /// Adds a look at `now`, which does not go back.
    pub(super) fn push(&mut self, now: Duration, status: Status) {
        if self.looks.back().is_some_and(|(_, last)| status.uptime_s < last.uptime_s) {
            // It is another process, whose counters began anew.
            self.looks.clear();
        }
        self.looks.push_back((now, status));
        while self.looks.len() > 2 && now - self.looks[1].0 >= KEPT {
            self.looks.pop_front();
        }
    }

    /// The last look, if there was one.
    pub(super) fn last(&self) -> Option<&Status> {
        self.looks.back().map(|(_, status)| status)
    }

    /// What happened until the last look, if there was one.
    pub(super) fn figures(&self) -> Option<Figures> {
        let (now, status) = self.looks.back()?;
        // The shortest time that is long enough, or else all there is.
        let past = self.looks.iter().rev().skip(1).find(|(then, _)| *now - *then >= SHOWN);
        let past = past.or_else(|| self.looks.front().filter(|_| self.looks.len() > 1));
        let over = past.map(|(then, _)| *now - *then);
        let seconds = over.map_or(status.uptime_s, |over| over.as_secs_f64()).max(1e-3);
        let counted: Vec<Counted> = status
            .models
            .iter()
            .map(|model| Counted::new(model, past.and_then(|(_, past)| same(past, model))))
            .collect();
        let mut models: Vec<(u64, ModelFigures)> = Vec::new();
        for (model, counted) in status.models.iter().zip(&counted) {
            let first = self.looks.front().filter(|_| self.looks.len() > 1);
            let first = first.and_then(|(_, first)| same(first, model));
            let lately = model.left() - first.map_or(0, Model::left);
            let alone = status.models.iter().filter(|other| other.name == model.name).count() == 1;
            let name = match alone {
                true => model.name.clone(),
                false => format!("{} {}", model.name, model.version),
            };
            let figures = counted.figures(name, model.slo_ms, model.pending, seconds);
            models.push((lately, figures));
        }
        models.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
        let mut all = Counted::default();
        counted.iter().for_each(|counted| all.add(counted));
        let pending = status.models.iter().map(|model| model.pending).sum();
        let pools = status.pools.iter().map(|pool| {
            let past = past.and_then(|(_, past)| past.pools.iter().find(|p| p.name == pool.name));
            let busy = pool.busy_s.iter().enumerate().map(|(at, busy)| {
                let before = past.and_then(|past| past.busy_s.get(at)).copied().unwrap_or(0.0);
                ((busy - before) / seconds).clamp(0.0, 1.0)
            });
            PoolFigures { busy: busy.collect(), pool: pool.clone() }
        });
        Some(Figures {
            over,
            models: models.into_iter().map(|(_, figures)| figures).collect(),
            total: all.figures("all models".to_owned(), 0.0, pending, seconds),
            pools: pools.collect(),
        })
    }
}

/// This model in an earlier look, if its counters went on since.
fn same<'a>(past: &'a Status, model: &Model) -> Option<&'a Model> {
    past.models.iter().find(|past| {
        past.is(model)
            && past.slo_ms == model.slo_ms
            && past.left() <= model.left()
            && past.answers <= model.answers
    })
}

/// Differences of counters.
#[derive(Clone, Debug, Default)]
struct Counted {
    in_time: u64,
    late: u64,
    dropped: u64,
    failed: u64,
    answers: u64,
    /// Upper edge as a part of the SLO, and how many answers were at most as slow.
    latency: Vec<(f64, u64)>,
    batches: BTreeMap<usize, u64>,
    limited_by: BTreeMap<String, u64>,
}

impl Counted {
    fn new(now: &Model, past: Option<&Model>) -> Self {
        let since = |count: fn(&Model) -> u64| count(now).saturating_sub(past.map_or(0, count));
        let latency = now.latency.iter().enumerate().map(|(at, &(edge, count))| {
            let before = past.and_then(|past| past.latency.get(at)).map_or(0, |past| past.1);
            (edge / now.slo_ms, count.saturating_sub(before))
        });
        let batches = now.batches.iter().map(|&(size, count)| {
            let before = past.and_then(|past| past.batches.iter().find(|past| past.0 == size));
            (size, count.saturating_sub(before.map_or(0, |past| past.1)))
        });
        let limited_by = now.limited_by.iter().map(|(by, count)| {
            let before = past.and_then(|past| past.limited_by.iter().find(|past| past.0 == *by));
            (by.clone(), count.saturating_sub(before.map_or(0, |past| past.1)))
        });
        Self {
            limited_by: limited_by.filter(|&(_, count)| count > 0).collect(),
            in_time: since(|model| model.in_time),
            late: since(|model| model.late),
            dropped: since(|model| model.dropped),
            failed: since(|model| model.failed),
            answers: since(|model| model.answers),
            latency: latency.collect(),
            batches: batches.filter(|&(_, count)| count > 0).collect(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.in_time += other.in_time;
        self.late += other.late;
        self.dropped += other.dropped;
        self.failed += other.failed;
        self.answers += other.answers;
        // The edges are the same parts of every model's SLO.
        if self.latency.is_empty() {
            self.latency.clone_from(&other.latency);
        } else {
            let pairs = self.latency.iter_mut().zip(&other.latency);
            pairs.for_each(|(mine, theirs)| mine.1 += theirs.1);
        }
        for (&size, &count) in &other.batches {
            *self.batches.entry(size).or_default() += count;
        }
    }

    fn figures(&self, name: String, slo_ms: f64, pending: u64, seconds: f64) -> ModelFigures {
        let left = self.in_time + self.late + self.dropped + self.failed;
        ModelFigures {
            name,
            slo_ms,
            rate: left as f64 / seconds,
            in_time: (left > 0).then(|| self.in_time as f64 / left as f64),
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            pending,
            dropped: self.dropped,
            late: self.late,
            failed: self.failed,
            batches: self.batches.clone(),
            limited_by: self.limited_by.clone(),
        }
    }

    /// Straight between the edges of the bucket.
    fn quantile(&self, share: f64) -> Option<Quantile> {
        if self.answers == 0 {
            return None;
        }
        let wanted = share * self.answers as f64;
        let (mut low, mut below) = (0.0, 0.0);
        for &(edge, count) in &self.latency {
            let count = count as f64;
            if count >= wanted {
                let part = (wanted - below) / (count - below).max(1.0);
                return Some(Quantile { of_slo: low + (edge - low) * part, beyond: false });
            }
            (low, below) = (edge, count);
        }
        Some(Quantile { of_slo: low, beyond: true })
    }
}

impl ModelFigures {
    /// The model for which most batches were kept short, if those are worth mentioning.
    pub(super) fn limiter(&self) -> Option<&str> {
        let batches: u64 = self.batches.values().sum();
        let limited: u64 = self.limited_by.values().sum();
        let (by, _) = self.limited_by.iter().max_by_key(|&(_, count)| count)?;
        (limited as f64 >= LIMITED_MIN * batches as f64).then_some(by)
    }

    /// The mean size of a batch.
    pub(super) fn mean_batch(&self) -> Option<f64> {
        let count: u64 = self.batches.values().sum();
        let rows: u64 = self.batches.iter().map(|(&size, &count)| size as u64 * count).sum();
        (count > 0).then(|| rows as f64 / count as f64)
    }
}
