//! The methods that are compared, and the checker after each of them.

use anyhow::bail;
use fermata_plan::shares::{self, Board, Scene};

use super::GPUS;
use super::models::Load;

/// A way to place demands on GPUs.
pub(super) struct Method {
    pub(super) name: &'static str,
    place: fn(&Scene, usize) -> Option<Board>,
}

/// In the order of tables and pictures. `Board`s of the first three may lack something.
pub(super) const METHODS: [Method; 6] = [
    Method { name: "squishy", place: |scene, gpus| Some(shares::squishy(scene, gpus)) },
    Method { name: "best fit", place: |scene, gpus| Some(shares::best_fit(scene, gpus)) },
    Method {
        name: "elastic",
        place: |scene, gpus| Some(shares::elastic_partitioning(scene, gpus)),
    },
    Method { name: "ideal", place: shares::ideal },
    Method { name: "program", place: shares::search },
    Method { name: "shares", place: shares::schedule },
];

/// Places of some methods in the list.
pub(super) const SQUISHY: usize = 0;
pub(super) const ELASTIC: usize = 2;
pub(super) const IDEAL: usize = 3;
pub(super) const SHARES: usize = 5;

/// What they are, for a section.
pub(super) const LEGEND: &str = "\
- *squishy*: Nexus' packing on whole GPUs, with any number of models on each. *best fit*: a share \
for each demand, no turns. *elastic*: gpulet's algorithm 1. *ideal*: gpulet's
  exhaustive search over all ways to split the GPUs, with the same rules for placing as elastic. \
  *program*: our dynamic program over subsets,
  alone. *shares*: what `fermata plan --method shares` does: elastic first, then the program, then \
  whole GPUs, other
  orders, and ideal last.
- All methods have the same exact test of who can take turns, the same interference, and must \
serve the whole rate; every plan that counts here passed the
  checker (shares within a GPU, rounds that keep up, objectives beside the neighbour, rates, \
  memory).";

impl Method {
    /// Whether the load is scheduled; an error if the plan does not hold.
    pub(super) fn schedules(&self, load: &Load) -> anyhow::Result<bool> {
        let scene = shares::scene(&load.problem, &load.rules, &load.traits);
        let Some(board) = (self.place)(&scene, GPUS) else { return Ok(false) };
        let plan = shares::plan_of(&scene, &board);
        if let Some(fault) = shares::check(&load.problem, &load.rules, &load.traits, &plan) {
            bail!("{}: {fault:?} in {plan:?}", self.name);
        }
        Ok(plan.infeasible.is_empty())
    }
}
