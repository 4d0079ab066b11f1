//! Queries of the file: models that call each other under one objective, which is split among them.
//! Each call then is a demand of its own.

use std::collections::BTreeMap;
use std::path::Path;

use fermata_core::Span;
use fermata_files::{Checker, InputError};
use fermata_plan::Demand;
use fermata_plan::query::{Budget, NoSplit, Query, Split, Stage, split};
use fermata_sim::Arrivals;
use serde::Deserialize;

use super::case::{Case, NamedSplit, Unsplit, rate_of, scaled, traits_of};
use super::keys::{NamedKind, RawLatency, latencies, memory};
use crate::input::{self, Latency, LatencyKeys};

/// What a node has to keep: in rounds, who just misses a batch waits for all of it.
const BUDGET: Budget = Budget::Wait;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuery {
    name: Option<String>,
    slo_ms: Option<f64>,
    rate: Option<f64>,
    #[serde(default = "input::poisson")]
    arrivals: String,
    #[serde(default)]
    node: Vec<RawNode>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    model: Option<String>,
    alpha_ms: Option<f64>,
    beta_ms: Option<f64>,
    latency_ms: Option<Vec<f64>>,
    profile: Option<String>,
    #[serde(default)]
    on: BTreeMap<String, RawLatency>,
    memory_mb: Option<f64>,
    workspace_mb: Option<f64>,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default = "once")]
    gamma: f64,
}

fn once() -> f64 {
    1.0
}

/// A query of the file.
#[derive(Clone, Debug)]
pub(super) struct AskedQuery {
    pub(super) name: String,
    slo: Span,
    arrivals: Arrivals,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    model: String,
    /// By kind; `None` where the model does not run.
    latencies: Vec<Option<Latency>>,
    memory: u64,
    workspace: u64,
    after: Vec<usize>,
    gamma: f64,
}

impl RawQuery {
    pub(super) fn check(
        &self,
        file: &Path,
        number: usize,
        kinds: &[NamedKind],
    ) -> Result<AskedQuery, InputError> {
        let unnamed = Checker { file, place: Some(format!("query {number}")) };
        let name = unnamed.name("name", self.name.as_deref())?;
        let place = format!("query '{name}'");
        let checker = Checker { file, place: Some(place.clone()) };
        let slo = checker.positive("slo_ms", checker.required("slo_ms", self.slo_ms)?)?;
        if self.node.is_empty() {
            return Err(checker.refuse("node", "there is no [[query.node]]"));
        }
        let mut nodes: Vec<Node> = Vec::new();
        for (number, raw) in (1..).zip(&self.node) {
            let node = raw.check(file, &place, number, kinds, &nodes)?;
            nodes.push(node);
        }
        let query = AskedQuery {
            name: name.to_owned(),
            slo: Span::from_ms(slo),
            arrivals: input::arrivals(&checker, &self.arrivals, self.rate)?,
            nodes,
        };
        let runs = |kind: usize| query.nodes.iter().all(|node| node.latencies[kind].is_some());
        let Some(kind) = (0..kinds.len()).find(|&kind| runs(kind)) else {
            return Err(checker.refuse("node", "no kind of GPU runs all of them"));
        };
        match query.split_on(kind, query.slo, rate_of(&query.arrivals)) {
            Err(NoSplit::Tangled) => Err(checker.refuse(
                "node",
                "the ways part and join in a manner that is not series and parallel",
            )),
            Ok(_) | Err(NoSplit::TooTight { .. }) => Ok(query),
        }
    }
}

