//! The file of `fermata plan`: read as it is written, then checked key by key into what is asked
//! for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fermata_core::{Span, Time};
use fermata_dispatch::{Policy, Spare};
use fermata_files::{Checker, InputError};
use fermata_plan::shares::{Coefficients, Measured, Rules, Traits};
use fermata_plan::{Demand, Kind, Plan, Problem};
use fermata_sim::Arrivals;
use fermata_sim::confirm::{Confirmed, Demands, Trial, confirm};
use serde::Deserialize;

use super::progress::Progress;
use super::query::{AskedQuery, NamedSplit, RawQuery, Unsplit};
use crate::input::{self, Latency, LatencyKeys};
use crate::sim::GPUS_MAX;

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

/// A kind of GPU.
pub(super) struct NamedKind {
    pub(super) name: String,
    pub(super) kind: Kind,
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

/// A problem with the words for its parts.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) problem: Problem,
    /// Under which policy plans are tried.
    pub(super) policy: Policy,
    /// How GPUs are cut.
    pub(super) rules: Rules,
    /// By demand: what is known of it on shares.
    pub(super) traits: Vec<Traits>,
    /// By demand.
    pub(super) names: Vec<String>,
    /// By demand: when requests come, at its rate.
    pub(super) arrivals: Vec<Arrivals>,
    /// The names of the kinds.
    pub(super) kinds: Vec<String>,
    /// Whether prices were given.
    pub(super) priced: bool,
    /// How the objectives of queries are split.
    pub(super) splits: Vec<NamedSplit>,
    /// Queries that no split can serve.
    pub(super) unsplit: Vec<Unsplit>,
}

/// More demands than this are a slip of the keyboard.
const DEMANDS_MAX: usize = 100_000;

/// Bytes of a megabyte, as makers of memory count.
pub(super) const MEGABYTE: f64 = 1e6;

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

/// Latencies on one kind of GPU.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLatency {
    alpha_ms: Option<f64>,
    beta_ms: Option<f64>,
    latency_ms: Option<Vec<f64>>,
    profile: Option<String>,
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

impl Case {
    /// The same with as many GPUs as it takes.
    pub(super) fn without_limits(&self) -> Self {
        let mut case = self.clone();
        case.problem.limit = None;
        case.problem.kinds.iter_mut().for_each(|kind| kind.limit = None);
        case
    }

    /// Whether there may be so many GPUs.
    pub(super) fn allows(&self, plan: &Plan) -> bool {
        let within = |gpus: usize, limit: Option<usize>| limit.is_none_or(|limit| gpus <= limit);
        let kinds = self.problem.kinds.iter().enumerate();
        within(plan.gpus(), self.problem.limit)
            && kinds.into_iter().all(|(at, kind)| within(gpus_of(plan, at), kind.limit))
    }

    /// Tries a plan in the simulator, and gives its pools the GPUs that they turn out to need.
    pub(super) fn confirm(&self, plan: &mut Plan, trial: Trial, progress: &Progress) -> Confirmed {
        let demands = Demands {
            problem: &self.problem,
            rules: &self.rules,
            traits: &self.traits,
            arrivals: &self.arrivals,
            policy: self.policy,
            gpus_max: GPUS_MAX,
        };
        progress.expect(plan.pools.len());
        confirm(&demands, plan, trial, || progress.finish_one())
    }
}

/// What is known of a model, by its latencies on each kind of GPU, on the shares into which GPUs
/// are cut.
pub(super) fn traits_of(latencies: &[Option<Latency>]) -> Traits {
    let splits = Rules::default().splits;
    let shares: BTreeSet<u32> = splits.iter().flat_map(|&split| [split, 100 - split]).collect();
    let (mut usage, mut measured) = (None, Vec::new());
    for (kind, latency) in latencies.iter().enumerate() {
        let Some(Latency::Shares(of)) = latency else { continue };
        usage = usage.or(of.measured.usage);
        let on_share =
            |&percent: &u32| Measured { kind, percent, profile: of.measured.on_share(percent) };
        measured.extend(shares.iter().map(on_share));
    }
    Traits { usage: usage.unwrap_or_default(), measured }
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

/// How many GPUs of a kind a plan has.
pub(super) fn gpus_of(plan: &Plan, kind: usize) -> usize {
    let pools = plan.pools.iter().filter(|pool| pool.kind == kind);
    pools.flat_map(|pool| &pool.gpus).collect::<BTreeSet<_>>().len()
}

pub(super) fn scaled(span: Span, factor: f64) -> Span {
    if factor == 1.0 { span } else { Span::from_ms(span.as_ms() * factor) }
}

pub(super) fn rate_of(arrivals: &Arrivals) -> f64 {
    match arrivals {
        Arrivals::Process(_, rate) | Arrivals::Table(_, rate) => rate.at(Time::START),
        Arrivals::Recorded(..) => unreachable!("a file of demands has no recorded moments"),
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

fn bytes(megabytes: f64) -> u64 {
    (megabytes * MEGABYTE).round() as u64
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

/// Bytes, of a key that may be missing.
pub(super) fn memory(
    checker: &Checker<'_>,
    key: &str,
    megabytes: Option<f64>,
) -> Result<u64, InputError> {
    megabytes.map_or(Ok(0), |megabytes| checker.not_negative(key, megabytes).map(bytes))
}

/// The latencies of a model on each kind: those of the kind's own table, or else those for all.
pub(super) fn latencies(
    checker: &Checker<'_>,
    model: &str,
    keys: LatencyKeys<'_>,
    tables: &BTreeMap<String, RawLatency>,
    kinds: &[NamedKind],
) -> Result<Vec<Option<Latency>>, InputError> {
    let known = |name: &String| kinds.iter().any(|kind| kind.name == *name);
    if let Some(unknown) = tables.keys().find(|name| !known(name)) {
        let key = format!("on.{unknown}");
        return Err(checker.refuse(&key, format!("there is no [[gpu]] '{unknown}'")));
    }
    let everywhere = match keys.is_empty() && !tables.is_empty() {
        true => None,
        false => Some(keys.check(checker, model)?),
    };
    let on = |kind: &NamedKind| match tables.get(&kind.name) {
        None => Ok(everywhere.clone()),
        Some(raw) => {
            let place = checker.place.as_ref().map(|place| format!("{place}: on.{}", kind.name));
            let checker = Checker { file: checker.file, place };
            raw.keys().check(&checker, model).map(Some)
        }
    };
    kinds.iter().map(on).collect()
}

impl RawLatency {
    fn keys(&self) -> LatencyKeys<'_> {
        LatencyKeys {
            alpha_ms: self.alpha_ms,
            beta_ms: self.beta_ms,
            latency_ms: self.latency_ms.as_deref(),
            profile: self.profile.as_deref(),
        }
    }
}
