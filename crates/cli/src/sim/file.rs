//! The file of `fermata sim`: read as it is written, then checked key by key into a scenario.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fermata_core::{ClassId, Profile, Span, Time};
use fermata_dispatch::{ModelSpec, Network, Spare};
use fermata_files::{Checker, InputError};
use fermata_sim::{End, Load, Scenario, Sizes};
use serde::Deserialize;

use super::alone::{self, RawGrowth, RawPeak};
use super::fault::{self, RawFault};
use crate::input::{self, GPUS_MAX, LatencyKeys};

/// A scenario and the names of its models.
pub(super) struct SimFile {
    pub(super) scenario: Scenario,
    pub(super) names: Vec<String>,
    /// What spare executors are for, if the file or the recording says.
    pub(super) spare: Option<Spare>,
}

const MODELS_MAX: usize = 100_000;
/// More requests than this take hours to simulate: a slip of the pen, most likely.
const REQUESTS_MAX: f64 = 1e10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    gpus: Option<i64>,
    share: Option<i64>,
    duration_s: Option<f64>,
    requests: Option<i64>,
    spare: Option<String>,
    #[serde(default)]
    network: RawNetwork,
    #[serde(default)]
    noise: f64,
    #[serde(default)]
    model: Vec<RawModel>,
    #[serde(default)]
    fault: Vec<RawFault>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawNetwork {
    ctrl_us: f64,
    data_us: f64,
    resp_us: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    name: Option<String>,
    alpha_ms: Option<f64>,
    beta_ms: Option<f64>,
    latency_ms: Option<Vec<f64>>,
    profile: Option<String>,
    #[serde(default)]
    alone: Vec<RawPeak>,
    growth: Option<RawGrowth>,
    max_batch: Option<i64>,
    tags: Option<bool>,
    slo_ms: Option<f64>,
    rate: Option<f64>,
    #[serde(default = "input::poisson")]
    arrivals: String,
    #[serde(default = "input::one")]
    copies: i64,
}

impl SimFile {
    /// Reads and checks a file.
    pub(super) fn read(file: &Path) -> Result<Self, InputError> {
        let text = fs::read_to_string(file)
            .map_err(|source| InputError::Read { file: file.to_owned(), source })?;
        let raw: RawFile = fermata_files::parse(file, &text, &["model", "fault"])?;
        let top = Checker { file, place: None };
        let gpus = top.count("gpus", top.required("gpus", raw.gpus)?, GPUS_MAX)?;
        let share = raw.share.map_or(Ok(100), |share| top.count("share", share, 100))? as u32;
        let spare = input::spare(&top, raw.spare.as_deref())?;
        let end = end(&top, raw.duration_s, raw.requests)?;
        let network = network(&top, &raw.network)?;
        if !(0.0..1.0).contains(&raw.noise) {
            return Err(top.refuse("noise", format!("{} is not from 0 to below 1", raw.noise)));
        }
        if raw.model.is_empty() {
            return Err(top.refuse("model", "there is no [[model]]"));
        }
        let (mut loads, mut names) = (Vec::new(), Vec::new());
        for (number, model) in (1..).zip(&raw.model) {
            let (load, copies) = model.check(file, number, network, share)?;
            let copies = input::copies_of(model.name.as_deref().unwrap_or_default(), copies);
            loads.extend(copies.iter().map(|_| load.clone()));
            names.extend(copies);
        }
        if names.len() > MODELS_MAX {
            return Err(top.refuse("model", format!("there are more than {MODELS_MAX}")));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            let place = Some(format!("model '{twice}'"));
            return Err(Checker { file, place }.refuse("name", "two models have it"));
        }
        let faults = fault::check(file, &raw.fault, gpus, end)?;
        let executors = vec![ClassId(0); gpus];
        let (seed, noise) = (0, raw.noise);
        let scenario = Scenario { loads, executors, network, end, seed, noise, faults };
        let expected: f64 = scenario.expected().iter().sum();
        if expected > REQUESTS_MAX {
            let key = if matches!(end, End::At(_)) { "duration_s" } else { "requests" };
            let reason =
                format!("{expected:.0} requests are more than {REQUESTS_MAX:.0}: ask for less");
            return Err(top.refuse(key, reason));
        }
        Ok(Self { scenario, names, spare })
    }
}

