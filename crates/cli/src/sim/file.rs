//! The file of `fermata sim`: read as it is written, then checked key by key into a scenario.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fermata_core::{ClassId, Profile, Span, Time};
use fermata_dispatch::{ModelSpec, Network};
use fermata_sim::{Arrivals, End, Load, Scenario};
use fermata_workload::{Process, Rate, Recording};
use serde::Deserialize;

use super::fault::{self, RawFault};
use crate::input::InputError;

/// A scenario and the names of its models.
pub(super) struct SimFile {
    pub(super) scenario: Scenario,
    pub(super) names: Vec<String>,
}

/// Larger pools are a slip of the keyboard.
pub(crate) const GPUS_MAX: usize = 100_000;
const MODELS_MAX: usize = 100_000;
/// More requests than this take hours to simulate: a slip of the pen, most likely.
const REQUESTS_MAX: f64 = 1e10;
/// One request a nanosecond: time has no finer grain.
const RATE_MAX: f64 = 1e9;
/// Thirty years; the clock's nanoseconds last for five hundred.
const SECONDS_MAX: f64 = 1e9;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    gpus: Option<i64>,
    duration_s: Option<f64>,
    requests: Option<i64>,
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
    slo_ms: Option<f64>,
    rate: Option<f64>,
    #[serde(default = "poisson")]
    arrivals: String,
    #[serde(default = "one")]
    copies: i64,
}

fn poisson() -> String {
    "poisson".to_owned()
}

fn one() -> i64 {
    1
}

impl SimFile {
    /// Reads and checks a file.
    pub(super) fn read(file: &Path) -> Result<Self, InputError> {
        let text = fs::read_to_string(file)
            .map_err(|source| InputError::Read { file: file.to_owned(), source })?;
        let raw = parse(file, &text)?;
        let top = Checker { file, place: None };
        let gpus = top.count("gpus", top.required("gpus", raw.gpus)?, GPUS_MAX)?;
        let end = top.end(raw.duration_s, raw.requests)?;
        let network = top.network(&raw.network)?;
        if !(0.0..1.0).contains(&raw.noise) {
            return Err(top.refuse("noise", format!("{} is not from 0 to below 1", raw.noise)));
        }
        if raw.model.is_empty() {
            return Err(top.refuse("model", "there is no [[model]]"));
        }
        let (mut loads, mut names) = (Vec::new(), Vec::new());
        for (number, model) in (1..).zip(&raw.model) {
            let (load, copies) = model.check(file, number, network)?;
            let copies = names_of(model, copies);
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
        Ok(Self { scenario, names })
    }
}

fn names_of(model: &RawModel, copies: usize) -> Vec<String> {
    let name = model.name.clone().unwrap_or_default();
    match copies {
        1 => vec![name],
        several => (1..=several).map(|copy| format!("{name}-{copy}")).collect(),
    }
}

impl RawModel {
    fn check(
        &self,
        file: &Path,
        number: usize,
        network: Network,
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
        let profile = self.profile(&checker, slo)?;
        let alone = profile.shortest() + network.lead(1) + network.resp;
        if slo < alone {
            let of = if alone > profile.shortest() { "with the network's delays" } else { "l(1)" };
            let reason = format!(
                "{slo_ms} ms is below the {} ms that a batch of one takes ({of}): \
                 no request could be in time",
                alone.as_ms()
            );
            return Err(checker.refuse("slo_ms", reason));
        }
        let copies = checker.count("copies", self.copies, MODELS_MAX)?;
        let spec = Arc::new(ModelSpec::uniform(slo, profile));
        Ok((Load { spec, arrivals: self.arrivals(&checker)? }, copies))
    }

    fn profile(&self, checker: &Checker<'_>, slo: Span) -> Result<Profile, InputError> {
        match (&self.latency_ms, self.alpha_ms, self.beta_ms) {
            (Some(table), None, None) => {
                for &latency in table {
                    checker.positive("latency_ms", latency)?;
                }
                let table = table.iter().map(|&latency| Span::from_ms(latency));
                Profile::from_table(table)
                    .map_err(|error| checker.refuse("latency_ms", error.to_string()))
            }
            (None, Some(alpha), Some(beta)) => {
                let alpha = Span::from_ms(checker.not_negative("alpha_ms", alpha)?);
                let beta = Span::from_ms(checker.not_negative("beta_ms", beta)?);
                Profile::linear(alpha, beta, slo)
                    .map_err(|error| checker.refuse("alpha_ms", error.to_string()))
            }
            (Some(_), ..) => {
                Err(checker
                    .refuse("latency_ms", "cannot be given together with alpha_ms or beta_ms"))
            }
            (None, None, None) => {
                Err(checker.refuse("alpha_ms", "missing: give alpha_ms and beta_ms, or latency_ms"))
            }
            (None, None, _) => Err(checker.refuse("alpha_ms", "missing")),
            (None, _, None) => Err(checker.refuse("beta_ms", "missing")),
        }
    }

    fn arrivals(&self, checker: &Checker<'_>) -> Result<Arrivals, InputError> {
        let rate = self.rate.map(|rate| checker.rate(rate)).transpose()?;
        if let Some(trace) = self.arrivals.strip_prefix("trace:") {
            // A path in a file is meant as seen from that file.
            let trace = checker.file.parent().unwrap_or(Path::new("")).join(trace);
            let recording = Recording::read(&trace)
                .map_err(|error| checker.refuse("arrivals", error.to_string()))?;
            let rate = rate.unwrap_or(recording.rate());
            return Ok(Arrivals::Table(recording.gaps(), Rate::Constant(rate)));
        }
        let process: Process = self
            .arrivals
            .parse()
            .map_err(|error| checker.refuse("arrivals", format!("{error}")))?;
        Ok(Arrivals::Process(process, Rate::Constant(checker.required("rate", rate)?)))
    }
}

/// Checks the values of one table, and names file, table and key of what it refuses.
pub(super) struct Checker<'a> {
    pub(super) file: &'a Path,
    pub(super) place: Option<String>,
}

