//! `fermata load`: sends a load to a server and measures what comes back.
//!
//! A request costs one write, one read, a timer setting and two turns of an event loop, on a thread
//! that shares nothing: 8 to 12 µs of CPU over HTTP was expected, nearly all of it the kernel's;
//! h2's bookkeeping makes it 15 to 25 µs over gRPC. Requests are encoded once. What was measured is
//! in `docs/results/load.md`.
//!
//! The server that is measured is not linked here: what both know is `fermata-protocol`. [`client`]
//! makes single calls, for other commands too.
//!
//! `plan` checks arguments, `metadata`, `draw` and `payload` make the requests, `worker` sends them
//! (`schedule` says when, `http` and `grpc` how, `desk` and `record` keep the books), `campaign`
//! runs workers, `goodput` searches.

mod args;
mod campaign;
pub mod client;
mod connections;
mod desk;
mod draw;
mod goodput;
mod grpc;
mod http;
mod metadata;
mod payload;
mod percentiles;
mod picture;
mod plan;
mod probe;
mod progress;
mod record;
mod report;
mod schedule;
mod shared_memory;
pub mod stolen;
mod table;
mod timer;
mod worker;

use std::sync::Arc;
use std::thread;

use anyhow::Context;
use fermata_files::{InputError, output};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime;
use tokio::task::LocalSet;

pub use args::LoadArgs;
use campaign::Campaign;
pub use draw::fill;
use payload::Requests;
use plan::{Mode, Plan};
use progress::Progress;
use report::Report;
use shared_memory::Region;
use worker::Stop;

/// Runs the command.
pub fn run(args: &LoadArgs) -> anyhow::Result<()> {
    let plan = Plan::of(args)?;
    let (requests, region) = prepare(&plan)?;
    allow_many_files();
    let stop = Arc::new(Stop::default());
    listen(stop.clone())?;
    let campaign = Campaign { plan: &plan, requests, stop };
    let progress = Progress::start(&plan);
    let (run, steps) = match plan.mode {
        Mode::Goodput { .. } => {
            let (run, steps) = goodput::find(&campaign, &progress)?;
            (run, Some(steps))
        }
        Mode::Closed { .. } | Mode::Open { .. } => (campaign.run(1.0, None, &progress)?, None),
    };
    progress.finish();
    if let Some(region) = region {
        forget(&region)?;
    }
    let report = Report::new(&plan, &run, steps.as_deref());
    if let Some(out) = &args.plot {
        output::write_file(out, &picture::draw(&plan, &run, &report))?;
    }
    output::print(&if args.json { report.json()? } else { table::text(&plan, &report) })
}

/// Asks the server for the models, makes the requests and tries one of each.
fn prepare(plan: &Plan) -> anyhow::Result<(Requests, Option<Region>)> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let asked: Result<_, InputError> = LocalSet::new().block_on(&runtime, async {
        let target = &plan.target;
        let mut models = Vec::new();
        for model in &plan.models {
            models.push((model.clone(), metadata::tensors(target, &model.name).await?));
        }
        let drawn = draw::draw(&models, &plan.inputs, plan.seed)?;
        let region = match plan.inputs.shared_memory {
            Some(passed) => Some(Region::register(target, &drawn, passed).await?),
            None => None,
        };
        let send_timeout = plan.inputs.send_timeout;
        let requests = payload::write(target, &models, &drawn, region.as_ref(), send_timeout);
        let probed = probe::probe(plan, &requests).await;
        if let (Err(_), Some(region)) = (&probed, &region) {
            region.unregister().await;
        }
        probed.map(|()| (requests, region))
    });
    Ok(asked?)
}

/// The server may forget a region.
fn forget(region: &Region) -> anyhow::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, region.unregister());
    Ok(())
}

/// A connection is a file, and many systems allow a thousand of them unless asked.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // Refused, it stays as it was: connections that cannot be opened are reported as such.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Ctrl-C once ends the run and reports it; twice ends the process.
fn listen(stop: Arc<Stop>) -> anyhow::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let listen = async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.stop();
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    };
    let spawned =
        thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(listen));
    spawned.map(drop).context("a thread cannot be started")
}