impl RawNode {
    fn check(
        &self,
        file: &Path,
        query: &str,
        number: usize,
        kinds: &[NamedKind],
        before: &[Node],
    ) -> Result<Node, InputError> {
        let unnamed = Checker { file, place: Some(format!("{query}: node {number}")) };
        let model = unnamed.name("model", self.model.as_deref())?;
        let checker = Checker { file, place: Some(format!("{query}: node '{model}'")) };
        if before.iter().any(|node| node.model == model) {
            return Err(checker.refuse("model", "two nodes have it"));
        }
        let place = |name: &String| {
            let place = before.iter().position(|node| node.model == *name);
            place.ok_or_else(|| {
                checker.refuse("after", format!("there is no node '{name}' before this one"))
            })
        };
        let keys = LatencyKeys {
            alpha_ms: self.alpha_ms,
            beta_ms: self.beta_ms,
            latency_ms: self.latency_ms.as_deref(),
            profile: self.profile.as_deref(),
        };
        Ok(Node {
            model: model.to_owned(),
            latencies: latencies(&checker, model, keys, &self.on, kinds)?,
            memory: memory(&checker, "memory_mb", self.memory_mb)?,
            workspace: memory(&checker, "workspace_mb", self.workspace_mb)?,
            after: self.after.iter().map(place).collect::<Result<Vec<usize>, InputError>>()?,
            gamma: checker.positive("gamma", self.gamma)?,
        })
    }
}

impl AskedQuery {
    /// The latencies of its nodes, by kind.
    pub(super) fn latencies(&self) -> impl Iterator<Item = &[Option<Latency>]> {
        self.nodes.iter().map(|node| node.latencies.as_slice())
    }

    /// Adds its nodes to the demands of a case, on the kind of GPU that is cheapest for all of
    /// them; or says that its objective is too short.
    pub(super) fn add(&self, case: &mut Case, slo_factor: f64, rate_factor: f64) {
        let slo = scaled(self.slo, slo_factor);
        let rate = rate_factor * rate_of(&self.arrivals);
        let kinds = &case.problem.kinds;
        let runs = |kind: &usize| self.nodes.iter().all(|node| node.latencies[*kind].is_some());
        let (mut cheapest, mut slo_min): (Option<(f64, usize, Split)>, _) = (None, Span::MAX);
        for kind in (0..kinds.len()).filter(runs) {
            match self.split_on(kind, slo, rate) {
                Ok(split) => {
                    let cost = split.gpus() * kinds[kind].price;
                    if cheapest.as_ref().is_none_or(|(other, ..)| cost < *other) {
                        cheapest = Some((cost, kind, split));
                    }
                }
                Err(NoSplit::TooTight { slo_min: least }) => slo_min = slo_min.min(least),
                Err(NoSplit::Tangled) => unreachable!("the file was refused"),
            }
        }
        let Some((_, kind, split)) = cheapest else {
            case.unsplit.push(Unsplit { name: self.name.clone(), slo, slo_min });
            return;
        };
        case.splits.push(NamedSplit {
            name: self.name.clone(),
            slo,
            first: case.names.len(),
            models: self.nodes.iter().map(|node| node.model.clone()).collect(),
        });
        for (node, part) in self.nodes.iter().zip(&split.stages) {
            let mut profiles = vec![None; kinds.len()];
            profiles[kind] = node.latencies[kind].as_ref().map(|latency| latency.profile(part.slo));
            case.problem.demands.push(Demand {
                profiles,
                slo: part.slo,
                rate: part.rate,
                memory: node.memory,
                workspace: node.workspace,
            });
            case.traits.push(traits_of(&node.latencies));
            case.names.push(format!("{}/{}", self.name, node.model));
            case.arrivals.push(self.arrivals.at_rate(part.rate));
        }
    }

    /// How the objective would be split on GPUs of a kind that runs all nodes.
    fn split_on(&self, kind: usize, slo: Span, rate: f64) -> Result<Split, NoSplit> {
        let stage = |node: &Node| Stage {
            profile: node.latencies[kind]
                .as_ref()
                .expect("the node runs on this kind")
                .profile(slo),
            fan_out: node.gamma,
            after: node.after.clone(),
        };
        split(&Query { rate, slo, stages: self.nodes.iter().map(stage).collect() }, BUDGET)
    }
}