impl Checker<'_> {
    pub(super) fn refuse(&self, key: &str, reason: impl Into<String>) -> InputError {
        let (file, place) = (self.file.to_owned(), self.place.clone());
        InputError::Key { file, place, key: key.to_owned(), reason: reason.into() }
    }

    pub(super) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, InputError> {
        value.ok_or_else(|| self.refuse(key, "missing"))
    }

    pub(super) fn positive(&self, key: &str, value: f64) -> Result<f64, InputError> {
        if value > 0.0 && value <= SECONDS_MAX {
            return Ok(value);
        }
        Err(self.refuse(
            key,
            format!("{} is not a number above 0 and at most {SECONDS_MAX}", shown(value)),
        ))
    }

    pub(super) fn not_negative(&self, key: &str, value: f64) -> Result<f64, InputError> {
        if (0.0..=SECONDS_MAX).contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(key, format!("{} is not a number from 0 to {SECONDS_MAX}", shown(value))))
    }

    fn rate(&self, rate: f64) -> Result<f64, InputError> {
        if rate > 0.0 && rate <= RATE_MAX {
            return Ok(rate);
        }
        let reason = format!(
            "{} is not a number of requests a second above 0, at most {RATE_MAX}",
            shown(rate)
        );
        Err(self.refuse("rate", reason))
    }

    fn count(&self, key: &str, value: i64, most: usize) -> Result<usize, InputError> {
        match usize::try_from(value) {
            Ok(count) if count >= 1 && count <= most => Ok(count),
            _ => Err(self.refuse(key, format!("{value} is not a whole number from 1 to {most}"))),
        }
    }

    fn end(&self, duration_s: Option<f64>, requests: Option<i64>) -> Result<End, InputError> {
        match (duration_s, requests) {
            (Some(seconds), None) => {
                let seconds = self.positive("duration_s", seconds)?;
                Ok(End::At(Time::START + Span::from_secs(seconds)))
            }
            (None, Some(requests)) => match u64::try_from(requests) {
                Ok(requests) if requests > 0 => Ok(End::Requests(requests)),
                _ => Err(self.refuse("requests", format!("{requests} is not above 0"))),
            },
            (None, None) => Err(self.refuse("duration_s", "missing: give duration_s or requests")),
            (Some(_), Some(_)) => {
                Err(self.refuse("duration_s", "cannot be given together with requests"))
            }
        }
    }

    fn network(&self, raw: &RawNetwork) -> Result<Network, InputError> {
        let span = |key, us| Ok(Span::from_ms(self.not_negative(key, us)? / 1e3));
        Ok(Network {
            ctrl: span("network.ctrl_us", raw.ctrl_us)?,
            data: span("network.data_us", raw.data_us)?,
            resp: span("network.resp_us", raw.resp_us)?,
        })
    }
}

/// Reads TOML. An error of syntax has a line, any other a key.
fn parse(file: &Path, text: &str) -> Result<RawFile, InputError> {
    let syntax = |error: &toml::de::Error| {
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
        let line = before.matches('\n').count();
        let written: String = text.lines().nth(line).unwrap_or_default().chars().take(60).collect();
        let reason = format!("{}: '{}'", in_one_line(error.message()), written.trim());
        InputError::Syntax { file: file.to_owned(), line: line + 1, reason }
    };
    let document = toml::Deserializer::parse(text).map_err(|error| syntax(&error))?;
    serde_path_to_error::deserialize(document).map_err(|error| {
        let reason = in_one_line(error.inner().message());
        let (place, key) = locate(text, error.path());
        if key.is_empty() {
            return syntax(error.inner());
        }
        InputError::Key { file: file.to_owned(), place, key, reason }
    })
}

/// Which table, by name where it has one, and which key of it.
fn locate(text: &str, path: &serde_path_to_error::Path) -> (Option<String>, String) {
    use serde_path_to_error::Segment;
    let mut segments = path.iter().peekable();
    let mut place = None;
    let mut key = String::new();
    while let Some(segment) = segments.next() {
        match (segment, segments.peek()) {
            (Segment::Map { key: table }, Some(Segment::Seq { index })) if key.is_empty() => {
                let index = *index;
                // A list of plain values is a key like any other; only tables have a place.
                if table == "model" || table == "fault" {
                    let name = name_in(text, table, index);
                    let name = name.map_or((index + 1).to_string(), |name| format!("'{name}'"));
                    place = Some(format!("{table} {name}"));
                    segments.next();
                } else {
                    key.clone_from(table);
                }
            }
            (Segment::Map { key: part }, _) if key.is_empty() => key.clone_from(part),
            (Segment::Map { key: part }, _) => key = format!("{key}.{part}"),
            _ => {}
        }
    }
    (place, key)
}

fn name_in(text: &str, table: &str, index: usize) -> Option<String> {
    let document: toml::Table = text.parse().ok()?;
    let name = document.get(table)?.get(index)?.get("name")?.as_str()?;
    (!name.contains(char::is_control)).then(|| name.to_owned())
}

/// Serde names Rust's types, which the writer of a file need not know.
fn in_one_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join(", ");
    text.replace("expected f64", "expected a number")
        .replace("expected i64", "expected a whole number")
}

/// A number as people write it: three hundred zeros are not one line to read.
fn shown(value: f64) -> String {
    if value.abs() < 1e15 { value.to_string() } else { format!("{value:e}") }
}
