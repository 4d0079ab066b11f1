//! `fermata models`: what a running server has; loads and unloads.

use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args as Arguments, Subcommand};
use fermata_files::{InputError, Table, output};
use fermata_load::client::{CallError, Protocol, Target, http};
use serde::{Deserialize, Serialize};
use tokio::runtime;

/// Lists, loads and unloads the models of a running server, ours or Triton, over HTTP.
#[derive(Debug, Arguments)]
#[command(after_help = HELP)]
pub(crate) struct ModelsArgs {
    /// The server: http://host:8000.
    url: String,

    #[command(subcommand)]
    action: Option<Action>,

    /// Print JSON.
    #[arg(long, global = true, env = "FERMATA_JSON", value_parser = FalseyValueParser::new())]
    json: bool,

    /// How long to wait for the server; loading a large model takes its time.
    #[arg(
        long,
        global = true,
        value_name = "S",
        env = "FERMATA_PATIENCE_S",
        default_value_t = 300
    )]
    patience_s: u64,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// What is in the repository, and whether it is served.
    List,
    /// Load a model, or load it again.
    Load {
        /// Its name.
        name: String,
    },
    /// Stop serving a model.
    Unload {
        /// Its name.
        name: String,
    },
}

const HELP: &str = "Examples:
  fermata models http://localhost:8000
  fermata models http://localhost:8000 load resnet50
  fermata models http://localhost:8000 unload resnet50
  fermata models http://localhost:8000 --json | jq '.[] | select(.state != \"READY\")'";

/// A model, as the repository's index has it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Entry {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    reason: String,
}

/// Runs the command.
pub(crate) fn run(args: &ModelsArgs) -> anyhow::Result<()> {
    let target = Target::parse(&args.url)?;
    if target.protocol == Protocol::Grpc {
        let reason = "is gRPC: give the server's HTTP address, http://host:8000".to_owned();
        return Err(
            InputError::Argument { name: "URL", reason: format!("{target} {reason}") }.into()
        );
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let patience = Duration::from_secs(args.patience_s.max(1));
    let call = |path: String| runtime.block_on(http::call(&target, "POST", &path, "{}", patience));
    let (name, word) = match args.action.as_ref().unwrap_or(&Action::List) {
        Action::List => {
            let body =
                call("/v2/repository/index".to_owned()).map_err(|error| refuse(&target, error))?;
            let entries: Vec<Entry> = serde_json::from_slice(&body).map_err(|error| {
                let reason = format!("{target} does not speak the protocol: {error}");
                InputError::Argument { name: "URL", reason }
            })?;
            return output::print(&if args.json {
                serde_json::to_string_pretty(&entries)? + "\n"
            } else {
                table(&target, &entries)
            });
        }
        Action::Load { name } => (name, "load"),
        Action::Unload { name } => (name, "unload"),
    };
    call(format!("/v2/repository/models/{}/{word}", http::escape(name)))
        .map_err(|error| refuse_model(&target, word, name, error))?;
    output::print(&if args.json {
        serde_json::to_string_pretty(&serde_json::json!({ "name": name, "done": word }))? + "\n"
    } else {
        format!("{name} is {word}ed\n")
    })
}

fn refuse(target: &Target, error: CallError) -> InputError {
    InputError::Argument { name: "URL", reason: error.at(target) }
}

fn refuse_model(target: &Target, word: &str, model: &str, error: CallError) -> InputError {
    match error {
        CallError::Refused { .. } => {
            let reason = format!("'{model}' cannot be {word}ed: {error}");
            InputError::Argument { name: "NAME", reason }
        }
        CallError::Unreachable(_) => refuse(target, error),
    }
}

fn table(target: &Target, entries: &[Entry]) -> String {
    if entries.is_empty() {
        return format!("{target} has no models\n");
    }
    let mut table = Table::new(["model", "version", "state", ""].into_iter());
    for Entry { name, version, state, reason } in entries {
        let state = if state.is_empty() { "not loaded" } else { state };
        let reason = if reason == "unloaded" { "" } else { reason };
        let cells =
            [name.clone(), version.clone(), state.to_owned(), fermata_files::in_one_line(reason)];
        table.row(cells.into_iter());
    }
    let text = table.render();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
