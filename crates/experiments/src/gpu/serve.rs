//! ResNet50 served over loopback: its goodput beside the simulator's, and beside batches back to
//! back.

use fermata_chart::{Axis, BarSeries, Bars, grouped};
use fermata_core::Span;
use fermata_dispatch::Network;
use fermata_files::MeasuredFile;
use fermata_onnx::zoo::Net;
use serde::Serialize;

use super::child::{Loaded, Server, load};
use super::expected::{Asked, back_to_back, simulated};
use super::rig::Rig;
use super::{Bench, met, percent, shares, write_json, zoo};
use crate::document::{Section, Table, figure};
use crate::trials::symphony::Meter;

const NET: Net = Net::ResNet50;
const SLO_MS: f64 = 10.0;
/// What is asked for: of what the simulator finds, and of batches back to back.
const OF_SIMULATED: f64 = 0.90;
const OF_LIMIT: f64 = 0.85;
/// How long each rate is tried, in milliseconds.
const TIME: f64 = 1200.0;
/// Sending so many large requests takes more than one core.
const THREADS: &str = "4";

/// How requests come.
struct Way {
    name: &'static str,
    grpc: bool,
    shared_memory: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "HTTP, sockets", grpc: false, shared_memory: false },
    Way { name: "HTTP, shared memory", grpc: false, shared_memory: true },
    Way { name: "gRPC, sockets", grpc: true, shared_memory: false },
    Way { name: "gRPC, shared memory", grpc: true, shared_memory: true },
];

/// What could be had.
#[derive(Clone, Copy, Debug, Serialize)]
struct Limits {
    /// By the simulator, with the medians of the profile.
    simulated_rps: f64,
    /// With what 99 % of the batches do not exceed.
    simulated_tails_rps: f64,
    /// The batch that the objective allows, and what it gives back to back.
    batch: usize,
    back_to_back_rps: f64,
}

#[derive(Debug, Serialize)]
struct Served {
    way: &'static str,
    goodput_rps: f64,
    loaded: Loaded,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    bench.progress.expect(1 + WAYS.len());
    let measured = profile(rig, NET)?;
    let limits = Limits::of(&measured, rig.seed)?;
    rig.release();
    let repository = zoo::repository(&rig.models, "serve", &[(NET, SLO_MS)])?;
    let server = Server::start(rig, &repository, &[])?;
    bench.progress.finish_one();
    let mut all = Vec::new();
    for way in WAYS {
        let url = if way.grpc { &server.grpc } else { &server.http };
        let mut arguments = vec![url.clone(), NET.name().to_owned(), "--goodput".to_owned()];
        arguments.extend(search(rig, limits.simulated_rps * OF_SIMULATED, SLO_MS));
        if way.shared_memory {
            arguments.push("--shared-memory".to_owned());
        }
        let loaded = load(&arguments)?;
        let goodput_rps = loaded.goodput_rps.unwrap_or(0.0);
        all.push(Served { way: way.name, goodput_rps, loaded });
        bench.progress.finish_one();
    }
    drop(server);
    write_json(bench, "serve", &serde_json::json!({ "limits": limits, "served": all }))?;
    Ok(section(&limits, &all))
}

