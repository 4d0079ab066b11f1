//! Modules that use each other in a circle.
//!
//! Only modules with the same parent are compared: what `a::b` uses of `c::d` is used by `a` of
//! `c`. A module and its own parts may use each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::module::{CrateModules, ModuleId};

/// Modules of which each uses the next one, and the last one the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// For each module a place where it uses the next one.
    pub uses: Vec<Use>,
}

/// A place where a module uses another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The file with the line.
    pub place: String,
    /// The module that is written there.
    pub from: String,
    /// The module that is used.
    pub to: String,
}

impl fmt::Display for Cycle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Use { place, from, to } in &self.uses {
            writeln!(out, "{place}: {from} uses {to}")?;
        }
        Ok(())
    }
}

/// By module, the modules with the same parent that it uses, and where it does so first.
type Graph = BTreeMap<ModuleId, BTreeMap<ModuleId, String>>;

/// A shortest cycle of each set of modules that all reach each other.
pub fn cycles(modules: &CrateModules) -> Vec<Cycle> {
    let graph = graph(modules);
    let mut found = Vec::new();
    let mut covered = BTreeSet::new();
    for &start in graph.keys() {
        if covered.contains(&start) {
            continue;
        }
        if let Some(circle) = shortest_circle(&graph, start) {
            let next = circle.iter().cycle().skip(1);
            let name = |id: ModuleId| modules.module(id).name.clone();
            let uses = circle.iter().zip(next).map(|(&from, &to)| Use {
                place: graph[&from][&to].clone(),
                from: name(from),
                to: name(to),
            });
            found.push(Cycle { uses: uses.collect() });
            covered.extend(circle);
        }
    }
    found
}

fn graph(modules: &CrateModules) -> Graph {
    let mut graph = Graph::new();
    for (id, module) in modules.iter() {
        let from = modules.ancestry(id);
        for path in &module.paths {
            let Some(target) = modules.resolve(id, &path.names) else { continue };
            let to = modules.ancestry(target);
            // The first module in which the two are not in the same part.
            if let Some((&a, &b)) = from.iter().zip(&to).find(|(a, b)| a != b) {
                let place = || format!("{}:{}", module.file.display(), path.line);
                graph.entry(a).or_default().entry(b).or_insert_with(place);
            }
        }
    }
    graph
}

/// The modules on a shortest way from a module back to it, beginning with it.
fn shortest_circle(graph: &Graph, start: ModuleId) -> Option<Vec<ModuleId>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = way[way.len() - 1];
            for &next in graph.get(&last).into_iter().flat_map(BTreeMap::keys) {
                if next == start {
                    return Some(way);
                }
                if seen.insert(next) {
                    longer.push(way.iter().copied().chain([next]).collect());
                }
            }
        }
        ways = longer;
    }
    None
}
