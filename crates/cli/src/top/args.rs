//! What can be said to `fermata top`.

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;

/// Shows what a running server does, live: requests, latencies against their SLOs, batches,
/// executors.
#[derive(Debug, Arguments)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    /// The server's HTTP address.
    #[arg(env = "FERMATA_URL", default_value = "http://localhost:8000")]
    pub(super) url: String,

    /// Look once and print what there was to see, as text; so it is too where nobody sits at a
    /// terminal.
    #[arg(long, env = "FERMATA_ONCE", value_parser = FalseyValueParser::new())]
    pub(super) once: bool,

    /// End after this (10s, 2m). Without a terminal, a text every few seconds until then.
    #[arg(long = "for", value_name = "D", env = "FERMATA_FOR")]
    pub(super) for_: Option<String>,

    /// How often to look; 1s on a terminal, 5s without one, if not given.
    #[arg(long, value_name = "D", env = "FERMATA_EVERY")]
    pub(super) every: Option<String>,

    /// The most models to show, those with the most requests; as many as fit the screen, 20 in a
    /// text, if not given.
    #[arg(
        long,
        value_name = "N",
        env = "FERMATA_MODELS",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(super) models: Option<u64>,

    /// Print the server's /status.json as it is, a line for each look. Its counters count from the
    /// start.
    #[arg(long, env = "FERMATA_JSON", value_parser = FalseyValueParser::new())]
    pub(super) json: bool,
}

const HELP: &str = "What is shown is of the last five seconds; busy, bad and advised executors, \
                    which the server \
tells, are of the last ten. The bar reaches to the p50 (█) and the p99 (▒), and its end (│) is the \
SLO. Heights \
of `sizes` say how many batches there were, from the smallest to the largest. Latencies are read \
off a histogram \
whose edges are tenths of the SLO. q or Ctrl-C leaves; NO_COLOR is respected.

Examples:
  fermata top
  fermata top http://localhost:8000 --for 30s
  fermata top --once --models 5
  fermata top --json --for 1m --every 10s > watched.jsonl
  fermata top --json | jq '.pools[] | {name, busy, advised_executors}'";
