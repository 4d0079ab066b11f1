//! GPUs cut as what comes in needs it: from time to time every cut that may be better is tried by
//! whoever can, and taken if it pays.
//!
//! The rates of models are measured (`planning::meter`), what pays is decided apart
//! (`gpu/choice.rs`), and a re-cut is like any other (`gpu/recut.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use fermata_core::{Span, Time};
use fermata_dispatch::ModelSpec;
use fermata_engine::{Cut, Gpu};
use fermata_scheduler::{RealTime, Runtime, span};

use crate::gpu::{
    By, Candidate, Classes, Gpus, NETWORK, OnGpus, Question, Share, SharePlan, Site, Weigh, choose,
    cuts,
};
use crate::planning::meter::Meter;
use crate::planning::{LATELY_PART, LOOK_PART};
use crate::profiler::shortest_of;
use crate::served::{Served, reserve};
use crate::service::Service;

/// Fewer requests in an epoch say nothing of the mix.
const REQUESTS_MIN: f64 = 100.0;

type Key = (String, String);

/// The loop's memory.
pub(crate) struct Sharing {
    service: Arc<Service>,
    gpus: Arc<Gpus>,
    plan: SharePlan,
    clock: RealTime,
    meter: Meter,
    due: Due,
}

impl Sharing {
    /// Nothing happens until it is kept up.
    pub(crate) fn new(
        service: Arc<Service>,
        gpus: Arc<Gpus>,
        plan: SharePlan,
        clock: RealTime,
    ) -> Self {
        let epoch = span(plan.epoch);
        let meter = Meter::new(epoch, Span(epoch.0 / LATELY_PART));
        let due = Due::new(epoch, clock.now());
        Self { service, gpus, plan, clock, meter, due }
    }

    /// Looks for better cuts for ever.
    pub(crate) async fn keep_up(mut self) {
        loop {
            tokio::time::sleep(self.plan.epoch / LOOK_PART).await;
            let now = self.clock.now();
            let rates = self.look(now);
            let models = rates.keys().cloned().collect();
            if let Some(why) = self.due.why(now, models) {
                self.ask(now, why, rates).await;
            }
        }
    }

    /// What comes for each model, in rows a second.
    fn look(&mut self, now: Time) -> BTreeMap<Key, f64> {
        let mut served = self.service.models();
        served.retain(|served| Arc::ptr_eq(served.pool(), self.gpus.pool()));
        let key = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let counts =
            served.iter().map(|each| (key(&each.name, &each.version), each.metrics().arrivals()));
        self.meter.note(now, counts);
        let rate = |each: &Arc<Served>| {
            let key = key(&each.name, &each.version);
            let rate = self.meter.rate(&key).expected() * each.metrics().rows_each();
            (key, rate)
        };
        served.iter().map(rate).collect()
    }

    /// Asks which cut is best for each GPU, and takes it if it pays.
    async fn ask(&mut self, now: Time, why: Why, rates: BTreeMap<Key, f64>) {
        self.due.asked(now, rates.keys().cloned().collect());
        let requests = rates.values().sum::<f64>() * self.plan.epoch.as_secs_f64();
        if requests < REQUESTS_MIN {
            return tracing::debug!(%why, requests, "too few requests to choose shares by");
        }
        let (service, gpus, weigh) = (self.service.clone(), self.gpus.clone(), self.plan.weigh);
        let answered =
            tokio::task::spawn_blocking(move || better_cuts(&gpus, &service, &rates, weigh));
        let Ok(wishes) = answered.await else {
            // It is asked again at the next epoch.
            return tracing::error!("who tries shares panicked");
        };
        for (site, better) in wishes {
            let gpu = site.gpu.index;
            if self.gpus.cut_of(gpu).as_ref() != Some(&site.cut) {
                continue; // Somebody was faster.
            }
            let (from, to) = (&site.cut, &better.cut);
            let (goodput, before) = (better.goodput.round(), better.before.round());
            tracing::info!(gpu, %from, %to, %why, goodput, before, "other shares serve more");
            self.due.cut(now);
            let percents = better.cut.percents().to_vec();
            if let Err(error) = self.service.recut_by(gpu, percents, By::Plan).await {
                tracing::warn!(gpu, %error, "the shares stay as they are until the next plan");
            }
        }
    }
}