impl RawModel {
    fn check(
        &self,
        file: &Path,
        number: usize,
        network: Network,
        share: u32,
    ) -> Result<(Load, usize), InputError> {
        let place = |name: &str| Some(format!("model {name}"));
        let unnamed = Checker { file, place: place(&number.to_string()) };
        let name = unnamed.required("name", self.name.as_deref())?;
        if name.is_empty() || name.contains(char::is_control) {
            return Err(unnamed.refuse("name", "must be a word in one line"));
        }
        let checker = Checker { file, place: place(&format!("'{name}'")) };
        let slo_ms = checker.positive("slo_ms", checker.required("slo_ms", self.slo_ms)?)?;
        let slo = Span::from_ms(slo_ms);
        let (profile, sizes) = self.profile(&checker, name, slo, number, share)?;
        let shortest = profile.spread().map_or(profile.shortest(), |spread| {
            spread.growth().latency(1, spread.grid().shortest())
        });
        let alone = shortest + network.lead(1) + network.resp;
        if slo < alone {
            let of = if alone > shortest { "with the network's delays" } else { "l(1)" };
            let reason = format!(
                "{slo_ms} ms is below the {} ms that a batch of one takes ({of}): \
                 no request could be in time",
                alone.as_ms()
            );
            return Err(checker.refuse("slo_ms", reason));
        }
        let copies = checker.count("copies", self.copies, MODELS_MAX)?;
        let spec = Arc::new(ModelSpec::uniform(slo, profile));
        let arrivals = input::arrivals(&checker, &self.arrivals, self.rate)?;
        Ok((Load { sizes: sizes.map(Arc::new), ..Load::new(spec, arrivals) }, copies))
    }

    /// What the scheduler knows of the model, and how long its requests run, where they differ.
    fn profile(
        &self,
        checker: &Checker<'_>,
        name: &str,
        slo: Span,
        number: usize,
        share: u32,
    ) -> Result<(Profile, Option<Sizes>), InputError> {
        if self.alone.is_empty() {
            let given = [
                ("growth", self.growth.is_some()),
                ("max_batch", self.max_batch.is_some()),
                ("tags", self.tags.is_some()),
            ];
            return match given.into_iter().find(|(_, is_given)| *is_given) {
                Some((key, _)) => Err(checker.refuse(key, "goes with [[model.alone]]")),
                None => {
                    let latency = self.latency_keys().check(checker, name)?;
                    Ok((latency.on_share(slo, share), None))
                }
            };
        }
        if !self.latency_keys().is_empty() {
            let reason = "cannot be given together with alpha_ms, beta_ms, latency_ms or profile";
            return Err(checker.refuse("alone", reason));
        }
        if share < 100 {
            let reason = "what a share makes of run times that depend on the input is not known";
            return Err(checker.refuse("alone", reason));
        }
        let max_batch = self.max_batch.unwrap_or(alone::MAX_BATCH);
        let (growth, tags) = (self.growth.as_ref(), self.tags.unwrap_or(true));
        let uneven = alone::check(checker, &self.alone, growth, max_batch, tags, number)?;
        Ok((uneven.profile, Some(uneven.sizes)))
    }

    fn latency_keys(&self) -> LatencyKeys<'_> {
        LatencyKeys {
            alpha_ms: self.alpha_ms,
            beta_ms: self.beta_ms,
            latency_ms: self.latency_ms.as_deref(),
            profile: self.profile.as_deref(),
        }
    }
}

fn end(
    checker: &Checker<'_>,
    duration_s: Option<f64>,
    requests: Option<i64>,
) -> Result<End, InputError> {
    match (duration_s, requests) {
        (Some(seconds), None) => {
            let seconds = checker.positive("duration_s", seconds)?;
            Ok(End::At(Time::START + Span::from_secs(seconds)))
        }
        (None, Some(requests)) => match u64::try_from(requests) {
            Ok(requests) if requests > 0 => Ok(End::Requests(requests)),
            _ => Err(checker.refuse("requests", format!("{requests} is not above 0"))),
        },
        (None, None) => Err(checker.refuse("duration_s", "missing: give duration_s or requests")),
        (Some(_), Some(_)) => {
            Err(checker.refuse("duration_s", "cannot be given together with requests"))
        }
    }
}

fn network(checker: &Checker<'_>, raw: &RawNetwork) -> Result<Network, InputError> {
    let span = |key, us| Ok(Span::from_ms(checker.not_negative(key, us)? / 1e3));
    Ok(Network {
        ctrl: span("network.ctrl_us", raw.ctrl_us)?,
        data: span("network.data_us", raw.data_us)?,
        resp: span("network.resp_us", raw.resp_us)?,
    })
}
