//! The document about the planner, which more than one suite writes.

use std::path::Path;

use super::document::Document;
use super::experiment::Experiment;
use super::{gpulet, nexus};

const INTRODUCTION: &str = "# The planner, measured

How many GPUs, which models where, which share of a GPU, and how a query's objective is split: \
what `fermata plan` and
the crate behind it find, beside the greedy rules of *Nexus* (Shen and others), *gpulet* (Choi and \
others) and
*Symphony* (Chen and others). Every number here was measured by the command named below its \
section; `paper` is what a
paper prints.

- *demand*: a model, an objective and a rate (Nexus: a session). *SLO*: from arrival to answer.
- *1080Ti zoo, A100 zoo*: the models of Symphony's tables 3 and 4, with their linear latencies and \
SLOs.
- Times are those of one core.
";

/// The document, with the sections of all suites.
pub(super) fn document(out: &Path) -> Document {
    let nexus = nexus::EXPERIMENTS.iter().map(Experiment::heading);
    let gpulet = gpulet::EXPERIMENTS.iter().map(Experiment::heading);
    Document {
        name: "planner",
        out: out.to_owned(),
        introduction: INTRODUCTION,
        headings: nexus.chain(gpulet).collect(),
    }
}
