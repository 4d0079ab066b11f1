//! How soon requests are answered far below the goodput, beside eager batching: under a light load,
//! and for clients that ask in a loop after other traffic.

use fermata_chart::grouped;
use fermata_onnx::zoo::Net;
use serde::Serialize;

use super::child::{Loaded, Server, load, steady};
use super::rig::Rig;
use super::{Bench, serve, write_json, zoo};
use crate::document::{Section, Table, bold_if};
use crate::trials::symphony::Meter;

const NET: Net = Net::ResNet50;
/// The models that lone clients ask, one after the other.
const NETS: [Net; 3] = [NET, Net::LeNet, Net::BertShort];
const SLO_MS: f64 = 10.0;
/// Eager batching first: the others are compared with it.
const POLICIES: [&str; 3] = ["eager", "fermata", "fermata:release"];
/// Requests a second, Poisson.
const RATES: [f64; 3] = [200.0, 1_000.0, 4_000.0];
const CLIENTS: [usize; 2] = [1, 4];
/// Every policy has as many servers, one after the other: the machine may change meanwhile.
const TURNS: usize = 2;
/// How long each load lasts, in milliseconds: a Poisson load, traffic before lone clients, and
/// these.
const POISSON_TIME: f64 = 2_500.0;
const TRAFFIC_TIME: f64 = 900.0;
const CLIENT_TIME: f64 = 700.0;
/// What is asked for: latency over that of eager batching, and goodput over that of
/// `fermata:release`.
const LATENCY_MAX: f64 = 1.05;
const GOODPUT_MIN: f64 = 0.99;

/// A load on one server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Requests at this rate.
    Poisson(f64),
    /// Clients of a model, after traffic of this rate on the others.
    Clients { net: &'static str, clients: usize, after: f64 },
}

#[derive(Debug, Serialize)]
struct Row {
    policy: &'static str,
    kind: Kind,
    loaded: Loaded,
}

#[derive(Debug, Serialize)]
struct Found {
    rows: Vec<Row>,
    /// By policy, where it was searched for.
    goodputs: Vec<(&'static str, f64)>,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    let turns = rig.count(TURNS, 1);
    bench.progress.expect(turns * POLICIES.len());
    let near = serve::near(rig, NET)?;
    rig.release();
    let models = NETS.map(|net| (net, SLO_MS));
    let repository = zoo::repository(&rig.models, "light", &models)?;
    let mut found = Found { rows: Vec::new(), goodputs: Vec::new() };
    for turn in 0..turns {
        for policy in POLICIES {
            let server = Server::start(rig, &repository, &["--policy", policy])?;
            measure(rig, &server, policy, &mut found.rows)?;
            if turn == 0 && policy != POLICIES[0] {
                let mut arguments =
                    vec![server.grpc.clone(), NET.name().to_owned(), "--goodput".to_owned()];
                arguments.extend(serve::search(rig, near, SLO_MS));
                let goodput = load(&arguments)?.goodput_rps.unwrap_or(0.0);
                found.goodputs.push((policy, goodput));
            }
            bench.progress.finish_one();
        }
    }
    write_json(bench, "light", &found)?;
    Ok(section(&found))
}

/// All loads on one server.
fn measure(
    rig: &Rig,
    server: &Server,
    policy: &'static str,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    for rate in RATES {
        let loaded = load(&steady(server, NET, rate, SLO_MS, rig.time(POISSON_TIME)))?;
        rows.push(Row { policy, kind: Kind::Poisson(rate), loaded });
    }
    for after in RATES {
        for net in NETS {
            load(&traffic(rig, server, net, after))?;
            for clients in CLIENTS {
                let loaded = load(&closed(rig, server, net, clients))?;
                let kind = Kind::Clients { net: net.name(), clients, after };
                rows.push(Row { policy, kind, loaded });
            }
        }
    }
    Ok(())
}

/// The arguments of a load on all models but one.
fn traffic(rig: &Rig, server: &Server, but: Net, rate: f64) -> Vec<String> {
    let others = NETS.iter().filter(|&&net| net != but);
    let each = rate / (NETS.len() - 1) as f64;
    let models = others.map(|net| format!("{net}={each}@{SLO_MS}"));
    [server.grpc.clone()].into_iter().chain(models).chain(lasting(rig, TRAFFIC_TIME)).collect()
}

/// The arguments of clients that ask in a loop.
fn closed(rig: &Rig, server: &Server, net: Net, clients: usize) -> Vec<String> {
    let options = ["--concurrency".to_owned(), clients.to_string()];
    let slo = ["--slo-ms".to_owned(), SLO_MS.to_string()];
    let who = [server.grpc.clone(), net.name().to_owned()].into_iter();
    who.chain(options).chain(slo).chain(lasting(rig, CLIENT_TIME)).collect()
}

fn lasting(rig: &Rig, milliseconds: f64) -> [String; 4] {
    let duration = format!("{}ms", rig.time(milliseconds).as_millis().max(100));
    ["--warmup", "0", "--duration", &duration].map(str::to_owned)
}

impl Found {
    /// The median over turns of a quantile of a policy's latency, in milliseconds.
    fn latency(&self, policy: &str, kind: &Kind, p99: bool) -> f64 {
        let rows = self.rows.iter().filter(|row| row.policy == policy && row.kind == *kind);
        let latencies = rows.filter_map(|row| row.loaded.latency_ms);
        let mut all: Vec<f64> =
            latencies.map(|latency| if p99 { latency.p99 } else { latency.p50 }).collect();
        all.sort_by(f64::total_cmp);
        match all.len() {
            0 => f64::NAN,
            count => f64::midpoint(all[(count - 1) / 2], all[count / 2]),
        }
    }

