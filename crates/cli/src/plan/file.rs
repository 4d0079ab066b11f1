//! The file of `fermata plan`: read as it is written, then checked key by key into what is asked
//! for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fermata_core::Span;
use fermata_dispatch::{Policy, Spare};
use fermata_files::{Checker, InputError};
use fermata_plan::shares::{Coefficients, Rules};
use fermata_plan::{Demand, Kind, Problem};
use fermata_sim::Arrivals;
use serde::Deserialize;

use super::case::{Case, rate_of, scaled, traits_of};
use super::keys::{NamedKind, RawLatency, bytes, latencies, memory};
use super::query::{AskedQuery, RawQuery};
use crate::input::{self, GPUS_MAX, Latency, LatencyKeys};

/// What is asked for, as the file says it.
pub(super) struct PlanFile {
    limit: Option<usize>,
    /// What spare executors are for where plans are tried.
    spare: Spare,
    kinds: Vec<NamedKind>,
    /// Whether they have prices.
    priced: bool,
    demands: Vec<Asked>,
    queries: Vec<AskedQuery>,
    /// What shares of one GPU do to each other.
    coefficients: Coefficients,
}

/// One demand of the file.
#[derive(Clone, Debug)]
struct Asked {
    name: String,
    /// By kind; `None` where the model does not run.
    latencies: Vec<Option<Latency>>,
    slo: Span,
    arrivals: Arrivals,
    memory: u64,
    workspace: u64,
}

