//! A plan in force, from the JSON that `fermata plan --json` wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use fermata_core::Span;
use fermata_files::{Checker, InputError};
use fermata_plan::{Member, Plan, Pool};
use serde::Deserialize;

use super::case::Case;
use crate::input::GPUS_MAX;

/// A plan in force, in the words of what is asked for now.
pub(super) struct Previous {
    pub(super) plan: Plan,
    /// Models and kinds of it that are not in the file now.
    pub(super) unknown: Vec<String>,
}

#[derive(Deserialize)]
struct RawPlan {
    pools: Vec<RawPool>,
}

#[derive(Deserialize)]
struct RawPool {
    kind: String,
    gpus: Vec<usize>,
    share: u32,
    round_ms: Option<f64>,
    members: Vec<RawMember>,
}

#[derive(Deserialize)]
struct RawMember {
    model: String,
    rate: f64,
    batch: usize,
    occupancy: f64,
    latency_ms: f64,
}

impl Previous {
    /// Reads and checks a file.
    pub(super) fn read(file: &Path, case: &Case) -> Result<Self, InputError> {
        let text = fs::read_to_string(file)
            .map_err(|source| InputError::Read { file: file.to_owned(), source })?;
        let raw: RawPlan = fermata_files::parse_json(file, &text)?;
        let demands: BTreeMap<&str, usize> =
            case.names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        let mut unknown = BTreeSet::new();
        let mut pools = Vec::new();
        for (number, raw) in (1..).zip(&raw.pools) {
            let checker = Checker { file, place: Some(format!("pool {number}")) };
            raw.check(&checker)?;
            let Some(kind) = case.kinds.iter().position(|kind| *kind == raw.kind) else {
                unknown.insert(format!("gpu '{}'", raw.kind));
                continue;
            };
            let member = |raw: &RawMember| match demands.get(raw.model.as_str()) {
                Some(&demand) => Some(raw.of(demand)),
                None => {
                    unknown.insert(format!("'{}'", raw.model));
                    None
                }
            };
            let members = raw.members.iter().filter_map(member).collect();
            let round = raw.round_ms.map(Span::from_ms);
            pools.push(Pool { kind, gpus: raw.gpus.clone(), share: raw.share, round, members });
        }
        let plan = Plan { pools, ..Plan::default() };
        Ok(Self { plan, unknown: unknown.into_iter().collect() })
    }
}

impl RawPool {
    fn check(&self, checker: &Checker<'_>) -> Result<(), InputError> {
        if let Some(gpu) = self.gpus.iter().find(|&&gpu| gpu >= GPUS_MAX) {
            let reason = format!("{gpu} is not the number of a GPU, below {GPUS_MAX}");
            return Err(checker.refuse("gpus", reason));
        }
        if !(1..=100).contains(&self.share) {
            let reason = format!("{} is not a share from 1 to 100", self.share);
            return Err(checker.refuse("share", reason));
        }
        self.round_ms.map_or(Ok(0.0), |round| checker.positive("round_ms", round))?;
        for member in &self.members {
            checker.not_negative("rate", member.rate)?;
            checker.not_negative("latency_ms", member.latency_ms)?;
        }
        Ok(())
    }
}

impl RawMember {
    fn of(&self, demand: usize) -> Member {
        Member {
            demand,
            rate: self.rate,
            batch: self.batch,
            occupancy: self.occupancy,
            latency: Span::from_ms(self.latency_ms),
        }
    }
}
