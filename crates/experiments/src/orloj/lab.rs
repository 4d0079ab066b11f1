//! Measuring finish rates: every policy on the same requests, several seeds, runs side by side.

use fermata_core::Span;
use fermata_dispatch::{Network, Policy, Spare};
use fermata_sim::Alone;
use fermata_sim::{Scenario, simulate, spread};
use fermata_workload::Rate;

use super::Bench;
use crate::trials::orloj::{Clairvoyant, Known, Setting, Trial};
use crate::trials::symphony::Meter;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Contender {
    /// A policy that is told so much.
    Policy(Policy, Known),
    /// One that knows every alone time; and maybe who will come.
    Clairvoyant {
        /// Who will come, too.
        foresees: bool,
    },
}

impl Contender {
    /// Ours. The paper counts requests in time and nothing else, so spare executors are to release.
    pub(super) fn fermata(known: Known) -> Self {
        Self::Policy(Policy::RELEASE, known)
    }

    /// A policy by its name, which is ours.
    pub(super) fn named(name: &str, known: Known) -> Self {
        let policy: Policy = name.parse().expect("an experiment names policies that exist");
        Self::Policy(policy.with_spare(Spare::Release), known)
    }

    /// A baseline with the mean and with the longest of ten runs.
    pub(super) fn fair(name: &str) -> [Self; 2] {
        [Known::Mean, Known::LongestOfTen].map(|known| Self::named(name, known))
    }

    fn known(self) -> Known {
        match self {
            Self::Policy(_, known) => known,
            Self::Clairvoyant { .. } => Known::Mean,
        }
    }
}

/// The policies of the paper that are not its own.
pub(super) const BASELINES: [&str; 3] = ["clipper", "nexus", "clockwork"];

/// A load of some requests under an objective.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) alone: Alone,
    pub(super) setting: Setting,
    pub(super) times_p99: f64,
    pub(super) who: Contender,
}

/// How thoroughly it is measured, and with which arrivals.
pub(super) struct Lab<'a> {
    bench: &'a Bench<'a>,
    requests: usize,
    seeds: u64,
    /// How the rate changes, by request: steps of equal numbers of minutes.
    pub(super) shape: Option<Vec<f64>>,
    pub(super) network: Network,
}

impl<'a> Lab<'a> {
    /// Runs of so many requests, and so many of them; a few short ones with `--quick`.
    pub(super) fn new(bench: &'a Bench<'a>, requests: usize, seeds: u64) -> Self {
        let quick = bench.suite.quick;
        let (requests, seeds) = if quick { (requests.min(3_000), 1) } else { (requests, seeds) };
        Self { bench, requests, seeds, shape: None, network: Network::default() }
    }

    /// The same with a rate that follows a trace.
    pub(super) fn shaped(mut self) -> anyhow::Result<Self> {
        let counts = self.bench.args.trace.counts()?;
        let minutes = counts.functions.iter().map(|f| f.by_minute.len()).max().unwrap_or(0);
        let calls = |minute: usize| {
            let calls = counts.functions.iter().map(|f| f.by_minute.get(minute).copied());
            calls.map(|calls| f64::from(calls.unwrap_or(0))).sum::<f64>()
        };
        let calls: Vec<f64> = (0..minutes).map(calls).collect();
        let mean = calls.iter().sum::<f64>() / calls.len().max(1) as f64;
        self.shape = Some(calls.into_iter().map(|calls| calls / mean).collect());
        Ok(self)
    }

    /// The finish rate of each cell, the mean over the seeds.
    pub(super) fn measure(&self, cells: &[Cell]) -> Vec<f64> {
        let jobs: Vec<(usize, u64)> = (0..cells.len())
            .flat_map(|cell| (0..self.seeds).map(move |seed| (cell, seed)))
            .collect();
        self.bench.progress.expect(jobs.len());
        let found = spread(&jobs, self.bench.suite.threads(), |&(cell, seed)| {
            let rate = self.run(&cells[cell], self.bench.suite.seed + seed);
            self.bench.progress.finish_one();
            rate
        });
        let seeds = self.seeds as usize;
        found.chunks(seeds).map(|rates| rates.iter().sum::<f64>() / seeds as f64).collect()
    }

    fn run(&self, cell: &Cell, seed: u64) -> f64 {
        // A clairvoyant plays every batch out, and takes its time.
        let requests = match cell.who {
            Contender::Clairvoyant { .. } => self.requests / 4,
            Contender::Policy(..) => self.requests,
        };
        let trial = Trial::new(&cell.alone, cell.setting, cell.times_p99, requests, seed);
        let scenario = self.scenario(&trial, cell.who.known());
        let stats = match cell.who {
            Contender::Policy(policy, _) => {
                simulate(&scenario, &mut policy.dispatcher(self.network), &mut (), None)
            }
            Contender::Clairvoyant { foresees } => {
                simulate(&scenario, &mut Clairvoyant::new(&scenario, foresees), &mut (), None)
            }
        };
        let total = stats.total();
        total.in_time as f64 / total.offered.max(1) as f64
    }

    fn scenario(&self, trial: &Trial, known: Known) -> Scenario {
        let rate = match &self.shape {
            None => Rate::Constant(1.0),
            Some(shape) => {
                let step =
                    Span::from_secs(self.requests as f64 / trial.rate() / shape.len() as f64);
                let steps = (0..).zip(shape);
                let begin = |at: u64| fermata_core::Time::START + step * at;
                Rate::Steps(steps.map(|(at, &rate)| (begin(at), rate)).collect())
            }
        };
        Scenario { network: self.network, ..trial.scenario_at(known, &rate) }
    }

    /// How many requests, in how many runs: for a note below a table.
    pub(super) fn note(&self) -> String {
        format!("{} requests a run, the mean of {} runs", self.requests, self.seeds)
    }
}