/// When cuts are tried: every epoch, and when there are other models as soon as it is known what
/// comes for them; but never sooner than an epoch after a re-cut.
#[derive(Debug)]
struct Due {
    epoch: Span,
    asked_at: Time,
    cut_at: Option<Time>,
    /// The models of the last time.
    models: BTreeSet<Key>,
    /// Those that there are since then, if they are others.
    others: Option<(Time, BTreeSet<Key>)>,
}

/// Why cuts were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It was time.
    Epoch,
    /// There are other models than before.
    Models,
}

impl Due {
    fn new(epoch: Span, now: Time) -> Self {
        Self { epoch, asked_at: now, cut_at: None, models: BTreeSet::new(), others: None }
    }

    /// Whether it is time to ask, with these models there.
    fn why(&mut self, now: Time, models: BTreeSet<Key>) -> Option<Why> {
        if models == self.models {
            self.others = None;
        } else if self.others.as_ref().is_none_or(|(_, others)| *others != models) {
            self.others = Some((now, models));
        }
        if self.cut_at.is_some_and(|then| now - then < self.epoch) {
            return None;
        }
        let known_for = Span(self.epoch.0 / LATELY_PART);
        if self.others.as_ref().is_some_and(|&(since, _)| now - since >= known_for) {
            return Some(Why::Models);
        }
        (now - self.asked_at >= self.epoch).then_some(Why::Epoch)
    }

    fn asked(&mut self, now: Time, models: BTreeSet<Key>) {
        (self.asked_at, self.models, self.others) = (now, models, None);
    }

    fn cut(&mut self, now: Time) {
        self.cut_at = Some(now);
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch => write!(f, "an epoch has passed"),
            Self::Models => write!(f, "there are other models"),
        }
    }
}

/// A cut that promises more.
#[derive(Clone)]
struct Better {
    cut: Cut,
    /// What it promises, and what the cut in force does, in requests a second.
    goodput: f64,
    before: f64,
}

/// The GPUs that would serve more with another cut, as they are and with that cut. Takes a while.
fn better_cuts(
    gpus: &Gpus,
    service: &Service,
    rates: &BTreeMap<Key, f64>,
    weigh: Weigh,
) -> Vec<(Site, Better)> {
    let mut answers: Vec<(Site, Option<Better>)> = Vec::new();
    for site in gpus.sites() {
        let known = answers.iter().find(|(other, _)| other.is_like(&site));
        let better = match known {
            Some((_, better)) => better.clone(),
            None => better_cut(gpus, &site, service, rates, weigh),
        };
        answers.push((site, better));
    }
    answers.into_iter().filter_map(|(site, better)| Some((site, better?))).collect()
}

fn better_cut(
    gpus: &Gpus,
    site: &Site,
    service: &Service,
    rates: &BTreeMap<Key, f64>,
    weigh: Weigh,
) -> Option<Better> {
    let (question, cuts) = question(gpus, site, service, rates)?;
    let goodputs = weigh(&question);
    let shown = || {
        let each = cuts.iter().zip(&goodputs);
        each.map(|(cut, goodput)| format!("{cut}: {goodput:.0}")).collect::<Vec<_>>().join("; ")
    };
    tracing::debug!(gpu = site.gpu.index, goodputs = shown(), "shares were tried");
    let chosen = choose(&question.cuts, &goodputs)?;
    let (cut, goodput, before) = (cuts[chosen].clone(), goodputs[chosen], goodputs[0]);
    Some(Better { cut, goodput, before })
}

