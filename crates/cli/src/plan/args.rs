//! The options of `fermata plan`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::FalseyValueParser;
use fermata_plan::Method;

use super::method;
use super::sweep::Sweep;

/// Plans how many GPUs a load needs and what runs where, and tries the plan in the simulator.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(crate) struct PlanArgs {
    /// What is asked for, and of which GPUs, as TOML (see below).
    pub(crate) file: PathBuf,

    /// How to plan (see below).
    #[arg(
        long,
        value_name = "M",
        env = "FERMATA_METHOD",
        default_value = "pools",
        value_parser = method::parse
    )]
    pub(crate) method: Method,

    /// A plan in force, as --json wrote it: the new one stays near it, and says what moves.
    #[arg(long, value_name = "PLAN.json", env = "FERMATA_PREVIOUS")]
    pub(crate) previous: Option<PathBuf>,

    /// Try the plan in the simulator, under the scheduler that serves. With --method pools, search
    /// for the fewest GPUs with which every model has 99 % of its requests in time.
    #[arg(long, env = "FERMATA_CONFIRM", value_parser = FalseyValueParser::new())]
    pub(crate) confirm: bool,

    /// With --confirm: at least so many requests in each run of a pool.
    #[arg(
        long,
        value_name = "N",
        env = "FERMATA_REQUESTS",
        default_value_t = 400_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000)
    )]
    pub(crate) requests: u64,

    /// With --confirm: at least so long a run, in simulated seconds.
    #[arg(long, value_name = "S", env = "FERMATA_SECONDS", default_value = "10")]
    pub(crate) seconds: String,

    /// The seed of all random numbers: the same seed gives the same answer. What was found is tried
    /// once more with the next one.
    #[arg(long, value_name = "N", env = "FERMATA_SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Plan again for other objectives and rates: factors of those in the file (see below).
    #[arg(long, value_name = "SWEEP", env = "FERMATA_WHAT_IF", value_parser = Sweep::parse)]
    pub(crate) what_if: Option<Sweep>,

    /// Print JSON.
    #[arg(long, env = "FERMATA_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,

    /// Draw the plan, GPU by GPU; with --what-if, the GPUs over the sweep.
    #[arg(long, value_name = "OUT.svg", env = "FERMATA_PLOT")]
    pub(crate) plot: Option<PathBuf>,
}

fn help() -> String {
    let methods: Vec<String> =
        method::ALL.iter().map(|method| format!("  {:<8} {}", method.name, method.about)).collect();
    format!(
        "Methods:
{}

The file:
  gpus = 64                  # optional: at most so many
  spare = \"release\"          # optional, for --confirm: or \"latency\", to use spare GPUs
  interference = \"FILE\"      # optional, for shares: what neighbours do to each other, as \
  fermata bench gpu
                             # measured it; if not given, interference.json beside the profiles
  [[gpu]]                    # optional, one for each kind
  name = \"a100\"
  memory_gb = 80             # or memory_mb; not limited, if not given
  price = 3.67               # of one, an hour
  limit = 40                 # at most so many
  [[demand]]
  model = \"resnet50\"
  alpha_ms = 1.053           # a batch of b takes alpha b + beta;
  beta_ms = 5.072            # or latency_ms = [6.1, 7.2, ...] by batch;
                             # or profile = \"FILE\", as fermata profile --json or fermata bench \
                             gpu wrote it
  slo_ms = 25
  rate = 5000                # requests a second; of each copy
  memory_mb = 98             # optional: weights, on every GPU that holds it
  workspace_mb = 500         # optional: while it runs; the largest on a GPU counts
  arrivals = \"poisson\"       # optional, for --confirm: \"gamma:0.2\", \"uniform\", \"trace:FILE\"
  copies = 1                 # optional: named resnet50-1, resnet50-2, ...
  [demand.on.h100]           # optional: latencies on one kind of GPU, by the same keys. Without any
  alpha_ms = 0.6             # beside them, the model runs on the kinds that are named only
  beta_ms = 3.1
  [[query]]                  # optional: models that call each other, under one objective
  name = \"traffic\"
  slo_ms = 400
  rate = 90                  # queries a second
  [[query.node]]             # the same keys as a demand for latencies and memory
  model = \"ssd\"
  alpha_ms = 6.1
  beta_ms = 9.5
  [[query.node]]
  model = \"cars\"
  after = [\"ssd\"]            # waits for these; none, if it starts with the query
  gamma = 1.8                # calls for each call of the node before
  alpha_ms = 1.1
  beta_ms = 5.0

--what-if rate=0.5..2,slo=0.8..1.5 plans for 6 rates from half to twice those of the file, each \
with 6 \
objectives; rate=0.5..2:4 for 4 of them, rate=2 for one. Limits are not heeded: what is beyond \
them is marked.

Exit code: 0 if all demands are met (and, with --confirm, in time); 3 if some are not, and the \
answer says \
which; 2 for bad input; 1 if something else failed.

Examples:
  fermata plan examples/plan.toml
  fermata plan examples/zoo.toml --confirm
  fermata plan examples/zoo.toml --method exact --plot zoo.svg
  fermata plan examples/plan.toml --json > plan.json
  fermata plan examples/plan.toml --previous plan.json
  fermata plan examples/h200.toml --method shares
  fermata plan examples/zoo.toml --what-if rate=0.5..2,slo=1..2:3 --plot what_if.svg
  fermata plan examples/zoo.toml --json | jq .gpus",
        methods.join("\n")
    )
}
