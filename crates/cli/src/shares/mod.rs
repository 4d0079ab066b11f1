//! `fermata shares`: how the GPUs of a running server are cut, and other cuts for them.

use std::time::Duration;

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;
use fermata_files::{InputError, Table, in_one_line, output, shares};
use fermata_load::client::{CallError, Protocol, Target, http};
use serde::{Deserialize, Serialize};
use tokio::runtime::{self, Runtime};

/// Lists the shares into which the GPUs of a running server are cut, or cuts one of them anew,
/// while it serves.
#[derive(Debug, Arguments)]
#[command(after_help = HELP)]
pub(crate) struct SharesArgs {
    /// The server: http://host:8000.
    url: String,

    /// The shares to cut a GPU into, in percent; without them, those that there are are listed.
    shares: Option<String>,

    /// Which GPU; the only one, if not given.
    #[arg(long, value_name = "N", env = "FERMATA_GPU")]
    gpu: Option<usize>,

    /// Print JSON.
    #[arg(long, env = "FERMATA_JSON", value_parser = FalseyValueParser::new())]
    json: bool,

    /// How long to wait for the server; a re-cut waits for a model that is being loaded.
    #[arg(long, value_name = "S", env = "FERMATA_PATIENCE_S", default_value_t = 300)]
    patience_s: u64,
}

const HELP: &str = "Examples:
  fermata shares http://localhost:8000
  fermata shares http://localhost:8000 40,60            two shares, of which the second is the \
  larger
  fermata shares http://localhost:8000 --gpu 1 100      one GPU in one piece
  fermata shares http://localhost:8000 50,50 --json | jq .took_ms";

/// The GPUs, as the server lists them.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Listing {
    gpus: Vec<Gpu>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Gpu {
    gpu: usize,
    name: String,
    multiprocessors: u32,
    memory_used_bytes: u64,
    memory_total_bytes: u64,
    seats: usize,
    shares: Vec<Share>,
    /// `hand` or `plan`; servers of before do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shares_by: Option<String>,
    restarts: u64,
    last_recut_ms: Option<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Share {
    seat: usize,
    percent: u32,
    multiprocessors: u32,
    executor: Option<u32>,
    restarts: u64,
}

/// What came of a cut.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Recut {
    gpu: usize,
    shares: Vec<u32>,
    multiprocessors: Vec<u32>,
    took_ms: f64,
}

/// Runs the command.
pub(crate) fn run(args: &SharesArgs) -> anyhow::Result<()> {
    let percents = args.shares.as_deref().map(|text| shares("SHARES", text)).transpose()?;
    let target = Target::parse(&args.url)?;
    if target.protocol == Protocol::Grpc {
        let reason = format!("{target} is gRPC: give the server's HTTP address, http://host:8000");
        return Err(InputError::Argument { name: "URL", reason }.into());
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let patience = Duration::from_secs(args.patience_s.max(1));
    let server = Asked { target, runtime, patience };
    let mut listing: Listing = server.call("GET", "/v2/fermata/gpus", "")?;
    if let Some(gpu) = args.gpu {
        let there: Vec<String> = listing.gpus.iter().map(|other| other.gpu.to_string()).collect();
        listing.gpus.retain(|other| other.gpu == gpu);
        if listing.gpus.is_empty() {
            let reason = match there.is_empty() {
                true => format!("{} serves on no GPU", server.target),
                false => format!("there is no GPU {gpu}: there are {}", there.join(", ")),
            };
            return Err(InputError::Argument { name: "--gpu", reason }.into());
        }
    }
    let Some(percents) = percents else {
        return output::print(&if args.json {
            serde_json::to_string_pretty(&listing.gpus)? + "\n"
        } else {
            listing.table(&server.target)
        });
    };
    let gpu = listing.only(&server.target)?;
    let body = serde_json::json!({ "shares": percents }).to_string();
    let recut: Recut = server.call("POST", &format!("/v2/fermata/gpus/{gpu}/shares"), &body)?;
    output::print(&if args.json {
        serde_json::to_string_pretty(&recut)? + "\n"
    } else {
        let cut = |parts: &[u32]| parts.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        format!(
            "GPU {} is cut into {} % ({} multiprocessors), which serve after {:.1} ms\n",
            recut.gpu,
            cut(&recut.shares),
            cut(&recut.multiprocessors),
            recut.took_ms
        )
    })
}

/// A server.
struct Asked {
    target: Target,
    runtime: Runtime,
    patience: Duration,
}

impl Asked {
    fn call<T: for<'a> Deserialize<'a>>(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<T, InputError> {
        let target = &self.target;
        let call = http::call(target, method, path, body, self.patience);
        let answer = self.runtime.block_on(call).map_err(|error| match error {
            CallError::Refused { .. } if method == "POST" => {
                InputError::Argument { name: "SHARES", reason: error.to_string() }
            }
            _ => InputError::Argument { name: "URL", reason: error.at(target) },
        })?;
        serde_json::from_slice(&answer).map_err(|error| {
            let reason = format!("{target} does not speak of GPUs: {error}");
            InputError::Argument { name: "URL", reason }
        })
    }
}

impl Listing {
    /// The GPU that is meant where only one can be.
    fn only(&self, target: &Target) -> Result<usize, InputError> {
        match &self.gpus[..] {
            [gpu] => Ok(gpu.gpu),
            [] => {
                let reason = format!("{target} serves on no GPU: it was started without --gpus");
                Err(InputError::Argument { name: "URL", reason })
            }
            several => {
                let there: Vec<String> = several.iter().map(|gpu| gpu.gpu.to_string()).collect();
                let reason = format!("say which GPU is meant: {}", there.join(", "));
                Err(InputError::Argument { name: "--gpu", reason })
            }
        }
    }

    fn table(&self, target: &Target) -> String {
        if self.gpus.is_empty() {
            return format!("{target} serves on no GPU\n");
        }
        let mut text = String::new();
        for gpu in &self.gpus {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            let (used, total) = (gib(gpu.memory_used_bytes), gib(gpu.memory_total_bytes));
            let recut = gpu.last_recut_ms.map(|ms| format!(", last re-cut in {ms:.1} ms"));
            let planned = gpu.shares_by.as_deref() == Some("plan");
            text += &format!(
                "GPU {}: {}, {used:.1} of {total:.1} GiB, {} of {} seats in use, {} restarts{}{}\n",
                gpu.gpu,
                in_one_line(&gpu.name),
                gpu.shares.len(),
                gpu.seats,
                gpu.restarts,
                if planned { ", cut by plan" } else { "" },
                recut.unwrap_or_default()
            );
            let head = ["seat", "share", "multiprocessors", "executor", "restarts"];
            let mut table = Table::new(head.into_iter());
            for share in &gpu.shares {
                let executor = share.executor.map_or("away".to_owned(), |id| id.to_string());
                let cells = [
                    share.seat.to_string(),
                    format!("{} %", share.percent),
                    format!("{} of {}", share.multiprocessors, gpu.multiprocessors),
                    executor,
                    share.restarts.to_string(),
                ];
                table.row(cells.into_iter());
            }
            text += &table.render();
        }
        text
    }
}