/// More demands than this are a slip of the keyboard.
const DEMANDS_MAX: usize = 100_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    gpus: Option<i64>,
    spare: Option<String>,
    interference: Option<String>,
    #[serde(default)]
    gpu: Vec<RawKind>,
    #[serde(default)]
    demand: Vec<RawDemand>,
    #[serde(default)]
    query: Vec<RawQuery>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKind {
    name: Option<String>,
    memory_mb: Option<f64>,
    memory_gb: Option<f64>,
    price: Option<f64>,
    limit: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDemand {
    model: Option<String>,
    alpha_ms: Option<f64>,
    beta_ms: Option<f64>,
    latency_ms: Option<Vec<f64>>,
    profile: Option<String>,
    #[serde(default)]
    on: BTreeMap<String, RawLatency>,
    slo_ms: Option<f64>,
    rate: Option<f64>,
    memory_mb: Option<f64>,
    workspace_mb: Option<f64>,
    #[serde(default = "input::poisson")]
    arrivals: String,
    #[serde(default = "input::one")]
    copies: i64,
}

impl PlanFile {
    /// Reads and checks a file.
    pub(super) fn read(file: &Path) -> Result<Self, InputError> {
        let text = fs::read_to_string(file)
            .map_err(|source| InputError::Read { file: file.to_owned(), source })?;
        let raw: RawFile = fermata_files::parse(file, &text, &["gpu", "demand", "query", "node"])?;
        let top = Checker { file, place: None };
        let limit = raw.gpus.map(|gpus| top.count("gpus", gpus, GPUS_MAX)).transpose()?;
        // What a plan counts is the fewest GPUs: those that are spare are given away.
        let spare = input::spare(&top, raw.spare.as_deref())?.unwrap_or(Spare::Release);
        let kinds = check_kinds(file, &raw.gpu)?;
        if raw.demand.is_empty() && raw.query.is_empty() {
            return Err(top.refuse("demand", "there is no [[demand]] and no [[query]]"));
        }
        let mut demands = Vec::new();
        for (number, demand) in (1..).zip(&raw.demand) {
            demands.extend(demand.check(file, number, &kinds)?);
            if demands.len() > DEMANDS_MAX {
                return Err(top.refuse("demand", format!("there are more than {DEMANDS_MAX}")));
            }
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = demands.iter().find(|demand| !seen.insert(&demand.name)) {
            let place = Some(format!("demand '{}'", twice.name));
            return Err(Checker { file, place }.refuse("model", "two demands have it"));
        }
        let queries =
            (1..).zip(&raw.query).map(|(number, query)| query.check(file, number, &kinds));
        let queries = queries.collect::<Result<Vec<AskedQuery>, InputError>>()?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = queries.iter().find(|query| !seen.insert(&query.name)) {
            let place = Some(format!("query '{}'", twice.name));
            return Err(Checker { file, place }.refuse("name", "two queries have it"));
        }
        let priced = raw.gpu.iter().any(|kind| kind.price.is_some());
        let asked = demands.iter().map(|asked| asked.latencies.as_slice());
        let latencies = asked.chain(queries.iter().flat_map(AskedQuery::latencies));
        let coefficients = interference(&top, raw.interference.as_deref(), latencies)?;
        Ok(Self { limit, spare, kinds, priced, demands, queries, coefficients })
    }

    /// The problem, with all objectives and rates multiplied.
    pub(super) fn case(&self, slo_factor: f64, rate_factor: f64) -> Case {
        let (mut demands, mut arrivals) = (Vec::new(), Vec::new());
        for asked in &self.demands {
            let slo = scaled(asked.slo, slo_factor);
            let rate = rate_factor * rate_of(&asked.arrivals);
            let profile = |latency: &Option<Latency>| Some(latency.as_ref()?.profile(slo));
            demands.push(Demand {
                profiles: asked.latencies.iter().map(profile).collect(),
                slo,
                rate,
                memory: asked.memory,
                workspace: asked.workspace,
            });
            arrivals.push(asked.arrivals.at_rate(rate));
        }
        let mut case = Case {
            problem: Problem {
                demands,
                kinds: self.kinds.iter().map(|each| each.kind.clone()).collect(),
                limit: self.limit,
            },
            policy: Policy::FERMATA.with_spare(self.spare),
            rules: Rules { coefficients: self.coefficients, ..Rules::default() },
            traits: self.demands.iter().map(|asked| traits_of(&asked.latencies)).collect(),
            names: self.demands.iter().map(|asked| asked.name.clone()).collect(),
            arrivals,
            kinds: self.kinds.iter().map(|each| each.name.clone()).collect(),
            priced: self.priced,
            splits: Vec::new(),
            unsplit: Vec::new(),
        };
        for query in &self.queries {
            query.add(&mut case, slo_factor, rate_factor);
        }
        case
    }
}

/// What neighbours do to each other: as a file says, or the one beside the models' profiles, where
/// there is one.
fn interference<'a>(
    checker: &Checker<'_>,
    named: Option<&str>,
    latencies: impl Iterator<Item = &'a [Option<Latency>]>,
) -> Result<Coefficients, InputError> {
    let read = |file: &Path| {
        fermata_files::read_interference(file)
            .map_err(|reason| checker.refuse("interference", reason))
    };
    if let Some(named) = named {
        // A path in a file is meant as seen from that file.
        return read(&checker.file.parent().unwrap_or(Path::new("")).join(named));
    }
    let beside = |latency: &Option<Latency>| match latency {
        Some(Latency::Shares(of)) => Some(of.file.with_file_name(fermata_files::INTERFERENCE)),
        _ => None,
    };
    let files: BTreeSet<PathBuf> = latencies.flatten().filter_map(beside).collect();
    let found: Vec<&PathBuf> = files.iter().filter(|file| file.exists()).collect();
    match found[..] {
        [] => Ok(Coefficients::default()),
        [only] => read(only),
        [first, second, ..] => {
            let (first, second) = (first.display(), second.display());
            let reason = format!("missing: there are {first} and {second}, say which counts");
            Err(checker.refuse("interference", reason))
        }
    }
}

fn check_kinds(file: &Path, raw: &[RawKind]) -> Result<Vec<NamedKind>, InputError> {
    if raw.is_empty() {
        return Ok(vec![NamedKind { name: "gpu".to_owned(), kind: Kind::UNLIMITED }]);
    }
    let priced = raw.iter().any(|kind| kind.price.is_some());
    let mut kinds: Vec<NamedKind> = Vec::new();
    for (number, raw) in (1..).zip(raw) {
        let unnamed = Checker { file, place: Some(format!("gpu {number}")) };
        let name = unnamed.name("name", raw.name.as_deref())?;
        let checker = Checker { file, place: Some(format!("gpu '{name}'")) };
        if kinds.iter().any(|other| other.name == name) {
            return Err(checker.refuse("name", "two kinds have it"));
        }
        let memory = match (raw.memory_mb, raw.memory_gb) {
            (Some(_), Some(_)) => {
                return Err(checker.refuse("memory_mb", "cannot be given together with memory_gb"));
            }
            (Some(mb), None) => bytes(checker.positive("memory_mb", mb)?),
            (None, Some(gb)) => bytes(1e3 * checker.positive("memory_gb", gb)?),
            (None, None) => u64::MAX,
        };
        let price = match raw.price {
            Some(price) => checker.positive("price", price)?,
            None if priced => return Err(checker.refuse("price", "missing: other kinds have one")),
            // The fewest GPUs are the cheapest then.
            None => Kind::UNLIMITED.price,
        };
        let limit = raw.limit.map(|limit| checker.count("limit", limit, GPUS_MAX)).transpose()?;
        kinds.push(NamedKind { name: name.to_owned(), kind: Kind { memory, price, limit } });
    }
    Ok(kinds)
}

impl RawDemand {
    fn check(
        &self,
        file: &Path,
        number: usize,
        kinds: &[NamedKind],
    ) -> Result<Vec<Asked>, InputError> {
        let unnamed = Checker { file, place: Some(format!("demand {number}")) };
        let model = unnamed.name("model", self.model.as_deref())?;
        let checker = Checker { file, place: Some(format!("demand '{model}'")) };
        let slo = checker.positive("slo_ms", checker.required("slo_ms", self.slo_ms)?)?;
        let asked = Asked {
            name: model.to_owned(),
            latencies: latencies(&checker, model, self.keys(), &self.on, kinds)?,
            slo: Span::from_ms(slo),
            arrivals: input::arrivals(&checker, &self.arrivals, self.rate)?,
            memory: memory(&checker, "memory_mb", self.memory_mb)?,
            workspace: memory(&checker, "workspace_mb", self.workspace_mb)?,
        };
        let copies = checker.count("copies", self.copies, DEMANDS_MAX)?;
        let copy = |name| Asked { name, ..asked.clone() };
        Ok(input::copies_of(model, copies).into_iter().map(copy).collect())
    }

    fn keys(&self) -> LatencyKeys<'_> {
        LatencyKeys {
            alpha_ms: self.alpha_ms,
            beta_ms: self.beta_ms,
            latency_ms: self.latency_ms.as_deref(),
            profile: self.profile.as_deref(),
        }
    }
}