/// The options of a search for goodput near a rate.
pub(super) fn search(rig: &Rig, near: f64, slo_ms: f64) -> Vec<String> {
    let duration = format!("{}ms", rig.time(TIME).as_millis().max(200));
    let options = [
        ("--rate", format!("{near:.0}")),
        ("--slo-ms", slo_ms.to_string()),
        ("--duration", duration),
        ("--warmup", "300ms".to_owned()),
        ("--threads", THREADS.to_owned()),
        ("--seed", rig.seed.to_string()),
    ];
    options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// A rate that a model is likely to be served at, in requests a second.
pub(super) fn near(rig: &Rig, net: Net) -> anyhow::Result<f64> {
    Ok(Limits::of(&profile(rig, net)?, rig.seed)?.simulated_rps * OF_SIMULATED)
}

/// The profile of a model: what was measured before, or the whole GPU measured now.
pub(super) fn profile(rig: &Rig, net: Net) -> anyhow::Result<MeasuredFile> {
    if let Some(measured) = shares::read(&rig.profiles, &rig.device.name, net.name()) {
        return Ok(measured);
    }
    let measured = shares::measure(rig, &mut *rig.lab()?, &[net], &[100], &|| {})?;
    Ok(measured.into_iter().next().expect("one was asked for"))
}

impl Limits {
    fn of(measured: &MeasuredFile, seed: u64) -> anyhow::Result<Self> {
        let slo = Span::from_ms(SLO_MS);
        let medians = measured.medians().map_err(anyhow::Error::msg)?;
        let tails = measured.tails().map_err(anyhow::Error::msg)?;
        let (batch, back_to_back_rps) = back_to_back(&medians.on_share(100), slo);
        // As if the way to the GPU took no time: what is lost on it is part of what is measured.
        let near = Network::default();
        let by =
            |latencies| simulated(&[Asked { latencies, slo, weight: 1.0 }], &[100], near, seed);
        let (simulated_rps, simulated_tails_rps) = (by(medians), by(tails));
        Ok(Self { simulated_rps, simulated_tails_rps, batch, back_to_back_rps })
    }
}

fn section(limits: &Limits, all: &[Served]) -> Section {
    let mut section = Section::default();
    section.say(format!(
        "One `fermata serve` and one `fermata load` on this machine, {NET} with 224x224x3 inputs \
         as UINT8, normalised on the device, SLO {SLO_MS} ms, Poisson arrivals; the \
         goodput is what the load generator's own search finds, to 3 %: it begins at the same rate \
         for each way, so that ways between which \
         it sees no difference have the same. `fermata sim` finds {} requests a second for the \
         measured profile (medians; {} with the 99th percentiles), and batches of \
         {}, the largest that take half of the SLO, run at {} a second back to back.",
        grouped(limits.simulated_rps, 0),
        grouped(limits.simulated_tails_rps, 0),
        limits.batch,
        grouped(limits.back_to_back_rps, 0),
    ));
    let mut table = Table::new([
        "requests by",
        "goodput, requests/s",
        "of the simulator's",
        "at least",
        "met",
        "of back to back",
        "at least",
        "met",
        "p50, ms",
        "p99, ms",
    ]);
    for served in all {
        let (of_simulated, of_limit) = (
            served.goodput_rps / limits.simulated_rps,
            served.goodput_rps / limits.back_to_back_rps,
        );
        let latency = |part: fn(&super::child::LatencyMs) -> f64| {
            served
                .loaded
                .latency_ms
                .as_ref()
                .map_or("-".to_owned(), |ms| format!("{:.2}", part(ms)))
        };
        table.add([
            served.way.to_owned(),
            grouped(served.goodput_rps, 0),
            percent(of_simulated),
            percent(OF_SIMULATED),
            met(of_simulated >= OF_SIMULATED).to_owned(),
            percent(of_limit),
            percent(OF_LIMIT),
            met(of_limit >= OF_LIMIT).to_owned(),
            latency(|ms| ms.p50),
            latency(|ms| ms.p99),
        ]);
    }
    section.say(table.markdown());
    section.show("serve", "goodput by way, beside the limits", picture(limits, all));
    section
}

fn picture(limits: &Limits, all: &[Served]) -> String {
    let mut groups: Vec<String> = all.iter().map(|served| served.way.to_owned()).collect();
    let mut values: Vec<f64> = all.iter().map(|served| served.goodput_rps).collect();
    for (name, value) in
        [("simulated", limits.simulated_rps), ("back to back", limits.back_to_back_rps)]
    {
        groups.push(name.to_owned());
        values.push(value);
    }
    let bars = Bars {
        title: format!("{NET}, SLO {SLO_MS} ms"),
        x_title: String::new(),
        y: Axis::from_zero("requests a second"),
        groups,
        series: vec![BarSeries { name: "goodput".to_owned(), values }],
        values: Some(0),
    };
    figure(
        "Served over loopback",
        "Poisson arrivals, 99 % in time",
        vec![(380.0, vec![Box::new(bars)])],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::child::Counts;

    #[test]
    fn the_section_compares_with_the_simulator_and_with_the_gpu() {
        let limits = Limits {
            simulated_rps: 10_000.0,
            simulated_tails_rps: 9_900.0,
            batch: 48,
            back_to_back_rps: 12_000.0,
        };
        let loaded = Loaded {
            goodput_rps: Some(9_500.0),
            sent_rps: 0.0,
            in_time_rps: 0.0,
            in_time_share: 1.0,
            counts: Counts::default(),
            latency_ms: None,
            cpu_us_per_request: 0.0,
            errors: Vec::new(),
        };
        let served = [Served { way: "gRPC, sockets", goodput_rps: 9_500.0, loaded }];
        let text = section(&limits, &served).body;
        let row =
            "| gRPC, sockets | 9,500 | 95.0 % | 90.0 % | yes | 79.2 % | 85.0 % | **no** | - | - |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("batches of 48"), "{text}");
    }
}