/// What is asked about a GPU: the cut in force, and those on which no model would be too slow to be
/// ever in time.
fn question(
    gpus: &Gpus,
    site: &Site,
    service: &Service,
    rates: &BTreeMap<Key, f64>,
) -> Option<(Question, Vec<Cut>)> {
    let gpu = &site.gpu;
    let served = service.models();
    let margin = gpus.pool().margin();
    // Nobody is held by this for long: who unloads a model waits for it.
    let models: Vec<(Arc<OnGpus>, f64)> = gpus
        .models()
        .into_iter()
        .filter_map(|model| {
            let its = model.served()?;
            served.iter().find(|other| Arc::ptr_eq(other, &its))?;
            let rate = rates.get(&(its.name.clone(), its.version.clone()));
            Some((model, rate.copied().unwrap_or(0.0)))
        })
        .collect();
    drop(served);
    let mut question = Question { rates: Vec::new(), network: NETWORK, cuts: Vec::new() };
    let mut tried = Vec::new();
    for (at, cut) in cuts(gpu, site.seats, &site.cut).into_iter().enumerate() {
        let mut classes = Classes::default();
        let shares = cut.multiprocessors().iter().map(|&count| Share::of(gpu, count));
        let of_shares = shares.map(|share| classes.class(&share)).collect();
        let by_class: Vec<Option<(Gpu, Share)>> =
            classes.shares().iter().map(|share| Some((gpu.clone(), share.clone()))).collect();
        let specs = models.iter().map(|(model, rate)| (model.spec(&by_class), *rate));
        let mut specs: Vec<_> = specs.collect();
        let in_time = |(spec, _): &(ModelSpec, f64)| {
            shortest_of(spec).is_some_and(|shortest| shortest <= spec.slo)
        };
        if at > 0 && !specs.iter().all(in_time) {
            continue;
        }
        // What nobody asks for says which cuts there may be, and is no load.
        specs.retain(|&(_, rate)| rate > 0.0);
        question.rates = specs.iter().map(|&(_, rate)| rate).collect();
        let less = |(mut spec, _): (ModelSpec, f64)| {
            spec.slo = spec.slo - reserve(spec.slo, margin);
            Arc::new(spec)
        };
        let specs = specs.into_iter().map(less).collect();
        let percents = cut.percents().to_vec();
        question.cuts.push(Candidate { percents, classes: of_shares, specs });
        tried.push(cut);
    }
    (tried.len() > 1 && !question.rates.is_empty()).then_some((question, tried))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Span = Span(30_000_000_000);

    fn at(seconds: f64) -> Time {
        Time::from_ms(1e3 * seconds)
    }

    fn models(names: &[&str]) -> BTreeSet<Key> {
        names.iter().map(|&name| (name.to_owned(), "1".to_owned())).collect()
    }

    #[test]
    fn cuts_are_tried_every_epoch() {
        let mut due = Due::new(EPOCH, at(0.0));
        assert_eq!(due.why(at(29.0), models(&[])), None);
        assert_eq!(due.why(at(30.0), models(&[])), Some(Why::Epoch));
        due.asked(at(30.0), models(&[]));
        assert_eq!(due.why(at(59.0), models(&[])), None);
        assert_eq!(due.why(at(60.0), models(&[])), Some(Why::Epoch));
    }

    #[test]
    fn other_models_are_answered_when_it_is_known_what_comes_for_them() {
        let mut due = Due::new(EPOCH, at(0.0));
        assert_eq!(due.why(at(1.0), models(&["a"])), None);
        assert_eq!(due.why(at(5.0), models(&["a", "b"])), None);
        assert_eq!(due.why(at(6.0), models(&["a", "b"])), None, "the second came at 5 s");
        assert_eq!(due.why(at(10.0), models(&["a", "b"])), Some(Why::Models));
        due.asked(at(10.0), models(&["a", "b"]));
        assert_eq!(due.why(at(16.0), models(&["a", "b"])), None);
        assert_eq!(due.why(at(17.0), models(&["b"])), None);
        assert_eq!(due.why(at(18.0), models(&["a", "b"])), None, "it came back");
        assert_eq!(due.why(at(24.0), models(&["a", "b"])), None);
        assert_eq!(due.why(at(40.0), models(&["a", "b"])), Some(Why::Epoch));
    }

    #[test]
    fn no_re_cut_follows_another_within_an_epoch() {
        let mut due = Due::new(EPOCH, at(0.0));
        due.asked(at(30.0), models(&["a"]));
        due.cut(at(30.0));
        assert_eq!(due.why(at(50.0), models(&["a", "b"])), None);
        assert_eq!(due.why(at(59.0), models(&["a", "b"])), None);
        assert_eq!(due.why(at(60.0), models(&["a", "b"])), Some(Why::Models));
    }
}