    /// How many requests of a policy were sent, and how many were not in time.
    fn bad(&self, policy: &str, kind: &Kind) -> (u64, u64) {
        let rows = self.rows.iter().filter(|row| row.policy == policy && row.kind == *kind);
        rows.map(|row| row.loaded.counts).fold((0, 0), |(bad, sent), counts| {
            (bad + counts.sent - counts.in_time, sent + counts.sent)
        })
    }

    fn kinds(&self) -> Vec<&Kind> {
        let mut kinds = Vec::new();
        for row in &self.rows {
            if !kinds.contains(&&row.kind) {
                kinds.push(&row.kind);
            }
        }
        kinds
    }
}

fn section(found: &Found) -> Section {
    let mut section = Section::default();
    section.say(format!(
        "One server for each policy, one after the other in turns, over gRPC; SLO {SLO_MS} ms. \
         Medians over turns, in \
         milliseconds, and over those of `eager`."
    ));
    section.say(format!("### {NET} alone, Poisson"));
    section.say(format!(
        "Asked of `fermata`: at most {LATENCY_MAX} of eager, and nothing bad. `fermata:release` \
         fills batches on purpose."
    ));
    section.say(poisson(found));
    section.say("### Clients that ask in a loop, after other traffic");
    section.say(format!(
        "Before, Poisson traffic on the two other models. Medians of the latency; asked of both: \
         at most {LATENCY_MAX} of eager."
    ));
    section.say(clients(found));
    if let [(ours, latency), (other, release)] = found.goodputs[..] {
        let ratio = latency / release;
        section.say(format!(
            "Goodput of {NET}: {} requests a second under `{ours}`, {} under `{other}`, which is \
             {} (asked: at least {GOODPUT_MIN}).",
            grouped(latency, 0),
            grouped(release, 0),
            bold_if(ratio < GOODPUT_MIN, format!("{ratio:.3}")),
        ));
    }
    section
}

fn poisson(found: &Found) -> String {
    let head = ["requests/s, policy", "P50", "over eager", "P99", "over eager", "not in time"];
    let mut table = Table::new(head);
    for kind in found.kinds() {
        let Kind::Poisson(rate) = kind else { continue };
        for policy in POLICIES {
            let mut cells = vec![format!("{}, `{policy}`", grouped(*rate, 0))];
            for p99 in [false, true] {
                let latency = found.latency(policy, kind, p99);
                let ratio = latency / found.latency(POLICIES[0], kind, p99);
                cells.push(format!("{latency:.3}"));
                let is_missed = policy == POLICIES[1] && ratio > LATENCY_MAX;
                cells.push(bold_if(is_missed, format!("{ratio:.2}")));
            }
            let (bad, sent) = found.bad(policy, kind);
            let is_missed = policy == POLICIES[1] && bad > 0;
            cells.push(bold_if(is_missed, format!("{bad} of {}", grouped(sent as f64, 0))));
            table.add(cells);
        }
    }
    table.markdown()
}

fn clients(found: &Found) -> String {
    let head = ["model, clients, requests/s before", "eager (ms)", "fermata", "fermata:release"];
    let mut table = Table::new(head);
    for kind in found.kinds() {
        let Kind::Clients { net, clients, after } = kind else { continue };
        let eager = found.latency(POLICIES[0], kind, false);
        let ratios = POLICIES[1..].iter().map(|policy| {
            let ratio = found.latency(policy, kind, false) / eager;
            bold_if(ratio > LATENCY_MAX, format!("{ratio:.2}"))
        });
        let head = [format!("{net}, {clients}, {}", grouped(*after, 0)), format!("{eager:.3}")];
        table.add(head.into_iter().chain(ratios));
    }
    table.markdown()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::child::{Counts, LatencyMs};

    fn row(policy: &'static str, kind: Kind, p50: f64, in_time: u64) -> Row {
        let loaded = Loaded {
            goodput_rps: None,
            sent_rps: 0.0,
            in_time_rps: 0.0,
            in_time_share: 1.0,
            counts: Counts { sent: 10, in_time, ..Counts::default() },
            latency_ms: Some(LatencyMs { p50, p99: 2.0 * p50 }),
            cpu_us_per_request: 0.0,
            errors: Vec::new(),
        };
        Row { policy, kind, loaded }
    }

    #[test]
    fn policies_are_compared_with_eager_by_their_medians() {
        let client = Kind::Clients { net: "lenet", clients: 4, after: 200.0 };
        let rows = vec![
            row("eager", Kind::Poisson(200.0), 1.0, 10),
            row("eager", Kind::Poisson(200.0), 3.0, 10),
            row("fermata", Kind::Poisson(200.0), 2.0, 9),
            row("fermata:release", Kind::Poisson(200.0), 4.0, 9),
            row("eager", client.clone(), 1.0, 10),
            row("fermata", client.clone(), 1.2, 10),
            row("fermata:release", client, 1.0, 10),
        ];
        let goodputs = vec![("fermata", 97.0), ("fermata:release", 100.0)];
        let text = section(&Found { rows, goodputs }).body;
        for expected in [
            "| 200, `fermata` | 2.000 | 1.00 | 4.000 | 1.00 | **1 of 10** |",
            "| 200, `fermata:release` | 4.000 | 2.00 | 8.000 | 2.00 | 1 of 10 |",
            "| lenet, 4, 200 | 1.000 | **1.20** | 1.00 |",
            "which is **0.970**",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
